package index

import (
	"testing"
	"time"
)

// FuzzIndex runs the input as a script: each byte is taken by a command or by an
// argument of one. Index and model do the same and are compared after each step.
func FuzzIndex(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 200 {
			t.Skip() // longer scripts reach nothing new
		}
		tape := &tape{data}
		tw := newTwin(Options{MaxBlocks: []int{0, 12, 100}[tape.below(3)], StaleTTL: []time.Duration{0, time.Second}[tape.below(2)]})
		at := time.Duration(0)
		for len(tape.data) > 0 {
			if err := tw.step(tape, &at); err != nil {
				t.Fatal(err)
			}
			if err := tw.compare(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// tape is what a script is read from; behind its end there are zeros.
type tape struct{ data []byte }

func (t *tape) below(n int) int {
	if len(t.data) == 0 {
		return 0
	}
	b := t.data[0]
	t.data = t.data[1:]
	return int(b) % n
}

// chain reads a chain: a straight one that turns at one block, or, if loose, one of
// arbitrary blocks.
func (t *tape) chain() *fakeChain {
	n := t.below(40)
	if n < 4 {
		loose := make([]byte, t.below(8))
		for i := range loose {
			loose[i] = byte(t.below(20))
		}
		return looseChain(loose)
	}
	choices := make([]byte, n)
	choices[t.below(n)] = byte(t.below(3))
	return treeChain(choices)
}

func (tw *twin) step(t *tape, at *time.Duration) error {
	pod := func() int { return []int{0, 1, 64, 200, 255}[t.below(5)] }
	switch t.below(11) {
	case 0, 1:
		tw.register(*at, pod(), t.chain(), nil)
	case 2:
		c, p := t.chain(), pod()
		if err := tw.query(c, All(t.below(256)+1)); err != nil {
			return err
		}
		tw.register(*at, p, c, &tw.q)
	case 3:
		return tw.query(t.chain(), All(256))
	case 4:
		if len(tw.regs) > 0 {
			r := &tw.regs[t.below(len(tw.regs))]
			r.chain.Complete()
			tw.undo(r)
		}
	case 5:
		p := pod()
		tw.x.Wipe(uint8(p))
		tw.m.wipe(p)
	case 6:
		p, n := pod(), t.below(50)
		tw.x.SetCapacity(uint8(p), n)
		tw.m.setCapacity(p, n)
	case 7:
		*at += time.Duration(t.below(256)) * 10 * time.Millisecond
		tw.x.Expire(epoch.Add(*at))
		tw.m.expire(*at)
	case 8:
		o := Options{MaxBlocks: t.below(60), StaleTTL: time.Duration(t.below(4)) * time.Second}
		tw.x.Configure(o)
		tw.m.configure(o)
	case 9:
		p, c := pod(), t.chain()
		*at += time.Duration(t.below(30)) * time.Millisecond
		tw.promise(*at, p, c)
	case 10:
		if len(tw.regs) > 0 {
			tw.keep(*at, &tw.regs[t.below(len(tw.regs))])
		}
	}
	return nil
}

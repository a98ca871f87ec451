package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/outcome"
)

// client sends requests so that always the same number is under way, as if each
// took the same time, give or take a tenth.
type client struct {
	f    *Fleet
	now  time.Time
	rnd  *rand.Rand
	legs []*timed
	most int // highest number of legs ever seen at one pod
}

type timed struct {
	Lease
	until time.Time
}

// send sends the prompt as soon as fewer than concurrency requests are under
// way, and returns who serves it.
func (c *client) send(t *testing.T, concurrency int, a *Ask) string {
	t.Helper()
	for len(c.legs) >= concurrency {
		first := 0
		for i, l := range c.legs {
			if l.until.Before(c.legs[first].until) {
				first = i
			}
		}
		c.now = c.legs[first].until
		c.legs[first].FirstByte(c.now)
		c.legs[first].End(c.now, outcome.Answered)
		c.legs = append(c.legs[:first], c.legs[first+1:]...)
	}
	l := &timed{until: c.now.Add(time.Duration(270+c.rnd.IntN(60)) * time.Millisecond)}
	if err := c.f.Begin(c.now, a, &l.Lease); err != nil {
		t.Fatal(err)
	}
	c.legs = append(c.legs, l)
	for _, s := range c.f.Snapshot() {
		c.most = max(c.most, s.Inflight)
	}
	return l.Pod().ID
}

// conversation is the prompt of one of many users with the same long system
// prompt: 300 words for all, 200 of its own, in blocks of 16 words.
func conversation(user string, turns int) *text {
	blocks := run("policy", 18)
	blocks = append(blocks, run("user"+user+"-", 13)...)
	for turn := range turns {
		blocks[len(blocks)-1] += fmt.Sprint("-turn", turn) // the last block is never full
	}
	return words(blocks...)
}

// TestSharedSystemPrompt: one long system prompt for everybody must not put
// everybody on one pod, and yet conversations stay where they are cached.
func TestSharedSystemPrompt(t *testing.T) {
	const users, runs = 40, 30
	returned, worst := 0, users
	for seed := range uint64(runs) {
		c := &client{f: fleetOf(t, single(4)), now: epoch, rnd: rand.New(rand.NewPCG(seed, 0))}
		first, served := map[int]string{}, map[string]int{}
		for i := range users {
			first[i] = c.send(t, 16, ask(conversation(fmt.Sprint(seed, "-", i), 1)))
			served[first[i]]++
		}
		if c.most > 9 {
			t.Errorf("seed %d: %d of 16 at one pod, want at most 9", seed, c.most)
		}
		for _, s := range c.f.Snapshot() {
			if n := served[s.ID]; n < 4 || n > 20 {
				t.Errorf("seed %d: %s serves %d of 40, want 4 to 20", seed, s.ID, n)
			}
		}
		back := 0
		for i := range users {
			if c.send(t, 4, ask(conversation(fmt.Sprint(seed, "-", i), 2))) == first[i] {
				back++
			}
		}
		returned += back
		worst = min(worst, back)
	}
	t.Logf("of 40 conversations %.1f return on average, %d at worst", float64(returned)/runs, worst)
	if worst < 28 {
		t.Errorf("%d of 40 conversations return to their pod, want at least 28", worst)
	}
}

// TestShortDistinctPrompts: one after another they reach every idle pod, and
// each finds its pod again, also after a restart.
func TestShortDistinctPrompts(t *testing.T) {
	question := func(i int) *Ask {
		return ask(words(fmt.Sprintf("question %04d about topic %04d please answer briefly", i, i)))
	}
	f := fleetOf(t, single(4))
	served, of17 := map[string]int{}, ""
	for i := 1; i <= 40; i++ {
		l := begin(t, f, question(i))
		served[l.Pod().ID]++
		if i == 17 {
			of17 = l.Pod().ID
		}
		l.End(epoch, outcome.Answered)
	}
	for id, n := range served {
		if n < 3 {
			t.Errorf("%s serves %d of 40", id, n)
		}
	}
	if len(served) < 4 {
		t.Errorf("only %v served", served)
	}
	for _, f := range []*Fleet{f, fleetOf(t, single(4))} {
		for range 10 {
			l := begin(t, f, question(17))
			if l.Pod().ID != of17 {
				t.Errorf("question 17 reached %s, before it was %s", l.Pod().ID, of17)
			}
			l.End(epoch, outcome.Answered)
		}
	}
}

// TestRestartedPod: an engine that comes back with an empty cache gets no
// credit for what it once held.
func TestRestartedPod(t *testing.T) {
	f := fleetOf(t, single(4))
	others := ask(nil).Exclude
	for i := range 4 {
		if i != 1 {
			others.Set(i)
		}
	}
	own := func(i int, more ...string) []string { return append(run(fmt.Sprint("own", i, "-"), 20), more...) }
	for i := range 12 {
		a := ask(words(own(i)...))
		a.Exclude = others
		begin(t, f, a).End(epoch, outcome.Answered)
	}
	restarted, _ := f.find("pod-1")
	f.SetUp(restarted, false, true) // its port refused the probe
	f.SetUp(restarted, true, false)
	reached := 0
	for i := range 12 {
		l := begin(t, f, ask(words(own(i, "more")...)))
		if l.Ref() == restarted {
			reached++
		}
		if l.Depth != 0 {
			t.Errorf("prompt %d: %s is credited with %d blocks", i, l.Pod().ID, l.Depth)
		}
		l.End(epoch, outcome.Answered)
	}
	if reached > 7 {
		t.Errorf("%d of 12 reach the restarted pod", reached)
	}
}

// TestSecondTurn: with idle pods a conversation stays where it began.
func TestSecondTurn(t *testing.T) {
	f := fleetOf(t, single(4))
	for i := range 100 {
		first := begin(t, f, ask(conversation(fmt.Sprint(i), 1)))
		first.End(epoch, outcome.Answered)
		second := begin(t, f, ask(conversation(fmt.Sprint(i), 2)))
		if second.Ref() != first.Ref() || second.Depth != 30 {
			t.Errorf("conversation %d: %s, then %s with depth %d", i, first.Pod().ID, second.Pod().ID, second.Depth)
		}
		second.End(epoch, outcome.Answered)
	}
}

package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var held100 = Overload{Above: 100 * time.Millisecond, Ageing: 0.05, Max: 100}

// TestShortestGoesFirst: what would wait behind a long prompt is held, and goes by
// its own length when the pod has computed that.
func TestShortestGoesFirst(t *testing.T) {
	n := newLine(t, single(1), held100)
	long := n.come("long", 60_000) // 30 s
	for name, tokens := range map[string]int{"c": 3000, "a": 1000, "b": 2000} {
		if w := n.come(name, tokens); !errors.Is(w.err, ErrHeld) {
			t.Errorf("%s: %v", name, w.err)
		}
	}
	if n.Held() != 3 {
		t.Errorf("%d are held", n.Held())
	}
	n.want("long")
	n.first(long)
	n.want("long a")
	n.first(n.sent[1])
	n.want("long a b")
	n.end(n.sent[2]) // a leg that ends without a first byte is no load either
	n.want("long a b c")
	if n.Held() != 0 || len(n.held.legs) != 0 || n.held.turn != nil {
		t.Errorf("left: %+v", n.held)
	}
}

// TestShortWaitIsNoReason: below the threshold legs queue at their pod.
func TestShortWaitIsNoReason(t *testing.T) {
	n := newLine(t, single(1), held100)
	n.come("a", 150)
	n.come("b", 50) // behind 75 ms
	n.want("a b")
	n.come("c", 50) // the wait is 100 ms, not more
	n.want("a b c")
	if w := n.come("d", 1); !errors.Is(w.err, ErrHeld) {
		t.Errorf("d: %v", w.err)
	}
}

// TestTimeAloneReleases: a pod from which nothing is heard counts as done when it
// should be, and no earlier.
func TestTimeAloneReleases(t *testing.T) {
	n := newLine(t, single(1), held100)
	n.come("silent", 2000) // 1 s
	n.come("a", 10)
	if want := epoch.Add(900 * time.Millisecond); !n.armed || !n.alarm.Equal(want) {
		t.Errorf("the alarm is for %v, want %v", n.alarm, want)
	}
	n.pass(899 * time.Millisecond)
	n.want("silent")
	n.pass(time.Millisecond)
	n.want("silent a")
}

// TestWholeAnswersRelease: so do answers of which the first byte will not be seen.
func TestWholeAnswersRelease(t *testing.T) {
	n := newLine(t, single(1), held100)
	for _, name := range []string{"a", "b"} { // both count as computed after 1 s
		a := ttft(words(name))
		a.Tokens, a.Whole = 2000, true
		if err := n.Begin(n.now, a, new(Lease)); err != nil {
			t.Fatal(err)
		}
	}
	n.come("c", 10)
	n.pass(999 * time.Millisecond)
	n.want("")
	n.pass(time.Millisecond)
	n.want("c")
}

// TestNewcomersDoNotPush: whoever comes when a pod is about to go to one that waits
// stands behind it, unless it is shorter.
func TestNewcomersDoNotPush(t *testing.T) {
	n := newLine(t, single(1), held100)
	long := n.come("long", 60_000)
	n.come("a", 1000)
	long.lease.FirstByte(n.now) // a has the turn, and has not used it yet
	if n.turn == nil {
		t.Fatal("nobody has the turn")
	}
	later := &waiter{name: "later", ask: ttft(words("later"))}
	later.ask.Tokens, later.ask.Hold = 1500, &Hold{Turn: func() { n.turn = later.ask.Hold }}
	n.legs[later.ask.Hold] = later
	n.begin(later)
	if !errors.Is(later.err, ErrHeld) {
		t.Fatalf("later: %v", later.err)
	}
	shorter := &waiter{name: "shorter", ask: ttft(words("shorter"))}
	shorter.ask.Tokens, shorter.ask.Hold = 500, &Hold{Turn: func() { n.turn = shorter.ask.Hold }}
	n.begin(shorter)
	n.want("long shorter")
	n.settle() // and a, whose pod is taken, waits on
	n.first(shorter)
	n.first(n.sent[2])
	n.want("long shorter a later")
}

// TestLateAlarm: whoever comes when the alarm should have rung stands behind those for
// whom it is.
func TestLateAlarm(t *testing.T) {
	n := newLine(t, single(1), held100)
	n.come("silent", 2000) // 1 s
	n.come("a", 300)
	n.armed, n.now = false, n.now.Add(5*time.Second)
	if w := n.come("later", 9000); !errors.Is(w.err, ErrHeld) {
		t.Errorf("later: %v", w.err)
	}
	n.want("silent a")
}

// TestLeaving: who leaves is out at once, and hands on a turn that it had.
func TestLeaving(t *testing.T) {
	n := newLine(t, single(1), held100)
	long := n.come("long", 60_000)
	a, b := n.come("a", 1000), n.come("b", 2000)
	n.come("c", 3000)
	n.leave(b)
	if n.Held() != 2 {
		t.Errorf("%d are held", n.Held())
	}
	n.leave(b) // again, which is nothing
	long.lease.FirstByte(n.now)
	if n.legs[n.turn] != a {
		t.Fatal("it is not a's turn")
	}
	n.turn = nil
	n.leave(a)
	n.want("long c")
	n.Leave(n.now, new(Hold)) // one that was never held
}

// TestTooMany: beyond the bound legs are refused; a full pod holds as a busy one.
func TestTooMany(t *testing.T) {
	pods := single(1)
	pods[0].MaxConns, pods[0].Limited = 1, true
	o := held100
	o.Max = 2
	n := newLine(t, pods, o)
	first := n.come("first", 10)
	n.first(first) // it now decodes: the pod has nothing to compute, and no room
	n.come("a", 20)
	n.come("b", 10)
	if w := n.come("c", 1); !errors.Is(w.err, ErrCrowded) {
		t.Errorf("c: %v", w.err)
	}
	n.end(first)
	n.want("first b")
	n.end(n.sent[1])
	n.want("first b a")
	// Who may not be held is refused as ever.
	if err := n.Begin(n.now, ttft(words("d")), new(Lease)); !errors.Is(err, ErrAllFull) {
		t.Error(err)
	}
}

// TestPodsComeAndGo: a pod that comes, comes up, is undrained or learns of the model
// takes those that are held; when there is none left they are refused.
func TestPodsComeAndGo(t *testing.T) {
	for name, change := range map[string]func(*line){
		"comes":      func(n *line) { apply(n.t, n.Fleet, single(2)) },
		"comes up":   func(n *line) { ref, _ := n.find("pod-1"); n.SetUp(ref, true, false) },
		"undrained":  func(n *line) { n.Drain("pod-1", false) },
		"serves now": func(n *line) { ref, _ := n.find("pod-1"); n.SetModels(ref, []string{"m"}) },
		"turned off": func(n *line) { n.SetOverload(Overload{}) },
	} {
		pods := single(2)
		switch name {
		case "comes", "turned off":
			pods = pods[:1]
		case "comes up":
			pods[1].Down = true
		case "undrained":
			pods[1].Draining = true
		case "serves now":
			pods[0].Models = []string{"m"}
		}
		n := newLine(t, pods, held100)
		if name == "serves now" {
			ref, _ := n.find("pod-1")
			n.SetModels(ref, []string{"other"})
		}
		join := func(who string, tokens int) {
			a := ttft(words(who))
			a.Tokens, a.Hold, a.Model = tokens, new(Hold), []byte("m")
			n.join(who, a)
		}
		join("long", 60_000)
		join("a", 1000)
		n.want("long")
		change(n)
		n.settle()
		n.want("long a")
	}
	n := newLine(t, single(2), held100)
	n.come("long", 60_000)
	n.come("long2", 60_000)
	a := n.come("a", 1000)
	ref, _ := n.find("pod-0")
	n.SetUp(ref, false, true)
	n.settle()
	if !errors.Is(a.err, ErrHeld) {
		t.Errorf("a pod is left, and a is told %v", a.err)
	}
	apply(t, n.Fleet, single(1))
	n.settle()
	if !errors.Is(a.err, ErrNoneUp) || n.Held() != 0 {
		t.Errorf("no pod is up, and a is told %v", a.err)
	}
}

// TestPassedOver: whoever waits for the pod that has its prompt does not keep others
// from a free one.
func TestPassedOver(t *testing.T) {
	n := newLine(t, single(2), held100)
	ask := func(who string, tokens int, not ...Ref) *waiter {
		a := ttft(words(who))
		if who == "chat" || who == "turn" {
			a = ttft(words(run("chat", tokens/16)...))
		}
		a.Tokens, a.Hold = tokens, new(Hold)
		for _, ref := range not {
			a.Exclude.Set(int(ref.Slot))
		}
		return n.join(who, a)
	}
	chat := ask("chat", 80_000)
	home := chat.lease.Ref()
	n.end(chat)
	y := ask("y", 1000, home)
	other := y.lease.Ref()
	x := ask("x", 60_000, other)
	turn := ask("turn", 80_160) // of which home lacks 160
	long := ask("long", 70_000)
	n.want("chat y x")
	if !errors.Is(turn.err, ErrHeld) || !errors.Is(long.err, ErrHeld) {
		t.Fatalf("%v, %v", turn.err, long.err)
	}
	n.first(y)
	n.want("chat y x long")
	n.first(x)
	n.want("chat y x long turn")
	if long.lease.Ref() != other || turn.lease.Ref() != home || turn.lease.Depth != 5000 {
		t.Errorf("long at %v, turn at %v with depth %d", long.lease.Ref(), turn.lease.Ref(), turn.lease.Depth)
	}
}

// TestOrderIsKept: equals go in the order in which they came.
func TestOrderIsKept(t *testing.T) {
	n := newLine(t, single(1), held100)
	last := n.come("x", 60_000)
	var want []string
	for i := range 20 {
		name := fmt.Sprint("a", i)
		n.come(name, 1000)
		want = append(want, name)
	}
	for range want {
		n.first(last)
		last = n.sent[len(n.sent)-1]
	}
	if got := strings.Fields(n.order())[1:]; !slices.Equal(got, want) {
		t.Errorf("sent %v", got)
	}
}

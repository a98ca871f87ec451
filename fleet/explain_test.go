package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// TestExplain shows every pod of the role with the reason why it is left out.
func TestExplain(t *testing.T) {
	pods := single(6)
	pods[1].Down = true
	pods[2].Draining = true
	pods[3].MaxConns, pods[3].Limited = 0, true
	pods[5].Roles = RoleSet(0).With(Decode)
	f := fleetOf(t, pods)
	prompt := words(run("w", 10)...)
	a := ask(prompt)
	a.Exclude.Set(4)
	l := begin(t, f, a)
	if l.Pod().ID != "pod-0" {
		t.Fatalf("picked %s", l.Pod().ID)
	}
	ref, _ := f.find("pod-1")
	f.index.Register(epoch, ref.Slot, words(run("w", 5)...), nil)

	all, picked := f.Explain(epoch, a)
	var lines []string
	for _, c := range all {
		lines = append(lines, fmt.Sprintf("%s depth %d cache %v load %v sticky %v locality %v score %v %q",
			c.ID, c.Depth, c.Cache, c.Load, c.Sticky, c.Locality, c.Score, c.Filtered))
	}
	want := []string{
		`pod-0 depth 10 cache 100 load 0 sticky 0 locality 0 score 60 ""`,
		`pod-1 depth 5 cache 50 load 100 sticky 0 locality 0 score 60 "down"`,
		`pod-2 depth 0 cache 0 load 100 sticky 0 locality 0 score 30 "draining"`,
		`pod-3 depth 0 cache 0 load 0 sticky 0 locality 0 score 0 "at maxConns"`,
		`pod-4 depth 0 cache 0 load 100 sticky 0 locality 0 score 30 "excluded"`,
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if picked != 0 {
		t.Errorf("picked %d", picked)
	}
	if all, picked := f.Explain(epoch, &Ask{Role: Prefill}); len(all) != 0 || picked != -1 {
		t.Errorf("%v, %d for a role that nobody has", all, picked)
	}
	a.Exclude.Set(0)
	if _, picked := f.Explain(epoch, a); picked != -1 {
		t.Errorf("picked %d where there is nobody", picked)
	}
}

// TestExplainSaysWhatBeginDoes, and changes nothing.
func TestExplainSaysWhatBeginDoes(t *testing.T) {
	for _, strategy := range []selection.Strategy{
		selection.CacheAware, selection.LeastLoaded, selection.RoundRobin, selection.Random,
	} {
		t.Run(strategy.String(), func(t *testing.T) {
			f := fleetOf(t, single(5))
			for i := range 200 {
				a := ask(nil)
				if i%3 > 0 {
					a = ask(words(run(fmt.Sprint("prompt", i%17, "-"), 3+i%29)...))
				}
				a.Strategy, a.Session = strategy, uint64(i%11)
				before := fmt.Sprint(f.Snapshot(), len(f.sessions.byKey))
				var all []Candidate
				picked := 0
				for range 2 {
					all, picked = f.Explain(epoch, a)
				}
				if after := fmt.Sprint(f.Snapshot(), len(f.sessions.byKey)); after != before {
					t.Fatalf("explaining changed\n%s to\n%s", before, after)
				}
				l := begin(t, f, a)
				if c := all[picked]; c.Ref != l.Ref() || c.Depth != l.Depth || c.ID != l.Pod().ID {
					t.Fatalf("request %d: explained %s with depth %d, picked %s with %d", i, c.ID, c.Depth, l.Pod().ID, l.Depth)
				}
				if i%4 > 0 {
					l.End(epoch, outcome.Answered)
				}
			}
		})
	}
}

// TestExplainSaysWhatBeginDoesWithPairs: the decode pod of a pair is explained
// as it is picked, with the prefill leg begun at a pod that may serve both.
func TestExplainSaysWhatBeginDoesWithPairs(t *testing.T) {
	for _, strategy := range []selection.Strategy{
		selection.CacheAware, selection.ExpectedTTFT, selection.LeastLoaded, selection.RoundRobin, selection.Random,
	} {
		t.Run(strategy.String(), func(t *testing.T) {
			pods := single(5)
			for i := range pods {
				pods[i].Roles = RoleSet(0).With(Prefill).With(Decode)
				pods[i].MaxConns, pods[i].Limited = 1+i, i%2 == 0
			}
			f := fleetOf(t, pods)
			for i := range 200 {
				a := ask(words(run(fmt.Sprint("prompt", i%17, "-"), 3+i%29)...))
				a.Strategy, a.Role = strategy, Prefill
				b := ask(words(run(fmt.Sprint("prompt", i%17, "-"), 3+i%29)...))
				b.Strategy, b.Role, b.HasNear, b.Weights = strategy, Decode, true, decodeWeights
				if i%2 == 0 {
					a.Toward = b
				}
				all, picked := f.Explain(epoch, a)
				b.Near, b.AssumeNear = all[picked].Ref, true
				before := fmt.Sprint(f.Snapshot())
				near, second := f.Explain(epoch, b)
				if after := fmt.Sprint(f.Snapshot()); after != before {
					t.Fatalf("explaining changed\n%s to\n%s", before, after)
				}
				one := begin(t, f, a)
				two := begin(t, f, b)
				if one.Ref() == two.Ref() {
					t.Fatalf("request %d: both legs at %s", i, one.Pod().ID)
				}
				if one.Ref() != all[picked].Ref || two.Ref() != near[second].Ref {
					t.Fatalf("request %d: explained %s and %s, picked %s and %s", i, all[picked].ID, near[second].ID, one.Pod().ID, two.Pod().ID)
				}
				one.End(epoch, outcome.Answered)
				if i%4 > 0 {
					two.End(epoch, outcome.Answered)
				}
				if i%16 == 0 { // else the limited pods fill up
					f = fleetOf(t, pods)
				}
			}
		})
	}
}

// TestPairOfOne: a pod hands over to itself only where there is no other.
func TestPairOfOne(t *testing.T) {
	pods := single(2)
	for i := range pods {
		pods[i].Roles = RoleSet(0).With(Prefill).With(Decode)
	}
	f := fleetOf(t, pods)
	for _, alone := range []bool{false, true} {
		a, b := ask(words(run("w", 9)...)), ask(words(run("w", 9)...))
		a.Role, b.Role = Prefill, Decode
		one := begin(t, f, a)
		if alone {
			for _, p := range pods {
				f.Drain(p.ID, p.ID != one.Pod().ID)
			}
		}
		b.Near, b.HasNear = one.Ref(), true
		all, picked := f.Explain(epoch, b)
		two := begin(t, f, b)
		if (two.Ref() == one.Ref()) != alone || all[picked].Ref != two.Ref() {
			t.Errorf("alone %v: prefill at %s, decode at %s, explained %s", alone, one.Pod().ID, two.Pod().ID, all[picked].ID)
		}
		for _, c := range all {
			if c.Ref == one.Ref() && (c.Filtered == "excluded") == alone {
				t.Errorf("alone %v: the prefill pod is filtered for %q", alone, c.Filtered)
			}
		}
		one.End(epoch, outcome.Answered)
		two.End(epoch, outcome.Answered)
	}
}

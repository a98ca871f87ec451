package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/outcome"
)

func TestApplyKeepsWhatIsKnown(t *testing.T) {
	f := fleetOf(t, single(3))
	prompt := words(run("w", 20)...)
	l := begin(t, f, ask(prompt))
	id, ref := l.Pod().ID, l.Ref()
	other, _ := f.find("pod-0")
	if id == "pod-0" {
		other, _ = f.find("pod-1")
	}
	f.SetUp(other, false, false)

	pods := single(3)
	slices.Reverse(pods)
	for i := range pods {
		pods[i].Node, pods[i].Zone, pods[i].Down = "rack", "east", true
		pods[i].MaxConns, pods[i].Limited = 7, true
	}
	d := apply(t, f, pods)
	if len(d.Added)+len(d.Removed) > 0 {
		t.Errorf("changed %+v", d)
	}
	s := of(t, f, id)
	if s.Ref != ref || !s.Up || s.Inflight != 1 || s.Blocks != 20 || s.MaxConns != 7 || s.Node != "rack" || s.Zone != "east" {
		t.Errorf("the pod that is kept is %+v", s)
	}
	if now, _ := f.find(fmt.Sprint("pod-", other.Slot)); now != other {
		t.Errorf("ref %v became %v", other, now)
	}
	for _, s := range f.Snapshot() {
		if s.Ref == other && s.Up {
			t.Error("a pod that was down came up by itself")
		}
	}
	if got := f.Snapshot()[0].ID; got != "pod-2" {
		t.Errorf("first pod %s, want the first of the new order", got)
	}
	l.End(epoch, outcome.Answered)
	if n := of(t, f, id).Inflight; n != 0 {
		t.Errorf("%d legs left", n)
	}
}

func TestApplyDiff(t *testing.T) {
	f := fleetOf(t, single(3))
	pods := single(4)[1:] // pod-0 goes, pod-3 comes
	pods[1].URL = "http://10.9.9.9:8000"
	before, _ := f.find("pod-2")
	d := apply(t, f, pods)
	if got := strings.Join(d.Added, " "); got != "pod-2 pod-3" {
		t.Errorf("added %s", got)
	}
	if got := strings.Join(d.Removed, " "); got != "pod-0 pod-2" {
		t.Errorf("removed %s", got)
	}
	if after, _ := f.find("pod-2"); after == before {
		t.Error("another URL under the same id is another pod, but the ref stayed")
	}
	if _, ok := f.find("pod-0"); ok {
		t.Error("pod-0 is still there")
	}
}

// TestSlotIsKeptForItsLegs: a removed pod's slot goes to nobody before its last
// leg has ended and the index has forgotten it.
func TestSlotIsKeptForItsLegs(t *testing.T) {
	f := fleetOf(t, single(1))
	prompt := words(run("w", 20)...)
	l := begin(t, f, ask(prompt))
	old := l.Ref()
	apply(t, f, nil)
	if n := f.index.PodBlocks(old.Slot); n != 0 {
		t.Errorf("%d blocks of a removed pod", n)
	}
	if err := f.Begin(epoch, ask(prompt), &Lease{}); err == nil {
		t.Error("a removed pod was picked")
	}
	// A registration that was under way when the pod went comes late.
	f.index.Register(epoch, old.Slot, prompt, nil)

	next := single(2)[1:]
	apply(t, f, next)
	if ref, _ := f.find("pod-1"); ref.Slot == old.Slot {
		t.Error("the slot was given away with a leg on it")
	}
	f.SetUp(old, false, true) // late news of the removed pod
	if !of(t, f, "pod-1").Up {
		t.Error("it reached another pod")
	}

	l.End(epoch, outcome.Answered)
	if n := f.index.PodBlocks(old.Slot); n != 0 {
		t.Errorf("%d blocks left in a slot that is free", n)
	}
	apply(t, f, single(2))
	ref, _ := f.find("pod-0")
	if ref.Slot != old.Slot || ref.Gen == old.Gen {
		t.Errorf("ref %v after %v, want the same slot in another generation", ref, old)
	}
	l.End(epoch, outcome.Answered) // late and twice
	f.SetUp(old, false, true)
	if s := of(t, f, "pod-0"); s.Inflight != 0 || !s.Up {
		t.Errorf("the successor is %+v", s)
	}
}

// TestPodComesBack: removed and wanted again while legs still run on it, it is
// the same engine with the same load, but starts anew in the rest.
func TestPodComesBack(t *testing.T) {
	pods := single(1)
	pods[0].MaxConns, pods[0].Limited = 1, true
	f := fleetOf(t, pods)
	l := begin(t, f, ask(words("a", "b")))
	f.Drain("pod-0", true)
	apply(t, f, nil)
	d := apply(t, f, pods)
	if !slices.Equal(d.Added, []string{"pod-0"}) {
		t.Errorf("added %v", d.Added)
	}
	if s := of(t, f, "pod-0"); s.Inflight != 1 || s.Draining || s.Ref != l.Ref() || s.Blocks != 0 {
		t.Errorf("it came back as %+v", s)
	}
	if err := f.Begin(epoch, ask(nil), &Lease{}); err == nil {
		t.Error("more legs than maxConns")
	}
	l.End(epoch, outcome.Answered)
	begin(t, f, ask(nil)).End(epoch, outcome.Answered)
}

func TestDraining(t *testing.T) {
	pods := single(2)
	pods[0].Draining = true
	f := fleetOf(t, pods)
	draining := func(want bool) {
		t.Helper()
		if got := of(t, f, "pod-0").Draining; got != want {
			t.Errorf("draining %v, want %v", got, want)
		}
	}
	draining(true)
	for range 4 {
		if id := begin(t, f, ask(nil)).Pod().ID; id != "pod-1" {
			t.Errorf("picked %s, which drains", id)
		}
	}
	pods[0].Draining = false
	apply(t, f, pods) // nobody has decided otherwise
	draining(false)
	f.Drain("pod-0", true)
	draining(true)
	apply(t, f, pods)
	draining(true)
	f.Drain("pod-0", false)
	pods[0].Draining = true
	apply(t, f, pods)
	draining(false)
	pods[0].URL = "http://elsewhere:1"
	apply(t, f, pods) // another pod: the word on the old one does not count
	draining(true)
	if f.Drain("nobody", true) {
		t.Error("drained a pod that is not there")
	}
}

func TestApplyRefuses(t *testing.T) {
	edit := func(change func([]Pod) []Pod) []Pod { return change(single(3)) }
	for name, tc := range map[string]struct {
		pods []Pod
		want string
	}{
		"too many":       {single(257), "257 pods, at most 256"},
		"same id twice":  {edit(func(p []Pod) []Pod { p[2].ID = "pod-0"; return p }), `pods 0 and 2 have the same id "pod-0"`},
		"no id":          {edit(func(p []Pod) []Pod { p[1].ID = ""; return p }), "pod 1 (http://10.0.0.1:8000) has no id"},
		"no role":        {edit(func(p []Pod) []Pod { p[1].Roles = 0; return p }), `pod "pod-1": want one or more of the roles`},
		"unknown role":   {edit(func(p []Pod) []Pod { p[1].Roles = p[1].Roles.With(Role(5)); return p }), `pod "pod-1": want one or more`},
		"negative limit": {edit(func(p []Pod) []Pod { p[1].MaxConns, p[1].Limited = -1, true; return p }), "maxConns -1 is out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(t, single(2))
			before := fmt.Sprint(f.Snapshot())
			_, err := f.Apply(epoch, tc.pods)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if fits := f.Fits(tc.pods); fmt.Sprint(fits) != fmt.Sprint(err) {
				t.Errorf("Fits says %v, Apply %v", fits, err)
			}
			if after := fmt.Sprint(f.Snapshot()); after != before {
				t.Errorf("changed from %s to %s", before, after)
			}
		})
	}
}

// TestFullHouse: a fleet of 256 can be replaced at once where nothing runs, and
// else is refused as a whole.
func TestFullHouse(t *testing.T) {
	f := fleetOf(t, single(256))
	prompt := words(run("w", 5)...)
	begin(t, f, ask(prompt)).End(epoch, outcome.Answered)
	begin(t, f, ask(nil)).End(epoch, outcome.Answered)

	moved := single(256)
	for i := range moved {
		moved[i].URL += "/v2"
	}
	apply(t, f, moved)
	if n := f.index.Blocks(); n != 0 {
		t.Errorf("%d blocks of pods that are gone", n)
	}
	l := begin(t, f, ask(nil))
	before := fmt.Sprint(f.Snapshot())
	if _, err := f.Apply(epoch, single(256)); err == nil || !strings.Contains(err.Error(), "256 new pods, but only 255 of 256 slots are free") {
		t.Errorf("error %v", err)
	}
	if err := f.Fits(single(256)); err == nil || !strings.Contains(err.Error(), "256 new pods, but only 255 of 256 slots are free") {
		t.Errorf("Fits says %v", err)
	}
	if after := fmt.Sprint(f.Snapshot()); after != before {
		t.Error("a refused change changed something")
	}
	l.End(epoch, outcome.Answered)
	if err := f.Fits(single(256)); err != nil {
		t.Errorf("Fits says %v", err)
	}
	apply(t, f, single(256))
}

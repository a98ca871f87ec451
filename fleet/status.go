package fleet

import "github.com/calinix/caddy-calinix/selection"

// Status is what is known of one pod.
type Status struct {
	Ref      Ref
	ID, URL  string
	Roles    RoleSet
	Up       bool
	Draining bool
	// StartsDown is the configuration's word: the pod was to count as down
	// until it is marked up.
	StartsDown bool
	// Inflight is the number of legs that hold the pod in any role; MaxConns is
	// its limit, if Limited. Running is how many of them are on their way, by
	// role.
	Inflight int
	Running  [Roles]int
	MaxConns int
	Limited  bool
	// Backlog is what the pod has to compute and to decode, as far as it is
	// known from what was sent to it and what has come back.
	Backlog selection.Backlog
	// Blocks is how many blocks the index lists for the pod.
	Blocks     int
	Node, Zone string
	// Models are the names of the models that the pod serves, none for any;
	// Declared says that the configuration has named them.
	Models   []string
	Declared bool
	// Data is that of the Pod.
	Data any
	// Cache is how many tokens the pod's cache is taken to hold, 0 for any
	// number; Room is how many blocks the index may know of it for that, and
	// Stale says that it delivers less of them than was expected: see Compare.
	Cache int64
	Room  int
	Stale bool
}

// Snapshot returns the pods in the order of the configuration, all as of the
// same moment, but for Blocks.
func (f *Fleet) Snapshot() []Status {
	f.mu.Lock()
	all := make([]Status, 0, len(f.byID))
	for _, slot := range f.ranked() {
		s := &f.slots[slot]
		st := Status{
			Ref: Ref{slot, s.gen}, ID: s.pod.ID, URL: s.pod.URL, Roles: s.pod.Roles,
			Up: f.up.Has(int(slot)), Draining: f.draining.Has(int(slot)), StartsDown: s.pod.Down,
			Inflight: int(f.view.Inflight(slot)), MaxConns: s.pod.MaxConns, Limited: s.pod.Limited,
			Node: s.pod.Node, Zone: s.pod.Zone, Backlog: f.view.Backlog(slot),
			Models: s.served(), Declared: len(s.pod.Models) > 0, Data: s.pod.Data,
			Cache: f.tokensOf(s), Room: s.room, Stale: s.trust.stale,
		}
		for r, n := range s.running {
			st.Running[r] = int(n)
		}
		all = append(all, st)
	}
	f.mu.Unlock()
	for i := range all {
		all[i].Blocks = f.index.PodBlocks(all[i].Ref.Slot)
	}
	return all
}

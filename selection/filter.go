package selection

import "github.com/calinix/caddy-calinix/index"

// State holds what decides whether a pod may be picked at all, as one bit a
// slot. Package fleet fills it for the role that is asked for.
type State struct {
	Role     index.Bitmap // pods that serve the role
	Other    index.Bitmap // pods that do not serve the model
	Up       index.Bitmap // pods that are up, as far as health knows
	Draining index.Bitmap // pods that finish what they have and get nothing new
	Full     index.Bitmap // pods at their maxConns
	Excluded index.Bitmap // pods that this request must not go to (again)
}

// Filter returns the candidates: the pods of the role that serve the model, are
// up, not draining, below their limit and not excluded. About ten word operations.
func Filter(s *State) index.Bitmap { return Usable(s).AndNot(s.Full) }

// Usable is Filter without the limit: also the pods that are only too busy
// just now. It tells a request that comes too early from one that cannot be
// served.
func Usable(s *State) index.Bitmap {
	return s.Role.And(s.Up).AndNot(s.Other).AndNot(s.Draining).AndNot(s.Excluded)
}

// Reason says why Filter left the pod in the slot out, in the words that the
// admin route shows: "" for a candidate, else the first of "other role",
// "other model", "excluded", "down", "draining", "at maxConns" that holds.
func Reason(s *State, slot int) string {
	switch {
	case !s.Role.Has(slot):
		return "other role"
	case s.Other.Has(slot):
		return "other model"
	case s.Excluded.Has(slot):
		return "excluded"
	case !s.Up.Has(slot):
		return "down"
	case s.Draining.Has(slot):
		return "draining"
	case s.Full.Has(slot):
		return "at maxConns"
	default:
		return ""
	}
}

package fleet

import "strconv"

// Role is what a pod does for a request.
type Role uint8

const (
	// Single pods serve whole requests.
	Single Role = iota
	// Prefill pods compute the prompt and hand it over.
	Prefill
	// Decode pods take a computed prompt over and generate.
	Decode
)

// Roles is the number of roles, for arrays indexed by Role.
const Roles = 3

var roleNames = [Roles]string{"single", "prefill", "decode"}

// String returns the role's name as metrics and errors spell it.
func (r Role) String() string {
	if int(r) < Roles {
		return roleNames[r]
	}
	return "role(" + strconv.Itoa(int(r)) + ")"
}

// RoleSet is a set of roles; the zero value is empty.
type RoleSet uint8

// With returns the set and r.
func (s RoleSet) With(r Role) RoleSet { return s | 1<<r }

// Has says whether r is in the set.
func (s RoleSet) Has(r Role) bool { return s>>r&1 != 0 }

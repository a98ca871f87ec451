package fleet

import "errors"

// What Begin fails with; test with errors.Is. The errors that it returns name
// the role too and can be shown to clients.
var (
	// ErrNoneUp: no pod of the role is up and takes new requests.
	ErrNoneUp = errors.New("down or draining")
	// ErrAllFull: pods of the role are up, but each is at its maxConns.
	ErrAllFull = errors.New("at maxConns")
	// ErrNoneLeft: pods of the role are up, but all were excluded.
	ErrNoneLeft = errors.New("tried already")
	// ErrNoModel: there are pods of the role, but none serves the model.
	ErrNoModel = errors.New("of other models")
)

// UnavailableError says why no pod of a role could be picked.
type UnavailableError struct {
	Role  Role
	Cause error // ErrNoneUp, ErrAllFull, ErrNoneLeft or ErrNoModel
}

// Error names the role and the cause.
func (e *UnavailableError) Error() string {
	switch e.Cause {
	case ErrAllFull:
		return "every " + e.Role.String() + " pod that is up is at its maxConns"
	case ErrNoModel:
		return "no " + e.Role.String() + " pod serves this model"
	case ErrNoneLeft:
		return "no further " + e.Role.String() + " pod is up"
	default:
		return "no " + e.Role.String() + " pod takes requests: all are down or draining"
	}
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// unavailable holds the errors ready made: when a fleet is full, refusing must
// cost nothing.
var unavailable = func() map[error]*[Roles]UnavailableError {
	all := map[error]*[Roles]UnavailableError{}
	for _, cause := range []error{ErrNoneUp, ErrAllFull, ErrNoneLeft, ErrNoModel} {
		all[cause] = &[Roles]UnavailableError{}
		for r := range Role(Roles) {
			all[cause][r] = UnavailableError{r, cause}
		}
	}
	return all
}()

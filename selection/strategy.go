package selection

import (
	"fmt"
	"strings"
)

// Strategy says how candidates are scored.
type Strategy uint8

const (
	// CacheAware weighs four factors: cached prefix, load, session, locality.
	CacheAware Strategy = iota
	// LeastLoaded takes the pod with the highest load factor.
	LeastLoaded
	// RoundRobin takes the pods in turn, in the order of the configuration.
	RoundRobin
	// Random takes any pod, each as likely as the other.
	Random
	// ExpectedTTFT takes the pod at which the first byte is expected soonest,
	// by what it holds of the prompt and what it has to compute before.
	ExpectedTTFT
	// SessionAffinity takes the pod to which the session belongs on a ring of
	// hashes, as long as that pod has not too much to do already.
	SessionAffinity
	// Prefix does the same with the beginning of the prompt.
	Prefix
	// PowerOfTwo draws two pods and takes the one with less to do.
	PowerOfTwo
)

// Hashes says whether the strategy looks a hash up on a ring.
func (s Strategy) Hashes() bool { return s == SessionAffinity || s == Prefix }

// Draws says whether the strategy needs a fresh random number.
func (s Strategy) Draws() bool { return s == Random || s == PowerOfTwo }

// TieBreak says which of several candidates with the same score is picked.
type TieBreak uint8

const (
	// ByPrompt orders equals by a fixed function of the prompt and the pod's
	// id: the same prompt finds the same pod, different prompts spread evenly,
	// and a pod that comes or goes moves only the prompts that it wins or
	// loses. Requests without a prompt take equals in turn.
	ByPrompt TieBreak = iota
	// ByPodID takes the pod that comes first in the configuration, for every
	// request.
	ByPodID
)

var (
	strategies = [...]string{"cacheAware", "leastLoaded", "roundRobin", "random", "expectedTTFT", "sessionAffinity", "prefix", "powerOfTwo"}
	tieBreaks  = [...]string{"prompt", "podId"}
)

// String returns the name as YAML and the header x-calinix-route-policy spell
// it.
func (s Strategy) String() string { return nameOf(strategies[:], int(s)) }

// String returns the name as YAML spells it.
func (t TieBreak) String() string { return nameOf(tieBreaks[:], int(t)) }

// ParseStrategy reads a strategy's name, as camelCase or as snake_case.
func ParseStrategy(name string) (Strategy, error) {
	i, err := parse("strategy", strategies[:], name)
	return Strategy(i), err
}

// ParseTieBreak reads the name of a tie-break, as camelCase or as snake_case.
func ParseTieBreak(name string) (TieBreak, error) {
	i, err := parse("tieBreak", tieBreaks[:], name)
	return TieBreak(i), err
}

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

func parse(what string, names []string, name string) (int, error) {
	for i, n := range names {
		if name == n || name == snake(n) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s %q: unknown, want one of %s", what, name, strings.Join(names, ", "))
}

// snake turns camelCase into snake_case; capitals in a row are one word.
func snake(camel string) string {
	var b strings.Builder
	before := 'A'
	for _, r := range camel {
		capital := r >= 'A' && r <= 'Z'
		if capital && !(before >= 'A' && before <= 'Z') {
			b.WriteByte('_')
		}
		before = r
		if capital {
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

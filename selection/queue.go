package selection

import (
	"math"

	"github.com/calinix/caddy-calinix/index"
)

// Load is what one leg weighs at its pod, in estimated tokens of the engine.
type Load struct {
	// Prompt is the length of the prompt: what the leg occupies of the pod's
	// KV cache as long as it runs.
	Prompt int64
	// Uncached is the part of the prompt that the pod computes before the
	// first byte of its answer. It was estimated at the pick and stays so.
	Uncached int64
}

// queues is what is known of the pods' work from what was sent to them and what
// has come back, one array a quantity. Only the strategy ExpectedTTFT reads it;
// it is kept for all, so that strategies can share a fleet. Sums are of
// integers, also where they are kept as what scoring multiplies: when all legs have
// ended nothing is left of rounding. 10 KiB.
type queues struct {
	uncached [Slots]int64   // of the legs whose first byte has not come
	empty    [Slots]int64   // when these will be computed, on the caller's clock
	prompts  [Slots]float64 // of all legs
	decoding [Slots]float64 // the prompts of the legs past their first byte
	decoders [Slots]float64 // the number of these
}

// Clock readings are in nanoseconds from an origin of the caller's choice.
const second = 1e9

// maxWait keeps sums with a clock reading from overflowing: 30 years.
const maxWait = 30 * 365 * 24 * 3600 * second

// WorkTime returns in how many nanoseconds so many tokens are computed, rate tokens
// a second.
func WorkTime(tokens int64, rate float64) int64 {
	return int64(math.Min(float64(tokens)*second/rate, maxWait))
}

// Queue counts a leg that is sent to the pod at now: its part of the prompt is
// computed behind those before it, rate tokens a second.
func (v *View) Queue(slot uint8, l Load, now int64, rate float64) {
	q := &v.queues
	q.prompts[slot] += float64(l.Prompt)
	q.uncached[slot] += l.Uncached
	q.empty[slot] = min(max(q.empty[slot], now)+WorkTime(l.Uncached, rate), now+maxWait)
}

// Computed takes the prompt of a queued leg off what the pod has to compute, as
// of now: its first byte has come, or the leg has failed. The estimate of when
// the rest will be done starts anew, so that it cannot drift from the truth for
// longer than from one first byte to the next.
func (v *View) Computed(slot uint8, l Load, now int64, rate float64) {
	q := &v.queues
	q.uncached[slot] -= l.Uncached
	q.empty[slot] = now + WorkTime(q.uncached[slot], rate)
}

// Decode counts n more legs with prompts like l's that generate at the pod, or
// fewer if n is negative.
func (v *View) Decode(slot uint8, l Load, n int64) {
	v.queues.decoding[slot] += float64(n * l.Prompt)
	v.queues.decoders[slot] += float64(n)
}

// Unqueue takes away what is left of a leg that was computed.
func (v *View) Unqueue(slot uint8, l Load) { v.queues.prompts[slot] -= float64(l.Prompt) }

// ClearQueue makes the pod in the slot one that nothing was ever sent to.
func (v *View) ClearQueue(slot uint8) {
	q := &v.queues
	q.uncached[slot], q.empty[slot], q.prompts[slot] = 0, 0, 0
	q.decoding[slot], q.decoders[slot] = 0, 0
}

// Wait returns how many nanoseconds from now on the pod still computes what it has
// got.
func (v *View) Wait(slot uint8, now int64) int64 { return max(0, v.queues.empty[slot]-now) }

// Free says whether there is a pod among c whose Wait is not above a bound, and when
// the next one's will have fallen so far by time alone; math.MaxInt64: none's.
func (v *View) Free(c *index.Bitmap, now, above int64) (free bool, next int64) {
	next = math.MaxInt64
	for w, b := range c {
		for ; b != 0; b &= b - 1 {
			if at := v.queues.empty[slotAt(w, b)] - above; at > now {
				next = min(next, at)
			} else {
				free = true
			}
		}
	}
	return free, next
}

// Backlog is what a pod is believed to have to do, in estimated tokens.
type Backlog struct {
	Uncached int64 // to be computed for legs whose first byte has not come
	Prompts  int64 // of all legs
	Decoding int64 // of the legs past their first byte
	Decoders int64 // the number of these
	Empty    int64 // when Uncached will be computed, on the clock of Queue
}

// Backlog returns what is known of the pod's work.
func (v *View) Backlog(slot uint8) Backlog {
	q := &v.queues
	return Backlog{q.uncached[slot], int64(q.prompts[slot]), int64(q.decoding[slot]), int64(q.decoders[slot]), q.empty[slot]}
}

package selection

import (
	"math"

	"github.com/calinix/caddy-calinix/index"
)

// mostPlaces is in how many places a prefill pod is looked for.
const mostPlaces = 4

// Pair picks the prefill pod of a pair, of the candidates for the prefill leg (p) and
// those for the decode leg (d), or returns -1 if there are none for p.
//
// What joins the two picks is where they run: a prompt is handed over faster to a pod
// that is near, and a pod hands nothing over to itself if there is another one. So of
// each place the best prefill pod is taken, of the four best places, and with each the
// best decode pod as Score has it when it is to be near; the highest sum of both
// scores wins, of equal sums the better prefill pod. Where all candidates are in one
// place, or the strategy knows no places, that is the pick of Score and Pick. The
// decode pod is then picked as for any other prefill pod: Pair changes no score.
//
// d is used up. Cost: a pass over the prefill pods, and up to four over the decode
// pods; one where a prefill pod is so far ahead that no place makes up for it.
func Pair(v *View, prefill, decode *index.Bitmap, p, d *Request) int {
	top := Score(v, prefill, p)
	pick := Pick(v, &top, p)
	if top.Empty() || decode.Empty() || !Places(d.Strategy, d.Weights) {
		return pick
	}
	l := shortlist{v: v, r: p, order: p.order(), hasSelf: decode.Count() > 1}
	l.fill(prefill, decode)
	if l.n == 1 {
		return pick
	}
	best, most := math.Inf(-1), math.Inf(1)
	for i := range l.n {
		e := &l.entries[i]
		if e.score+most <= best {
			continue // the nearest decode pod would not make up for it
		}
		others := *decode
		if e.self {
			others.Clear(int(e.slot))
		}
		d.Node, d.Zone = v.Node[e.slot], v.Zone[e.slot]
		high := highest(v, &others, d)
		if sum := e.score + high; sum > best || i == 0 {
			best, pick = sum, int(e.slot)
		}
		if i == 0 && !e.self { // then every decode pod has been rated
			most = high + nearness(d)
		}
	}
	return pick
}

// Places says whether it counts for a score where a pod runs.
func Places(s Strategy, w Weights) bool {
	return s == ExpectedTTFT || s == CacheAware && w.Locality != 0
}

// nearness returns how much higher a pod's score can be because of where it runs.
func nearness(r *Request) float64 {
	if r.Strategy == ExpectedTTFT {
		return (1 - onNode) * handover * float64(r.Tokens)
	}
	return math.Abs(100 * r.Weights.Locality)
}

// highest returns the score of the pods that Score returns.
func highest(v *View, c *index.Bitmap, r *Request) float64 {
	top := Score(v, c, r)
	return ranked(Explain(v, c, r, uint8(top.Next(0))).Score)
}

// ranked is a score by which others can be ranked: one that is no number is below
// all.
func ranked(score float64) float64 {
	if math.IsNaN(score) {
		return math.Inf(-1)
	}
	return score
}

// shortlist is the best prefill pod of each of the best places, in order.
type shortlist struct {
	v       *View
	r       *Request
	order   order
	hasSelf bool // a pod that is a decode pod as well is a place of its own
	entries [mostPlaces]entry
	n       int
}

type entry struct {
	score      float64
	node, zone uint16
	slot       uint8
	self       bool
}

// fill rates the candidates, those together that hold the same part of the prompt.
func (l *shortlist) fill(prefill, decode *index.Bitmap) {
	r := l.r
	scale, prices := scaleOf(l.v, prefill), pricesOf(r)
	rest := *prefill
	for i := range len(r.Frames) + 1 {
		holders, depth := rest, 0
		if i < len(r.Frames) {
			holders, depth = rest.And(r.Frames[i].Pods), r.Frames[i].Depth
			rest = rest.AndNot(holders)
		}
		for w, b := range holders {
			for ; b != 0; b &= b - 1 {
				slot := slotAt(w, b)
				e := entry{slot: slot, node: l.v.Node[slot], zone: l.v.Zone[slot], self: l.hasSelf && decode.Has(int(slot))}
				if r.Strategy == ExpectedTTFT {
					e.score = ranked(-prices.of(l.v, r, slot, r.Work[i]))
				} else {
					e.score = ranked(scale.rate(l.v, r, slot, depth).Score)
				}
				l.add(e)
			}
		}
	}
}

// add puts e in its place in the list, if it is better than what the list has of the
// same place, or than the last of a full one.
func (l *shortlist) add(e entry) {
	at := l.n
	for i := range l.n {
		if o := &l.entries[i]; o.node == e.node && o.zone == e.zone && !o.self && !e.self {
			at = i
		}
	}
	switch {
	case at < l.n:
		if !l.before(&e, &l.entries[at]) {
			return
		}
	case l.n < mostPlaces:
		l.n++
	default:
		at--
		if !l.before(&e, &l.entries[at]) {
			return
		}
	}
	for ; at > 0 && l.before(&e, &l.entries[at-1]); at-- {
		l.entries[at] = l.entries[at-1]
	}
	l.entries[at] = e
}

// before says whether a is the better pod, or of equals the one that Pick would take.
func (l *shortlist) before(a, b *entry) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return l.order.first(l.v, a.slot, b.slot)
}

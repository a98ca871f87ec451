package replay

import (
	"cmp"
	"math"
	"slices"
)

// powerOfTwo draws two pods and takes the one with fewer requests.
type powerOfTwo struct{ counts }

func newPowerOfTwo(s *sim) router { return &powerOfTwo{countsOf(s)} }

func (p *powerOfTwo) route(*job, float64) int {
	a, b := p.s.draw.below(p.s.Pods), p.s.draw.below(p.s.Pods)
	if p.inflight[b] < p.inflight[a] {
		a = b
	}
	return p.send(a)
}

// ring places keys on pods by consistent hashing. With a bound, a pod that has
// that many times the mean number of requests passes the request on.
type ring struct {
	counts
	points  []point
	session bool // the key is the session, else the first block
	bound   float64
}

type point struct {
	hash uint64
	pod  int
}

// virtualNodes is how many points a pod has on a ring.
const virtualNodes = 160

func newRing(s *sim, session bool, bound float64) *ring {
	r := &ring{counts: countsOf(s), session: session, bound: bound}
	for p := range s.Pods {
		for i := range virtualNodes {
			r.points = append(r.points, point{mix(uint64(p)<<32 | uint64(i)*2654435761 + 12345), p})
		}
	}
	slices.SortFunc(r.points, func(a, b point) int { return cmp.Compare(a.hash, b.hash) })
	return r
}

func newSessionRing(s *sim) router { return newRing(s, true, 0) }
func newPrefixRing(s *sim) router  { return newRing(s, false, 1.25) }

func (r *ring) route(j *job, _ float64) int {
	key := j.Blocks[0]
	if r.session {
		key = j.Session
	}
	hash := mix(uint64(key) + 99)
	at, _ := slices.BinarySearchFunc(r.points, hash, func(p point, h uint64) int { return cmp.Compare(p.hash, h) })
	most := math.MaxInt
	if r.bound > 0 {
		all := 1
		for _, n := range r.inflight {
			all += n
		}
		most = int(math.Ceil(r.bound * float64(all) / float64(r.s.Pods)))
	}
	for i := range r.points {
		if p := r.points[(at+i)%len(r.points)].pod; r.inflight[p]+1 <= most {
			return r.send(p)
		}
	}
	return r.send(r.points[at%len(r.points)].pod)
}

package replay

import "math"

// transit is the way between router and pods: what goes over it arrives some time
// later, in the order in which it was sent.
type transit struct {
	late  float64 // ms
	queue []letter
	head  int
}

// letter is on its way: a request to its pod, or the news that an answer has begun
// or ended to the router.
type letter struct {
	at   float64
	open func(now float64)
}

// send has open called when what is sent at now has arrived.
func (t *transit) send(now float64, open func(now float64)) {
	if t.late == 0 {
		open(now)
		return
	}
	t.queue = append(t.queue, letter{now + t.late, open})
}

// due is when the next letter arrives, infinite if none is on its way.
func (t *transit) due() float64 {
	if t.head == len(t.queue) {
		return math.Inf(1)
	}
	return t.queue[t.head].at
}

// arrive opens the next letter.
func (t *transit) arrive() {
	l := t.queue[t.head]
	t.queue[t.head].open = nil
	if t.head++; t.head > 1024 && 2*t.head > len(t.queue) {
		t.queue = append(t.queue[:0], t.queue[t.head:]...)
		t.head = 0
	}
	l.open(l.at)
}

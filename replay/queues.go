package replay

// fifo is a queue of jobs.
type fifo struct {
	jobs []*job
	head int
}

func (q *fifo) len() int { return len(q.jobs) - q.head }

func (q *fifo) push(j *job) { q.jobs = append(q.jobs, j) }

// front returns the first job, nil if there is none.
func (q *fifo) front() *job {
	if q.len() == 0 {
		return nil
	}
	return q.jobs[q.head]
}

func (q *fifo) pop() {
	q.jobs[q.head] = nil
	if q.head++; q.head > 1024 && 2*q.head > len(q.jobs) {
		q.jobs = append(q.jobs[:0], q.jobs[q.head:]...)
		q.head = 0
	}
}

// rest returns the jobs, the first one first.
func (q *fifo) rest() []*job { return q.jobs[q.head:] }

// decoders is a binary heap of jobs by the step at which they finish.
type decoders []*job

func (d *decoders) push(j *job) {
	h := append(*d, j)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up].finish <= h[i].finish {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	*d = h
}

func (d *decoders) pop() *job {
	h := *d
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], nil
	h = h[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down+1 < last && h[down+1].finish < h[down].finish {
			down++
		}
		if down >= last || h[i].finish <= h[down].finish {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	*d = h
	return first
}

package replay

import (
	"math"
	"runtime"
	"sync"
)

// All does the runs, as many at a time as there are processors, and returns
// their results in the same order, or the first error. told, if not nil, is
// called after each, by one goroutine at a time, with how many are done.
func All(runs []Run, told func(done int)) ([]*Result, error) {
	results := make([]*Result, len(runs))
	err := each(len(runs), told, func(i int) (err error) {
		results[i], err = runs[i].Do()
		return err
	})
	return results, err
}

// each calls f for 0 to n-1 by as many goroutines as there are processors, and
// returns when all have returned.
func each(n int, told func(done int), f func(i int) error) error {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex // guards next, done, first and told
		next  int
		done  int
		first error
	)
	for range min(n, runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := i >= n || first != nil
				mu.Unlock()
				if stop {
					return
				}
				err := f(i)
				mu.Lock()
				if first == nil {
					first = err
				}
				if done++; told != nil {
					told(done)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return first
}

// searchSteps halve the search for a rate, on a scale of ratios: to within 1 %.
const searchSteps = 10

// Sustained returns the highest rate, in requests a second, at which the run's
// policy keeps goodput at least at goal. Rates below 1/200 of what the pods
// could serve without any cache are not tried.
func (r Run) Sustained(goal float64) (float64, error) {
	if r.Trace == nil {
		r.Trace = &Trace{}
	}
	work := 0.0
	for i := range r.Trace.Requests {
		work += r.Engine.Work(0, float64(r.Trace.Requests[i].Input))
	}
	cold := float64(r.Pods) * float64(len(r.Trace.Requests)) / math.Max(work, 1) * 1000
	low, high := cold/200, cold*4
	for range searchSteps {
		r.Rate = math.Sqrt(low * high)
		res, err := r.Do()
		if err != nil {
			return 0, err
		}
		if res.Goodput >= goal {
			low = r.Rate
		} else {
			high = r.Rate
		}
	}
	return low, nil
}

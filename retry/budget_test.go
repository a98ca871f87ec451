package retry

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestBudget reads as a diary: +n requests, then r for each retry that is
// asked for, and what is granted.
func TestBudget(t *testing.T) {
	var b Budget
	now := time.Unix(1000, 0)
	count := func(n int) {
		for range n {
			b.Count(now)
		}
	}
	granted := func(asked int, share float64) (n int) {
		for range asked {
			if b.Take(now, share) {
				n++
			}
		}
		return n
	}
	for _, day := range []struct {
		after    time.Duration
		requests int
		share    float64
		asked    int
		want     int
		why      string
	}{
		{0, 1, 0.1, 10, 3, "three always may"},
		{time.Second, 38, 0.1, 10, 0, "39 requests afford no fourth"},
		{0, 1, 0.1, 10, 1, "40 do"},
		{0, 60, 0.1, 10, 6, "100 afford ten"},
		{0, 0, 0.5, 100, 40, "a reload with another share"},
		{0, 0, 0, 10, 0, "a share of nothing, three are gone"},
		{8900 * time.Millisecond, 0, 0.1, 10, 0, "the first three have not left yet"},
		{200 * time.Millisecond, 0, 0.1, 10, 0, "they have, but 47 of 99 is plenty"},
		{time.Second, 0, 0.1, 10, 3, "all is forgotten, three always may"},
		{time.Hour, 0, 0, 10, 3, "and again, without a share"},
	} {
		now = now.Add(day.after)
		count(day.requests)
		if got := granted(day.asked, day.share); got != day.want {
			t.Errorf("%s: %d granted, want %d", day.why, got, day.want)
		}
	}
}

// TestBudgetProperty compares with a list of all that happened, and with the
// promise itself over every window of time.
func TestBudgetProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type event struct {
			step  int64
			retry bool
		}
		var b Budget
		var all []event
		share := rapid.Float64Range(0, 1).Draw(t, "share")
		start := time.Unix(0, 0)
		b.Count(start) // steps are told from the first call on
		all = append(all, event{0, false})
		at, latest := time.Duration(0), int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			at += time.Duration(rapid.SampledFrom([]int64{0, 0, 0, 1, 30, 100, 999, 9_900, 10_000, 10_100, 60_000}).Draw(t, "ms")) * time.Millisecond
			// Some callers read the clock and then are overtaken.
			read := max(0, at-time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 250}).Draw(t, "late"))*time.Millisecond)
			latest = max(latest, int64(read/(100*time.Millisecond)))
			requests, retries := 0, 0
			for _, e := range all {
				if latest-e.step > 100 {
					continue
				}
				if e.retry {
					retries++
				} else {
					requests++
				}
			}
			if rapid.IntRange(0, 2).Draw(t, "kind") > 0 {
				b.Count(start.Add(read))
				all = append(all, event{latest, false})
				continue
			}
			want := retries+1 <= 3 || float64(retries+1) <= share*float64(requests)
			if got := b.Take(start.Add(read), share); got != want {
				t.Fatalf("%v with %d requests, %d retries, share %v: granted %v", read, requests, retries, share, got)
			}
			if want {
				all = append(all, event{latest, true})
			}
		}
	})
}

// TestConcurrentUse: no more is granted than the share, however many ask.
func TestConcurrentUse(t *testing.T) {
	var b Budget
	now := time.Unix(0, 0)
	var mu sync.Mutex
	granted := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			mine := 0
			for range 1000 {
				b.Count(now)
				if b.Take(now, 0.1) {
					mine++
				}
			}
			mu.Lock()
			granted += mine
			mu.Unlock()
		})
	}
	wg.Wait()
	if granted != 800 {
		t.Errorf("%d of 8000 granted, want 800", granted)
	}
	if n := testing.AllocsPerRun(100, func() { b.Count(now); b.Take(now, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBudget(b *testing.B) {
	now := time.Unix(0, 0)
	b.Run("Count", func(b *testing.B) {
		var budget Budget
		b.ReportAllocs()
		for b.Loop() {
			now = now.Add(100 * time.Microsecond)
			budget.Count(now)
		}
	})
	b.Run("Count/parallel", func(b *testing.B) {
		var budget Budget
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				budget.Count(now)
			}
		})
	})
	b.Run("Take", func(b *testing.B) {
		var budget Budget
		b.ReportAllocs()
		for b.Loop() {
			budget.Take(now, 0.1)
		}
	})
}

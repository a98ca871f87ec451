package enginesim

import (
	"math"
	"testing"
	"time"
)

// fast has round figures: a step of at least 10 ms, 1000 tokens a second of prefill.
func fast() Settings {
	return Settings{
		PrefillTokensPerSecond: 1000, DecodeTokensPerSecond: 100, BatchSlowdown: new(0.0),
		MaxNumBatchedTokens: 100, NumGPUBlocks: 1000,
	}
}

const ms = time.Millisecond

// firstAndLast returns when a sequence got its first token and when it ended.
func (b *bench) firstAndLast(t *testing.T, s *sequence) (first, last time.Duration) {
	t.Helper()
	first = b.until(t, func() bool { return b.progress(s).out > 0 })
	return first, b.until(t, b.finished(s))
}

func TestTimeOfOneRequest(t *testing.T) {
	with := func(f func(*Settings)) Settings { s := fast(); f(&s); return s }
	for name, c := range map[string]struct {
		set         Settings
		prompt, out int
		first, last time.Duration
	}{
		"short prompt: the floor of a step":      {fast(), 3, 1, 10 * ms, 10 * ms},
		"one chunk: uncached tokens over rate":   {fast(), 80, 1, 80 * ms, 80 * ms},
		"three chunks of 100, 100 and 50":        {fast(), 250, 1, 250 * ms, 250 * ms},
		"last chunk below the floor":             {fast(), 203, 1, 210 * ms, 210 * ms},
		"each further token takes the floor":     {fast(), 80, 11, 80 * ms, 180 * ms},
		"attention doubles the cost at its mark": {with(func(s *Settings) { s.AttentionTokens = 50 }), 100, 1, 200 * ms, 200 * ms},
		"attention of later chunks":              {with(func(s *Settings) { s.AttentionTokens = 100 }), 200, 1, 400 * ms, 400 * ms},
		// The second token is computed over 81 tokens of context, the third over 82.
		"decoding over context": {with(func(s *Settings) { s.DecodeContextTokens = 1000 }), 80, 3, 80 * ms, 80*ms + 20*ms + 1630*time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.set)
			first, last := b.firstAndLast(t, b.put(ids(0, c.prompt), c.out))
			if first != c.first || last != c.last {
				t.Errorf("first token after %v, last after %v; want %v and %v", first, last, c.first, c.last)
			}
			b.idle(t)
		})
	}
}

func TestCachedPrefixSavesTime(t *testing.T) {
	b := newBench(t, fast())
	b.until(t, b.finished(b.put(ids(0, 96), 1)))
	b.start = b.clock.Now()
	s := b.put(append(ids(0, 64), ids(500, 32)...), 1)
	first, _ := b.firstAndLast(t, s)
	if got := b.progress(s).cached; got != 64 || first != 32*ms {
		t.Errorf("cached %d tokens, first token after %v; want 64 and 32ms", got, first)
	}
	if st := b.Stats(); st.PrefixQueries != 192 || st.PrefixHits != 64 {
		t.Errorf("counted %d queries and %d hits, want 192 and 64", st.PrefixQueries, st.PrefixHits)
	}
}

func TestLastTokenIsComputedAnew(t *testing.T) {
	for prompt, want := range map[int]int{16: 0, 17: 16, 32: 16, 33: 32, 96: 80} {
		b := newBench(t, fast())
		b.until(t, b.finished(b.put(ids(0, prompt), 1)))
		again := b.put(ids(0, prompt), 1)
		b.until(t, b.finished(again))
		if got := b.progress(again).cached; got != want {
			t.Errorf("prompt of %d tokens again: cached %d, want %d", prompt, got, want)
		}
	}
}

func TestBatchSlowdown(t *testing.T) {
	set := fast()
	set.BatchSlowdown = new(0.5)
	b := newBench(t, set)
	var s []*sequence
	for i := range 3 {
		s = append(s, b.put(ids(100*i, 4), 11))
	}
	// The first starts alone; the others join at 10 ms, in a step with one that
	// decodes: 10 ms. From 20 ms on three decode together, in steps of
	// 10 ms · (1 + 0.5·2).
	if end := b.until(t, b.finished(s[0])); end != 20*ms+9*20*ms {
		t.Errorf("the first ended after %v, want 200ms", end)
	}
	// Two are left, one token each: a step of 15 ms.
	if end := b.until(t, b.finished(s[2])); end != 215*ms {
		t.Errorf("the last ended after %v, want 215ms", end)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	set := fast()
	set.MaxNumSeqs = 2
	b := newBench(t, set)
	var s []*sequence
	for i := range 4 {
		s = append(s, b.put(ids(100*i, 5), 3))
	}
	if st := b.Stats(); st.Running != 1 || st.Waiting != 3 {
		t.Fatalf("%d run and %d wait before the first step ends, want 1 and 3", st.Running, st.Waiting)
	}
	b.clock.advance(10 * ms)
	if st := b.Stats(); st.Running != 2 || st.Waiting != 2 {
		t.Fatalf("%d run and %d wait, want 2 and 2", st.Running, st.Waiting)
	}
	// Steps of 10 ms. The first runs in steps 1 to 3, the second in 2 to 4, the third
	// in 4 to 6, the fourth in 5 to 7.
	for i, want := range []time.Duration{30 * ms, 40 * ms, 60 * ms, 70 * ms} {
		if end := b.until(t, b.finished(s[i])); end != want {
			t.Errorf("sequence %d ended after %v, want %v", i, end, want)
		}
	}
}

func TestLongPromptDoesNotStopDecoding(t *testing.T) {
	b := newBench(t, fast())
	short := b.put(ids(0, 5), 50)
	b.clock.advance(10 * ms)
	long := b.put(ids(1000, 500), 1)
	// The long prompt joins the step after the next, with 99 tokens a step of 100 ms,
	// while the short one gets a token in each.
	first := b.until(t, func() bool { return b.progress(long).out > 0 })
	if want := 20*ms + 5*100*ms + 10*ms; first != want {
		t.Errorf("first token of the long prompt after %v, want %v", first, want)
	}
	if got := b.progress(short).out; got != 1+1+6 {
		t.Errorf("the short one got %d tokens meanwhile, want 8", got)
	}
}

func TestPreemptionStartsOver(t *testing.T) {
	set := fast()
	set.NumGPUBlocks, set.MaxModelLen = 6, 96
	b := newBench(t, set)
	first := b.put(ids(0, 40), 40) // needs 5 blocks in the end
	second := b.put(ids(1000, 40), 40)
	b.until(t, b.finished(first))
	if b.progress(second).done {
		t.Fatal("the second ended before the first")
	}
	b.until(t, b.finished(second))
	if st := b.Stats(); st.Preemptions == 0 {
		t.Error("two sequences of 5 blocks ran in a cache of 6 without preemption")
	}
	if first.out != 40 || second.out != 40 {
		t.Errorf("%d and %d tokens were generated, want 40 each", first.out, second.out)
	}
	b.idle(t)
}

func TestAbortFreesAtOnce(t *testing.T) {
	set := fast()
	set.MaxNumSeqs = 1
	b := newBench(t, set)
	running, waiting, next := b.put(ids(0, 90), 1000), b.put(ids(1000, 10), 5), b.put(ids(2000, 10), 5)
	b.cancel([]*sequence{waiting})
	if st := b.Stats(); st.Waiting != 1 {
		t.Errorf("%d wait after one of two was aborted", st.Waiting)
	}
	b.clock.advance(200 * ms)
	b.cancel([]*sequence{running})
	if st := b.Stats(); st.BlocksPinned != 0 || st.Running != 0 {
		t.Errorf("an aborted sequence still holds %d blocks, %d run", st.BlocksPinned, st.Running)
	}
	b.until(t, b.finished(next))
	b.idle(t)
	if got := b.Stats().Finished["abort"]; got != 2 {
		t.Errorf("%d aborted, want 2", got)
	}
}

// While a chunk is computed nobody can find its blocks, so twins that are admitted
// together both compute.
func TestTwinsInOneStep(t *testing.T) {
	set := fast()
	set.MaxNumBatchedTokens = 1000
	b := newBench(t, set)
	b.put(ids(5000, 5), 1)
	one, two := b.put(ids(0, 64), 1), b.put(ids(0, 64), 1)
	b.until(t, b.finished(two))
	if a, c := b.progress(one).cached, b.progress(two).cached; a != 0 || c != 0 {
		t.Errorf("twins cached %d and %d tokens, want 0 and 0", a, c)
	}
	if got := b.Stats().BlocksCached; got != 8 {
		t.Errorf("%d blocks cached after twins of 4, want both", got)
	}
	b.idle(t)
}

func TestCacheOutput(t *testing.T) {
	for on, want := range map[bool]int{false: 32, true: 64} {
		set := fast()
		set.CacheOutput = on
		b := newBench(t, set)
		s := b.put(ids(0, 40), 30)
		b.until(t, b.finished(s))
		next := ids(0, 40)
		for i := range 30 {
			next = append(next, s.token(40+i))
		}
		again := b.put(append(next, 7, 8, 9), 1)
		b.until(t, b.finished(again))
		if got := b.progress(again).cached; got != want {
			t.Errorf("cache_output %v: next turn found %d tokens, want %d", on, got, want)
		}
	}
}

// A machine that is too busy to wake the engine in time does not slow it down, unless
// it is far behind.
func TestLateTimers(t *testing.T) {
	c := newFakeClock()
	clock := c.clock()
	after, lag := clock.AfterFunc, 5*ms
	clock.AfterFunc = func(d time.Duration, f func()) func() bool { return after(max(0, d)+lag, f) }
	e, err := New(fast(), clock, NewPeers())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{e, c, c.Now()}
	if end := b.until(t, b.finished(b.put(ids(0, 5), 100))); end != 1005*ms {
		t.Errorf("100 tokens took %v with timers 5 ms late, want 1.005s", end)
	}
	lag = time.Second
	b.start = c.Now()
	if end := b.until(t, b.finished(b.put(ids(0, 5), 10))); end < 8*time.Second {
		t.Errorf("10 tokens took %v with timers a second late: the past was made up for", end)
	}
}

func TestConfigure(t *testing.T) {
	b := newBench(t, fast())
	slow := fast()
	slow.DecodeTokensPerSecond = 1
	if err := b.Configure(slow, 2); err != nil {
		t.Fatal(err)
	}
	if err := b.Configure(fast(), 1); err != nil || b.Settings().DecodeTokensPerSecond != 1 {
		t.Errorf("an older configuration replaced a newer one (error %v)", err)
	}
	slow.BlockSize = 32
	if b.Configure(slow, 3) == nil {
		t.Error("the block size of a living engine was changed")
	}
	slow.BlockSize, slow.MaxNumSeqs = 0, -1
	if b.Configure(slow, 3) == nil {
		t.Error("wrong settings were taken")
	}
}

func TestSettings(t *testing.T) {
	if s, err := (Settings{}).WithDefaults(); err != nil || s.MaxModelLen != 131072 || *s.MaxTokenBytes != 16 {
		t.Errorf("defaults: %+v, error %v", s, err)
	}
	if s, err := (Settings{MaxTokenBytes: new(0), BatchSlowdown: new(0.0)}).WithDefaults(); err != nil || *s.MaxTokenBytes != 0 || *s.BatchSlowdown != 0 {
		t.Errorf("0 where it has a meaning: %+v, error %v", s, err)
	}
	for want, s := range map[string]Settings{
		"block_size -1: want 1 to 65536":                                         {BlockSize: -1},
		"prefill_tokens_per_second NaN: want a finite number above 0":            {PrefillTokensPerSecond: math.NaN()},
		"batch_slowdown -1: want a finite number, 0 or above":                    {BatchSlowdown: new(-1.0)},
		`stream_headers "late": want one of ["at_once" "first_token"]`:           {StreamHeaders: "late"},
		"max_token_bytes -1: want 0 (off) or above":                              {MaxTokenBytes: new(-1)},
		"health_status 99: want 200 to 599":                                      {HealthStatus: 99},
		"kv_lease_duration -1s: want above 0":                                    {KVLeaseDuration: Duration(-time.Second)},
		"models: want names that are not empty":                                  {Models: []string{""}},
		"max_model_len 200: want 2 to 160, which is num_gpu_blocks × block_size": {NumGPUBlocks: 10, MaxModelLen: 200},
		"transfer_tokens_per_second +Inf: want a finite number above 0":          {TransferTokensPerSecond: math.Inf(1)},
		"max_num_batched_tokens -5: want 1 to 1073741824":                        {MaxNumBatchedTokens: -5},
		`prompt_tokens_details "off": want one of ["always" "nonzero" "never"]`:  {PromptTokensDetails: "off"},
	} {
		_, err := s.WithDefaults()
		if err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

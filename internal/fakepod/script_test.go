package fakepod_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// Which script a request gets: Next, then the rules from the latest to the
// first, then Set.
func TestScriptsByPathPredicateAndTurn(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := client(t)
	status := func(path, body string) int { return send(t, c, p.URL+path, body).status }
	p.Set(fakepod.Reply{Status: 210})
	p.SetPath("/b", fakepod.Reply{Status: 211})
	p.When(func(r fakepod.Request) bool { return strings.Contains(string(r.Body), "yes") }, fakepod.Reply{Status: 212})
	for _, tc := range []struct {
		path, body string
		want       int
	}{{"/a", "no", 210}, {"/b", "no", 211}, {"/b", "yes", 212}, {"/a", "yes", 212}, {"/b/c", "no", 210}} {
		if got := status(tc.path, tc.body); got != tc.want {
			t.Errorf("%s %q: %d, want %d", tc.path, tc.body, got, tc.want)
		}
	}
	p.SetPath("/b", fakepod.Reply{Status: 213}) // later rules go first
	if got := status("/b", "yes"); got != 213 {
		t.Errorf("the later rule did not win: %d", got)
	}
	p.Next(fakepod.Reply{Status: 214}, fakepod.Sequence(fakepod.Reply{Status: 215}, fakepod.Reply{Status: 216}))
	if s := get(t, c, p.URL+"/health"); s != 200 {
		t.Errorf("a probe took a turn of Next: %d", s)
	}
	for _, want := range []int{214, 215, 210} {
		if got := status("/a", "no"); got != want {
			t.Errorf("Next: %d, want %d", got, want)
		}
	}
	p.Set(fakepod.Func(func(r fakepod.Request) fakepod.Reply {
		p.Healthy(false) // a script may call the pod
		return fakepod.Reply{Status: 220 + r.N, Header: http.Header{"X-Body": {string(r.Body)}}}
	}))
	p.Forget()
	if a := send(t, c, p.URL+"/a", "no"); a.status != 221 || a.header.Get("X-Body") != "no" {
		t.Errorf("Func: %+v", a)
	}
	p.Clear()
	if got := status("/b", "yes"); got != 200 {
		t.Errorf("after Clear: %d", got)
	}
	if s := get(t, c, p.URL+"/health"); s != 503 {
		t.Errorf("Clear changed the health: %d", s)
	}
	p.Set(fakepod.Sequence(fakepod.Reply{Status: 500}, fakepod.Reply{Status: 201}))
	for _, want := range []int{500, 201, 201} {
		if got := status("/a", ""); got != want {
			t.Errorf("Sequence: %d, want %d", got, want)
		}
	}
	p.Set(fakepod.Cycle(fakepod.Reply{Status: 400}, fakepod.Reply{Status: 500}))
	for _, want := range []int{400, 500, 400} {
		if got := status("/a", ""); got != want {
			t.Errorf("Cycle: %d, want %d", got, want)
		}
	}
	p.Set(fakepod.Sequence())
	if got := status("/a", ""); got != 200 {
		t.Errorf("an empty Sequence: %d", got)
	}
}

func TestHealth(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a", HealthPath: "/ready"})
	c := client(t)
	c.Transport.(*http.Transport).DisableKeepAlives = true // else net/http repeats a GET that was reset
	probe := func() int { return get(t, c, p.URL+"/ready") }
	p.Healthy(false)
	if s := probe(); s != 503 {
		t.Errorf("%d", s)
	}
	p.Healthy(true)
	if s := probe(); s != 200 {
		t.Errorf("%d", s)
	}
	// flapping
	p.SetHealth(fakepod.Cycle(fakepod.Reply{}, fakepod.Reply{Status: 500}))
	for k, want := range []int{200, 500, 200, 500} {
		if s := probe(); s != want {
			t.Errorf("probe %d: %d, want %d", k, s, want)
		}
	}
	// late
	p.SetHealth(fakepod.Reply{Delay: 40 * time.Millisecond})
	began := time.Now()
	if s := probe(); s != 200 || time.Since(began) < 40*time.Millisecond {
		t.Errorf("%d after %v", s, time.Since(began))
	}
	p.SetHealth(fakepod.Reply{Cut: fakepod.Reset})
	if s := probe(); s != 0 {
		t.Errorf("a reset probe got %d", s)
	}
	p.SetHealth(fakepod.Unread{Reply: fakepod.Reply{Status: 502}})
	if s := probe(); s != 502 {
		t.Errorf("%d", s)
	}
	if n := len(p.Probes()); n != 9 || p.Count() != 0 || p.MaxInFlight() != 0 {
		t.Errorf("%d probes, %d requests, %d in flight", n, p.Count(), p.MaxInFlight())
	}
	// the same path by another method is no probe
	if send(t, c, p.URL+"/ready", "x"); p.Count() != 1 {
		t.Error("a POST was taken for a probe")
	}
}

func TestStrict(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Strict: fakepod.VLLM})
	c := client(t)
	const msgs = `"messages":[{"role":"user","content":"hi"}]`
	for _, tc := range []struct{ path, body, fault string }{
		{chat, `{` + msgs + `}`, ""},
		{chat, `{"model":"m","stream":true,"stream_options":{"include_usage":true},` + msgs + `}`, ""},
		{chat, `{"max_tokens":1,"max_completion_tokens":5,"min_tokens":5,"temperature":0.5,"n":1,"seed":null,` + msgs + `}`, ""},
		{chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":null}]}`, ""},
		{chat, `{"kv_transfer_params":{"do_remote_decode":true},"stream":false,` + msgs + `}`, ""},
		{"/v1/completions", `{"prompt":"x"}`, ""},
		{"/v1/completions", `{"prompt":[[1,2]]}`, ""},
		{"/v1/responses", `{"input":"x","max_output_tokens":1}`, ""},
		{"/v1/messages", `{"max_tokens":1,` + msgs + `}`, ""},
		{"/v1/embeddings", `{"input":["x"]}`, ""},
		{"/tokenize", `not json`, ""},

		{chat, `{"messages": [`, "no JSON object"},
		{chat, `null`, "no JSON object"},
		{chat, `{}`, "messages: field required"},
		{chat, `{"messages":"hi"}`, "messages: input should be array, not string"},
		{chat, `{"messages":[1]}`, "array of objects"},
		{chat, `{"messages":[{"content":"x"}]}`, "messages[0].role"},
		{chat, `{"messages":[{"role":"user","content":1}]}`, "messages[0].content"},
		{chat, `{"model":1,` + msgs + `}`, "model"},
		{chat, `{"stream":"true",` + msgs + `}`, "stream"},
		{chat, `{"max_tokens":1.5,` + msgs + `}`, "max_tokens: input should be int or null, not number"},
		{chat, `{"max_tokens":0,` + msgs + `}`, "max_tokens must be at least 1"},
		{chat, `{"n":0,` + msgs + `}`, "n must be at least 1"},
		{chat, `{"max_tokens":1,"min_tokens":2,` + msgs + `}`, "less than or equal to max_tokens=1"},
		{chat, `{"max_completion_tokens":1,"min_tokens":2,` + msgs + `}`, "less than or equal"},
		{chat, `{"min_tokens":-1,` + msgs + `}`, "min_tokens must be at least 0"},
		{chat, `{"stream_options":{},` + msgs + `}`, "stream=True"},
		{chat, `{"kv_transfer_params":{"do_remote_decode":true},"stream":true,` + msgs + `}`, "prefill does not support streaming"},
		{chat, `{"kv_transfer_params":"x",` + msgs + `}`, "kv_transfer_params"},
		{"/v1/completions", `{"prompt":{}}`, "prompt"},
		{"/v1/responses", `{"input":"x","max_output_tokens":0}`, "max_output_tokens must be"},
		{"/v1/messages", `{` + msgs + `}`, "max_tokens: field required"},
	} {
		a := send(t, c, p.URL+tc.path, tc.body)
		if tc.fault == "" && a.status != 200 {
			t.Errorf("%s %s: %d %s", tc.path, tc.body, a.status, a.body)
		}
		if tc.fault != "" && (a.status != 400 || !strings.Contains(a.body, tc.fault) || !strings.Contains(a.body, `"BadRequestError"`)) {
			t.Errorf("%s %s: %d %s, want 400 with %q", tc.path, tc.body, a.status, a.body, tc.fault)
		}
	}
	if q := p.Last(t); q.Status != 400 {
		t.Errorf("the refusal is not on record: %v", q)
	}
	p.SetStrict(fakepod.VLLMPrefill)
	if a := send(t, c, p.URL+chat, `{"stream":true,`+msgs+`}`); a.status != 400 {
		t.Errorf("a stream at a prefill pod: %+v", a)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+chat, strings.NewReader(`{`+msgs+`}`))
	if err != nil {
		t.Fatal(err)
	}
	if a := do(c, req); a.status != 400 || !strings.Contains(a.body, "Content-Type") {
		t.Errorf("no Content-Type: %+v", a)
	}
	p.SetStrict(fakepod.Lenient)
	if a := send(t, c, p.URL+chat, `{"stream":1}`); a.status != 200 {
		t.Errorf("lenient: %+v", a)
	}
}

// A prober in the manner of a gateway: one probe after another.
func probe(ctx context.Context, c *http.Client, p *fakepod.Pod) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/health", nil)
		if err != nil {
			return
		}
		do(c, req)
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func TestPods(t *testing.T) {
	ps := fakepod.NewPods(t, fakepod.Options{}, "a", "b", "c")
	c := client(t)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, p := range ps {
		wg.Go(func() { probe(ctx, c, p) })
	}
	statuses := func(p *fakepod.Pod, from int) (s []int) {
		for _, q := range p.Probes()[from:] {
			if q.Status != 0 {
				s = append(s, q.Status)
			}
		}
		return s
	}
	from := map[string]int{}
	for _, p := range ps {
		from[p.Name] = len(p.Probes())
	}
	ps.OnlyHealthy(t, 3, "b")
	for _, p := range ps {
		want, n := 503, 0
		if p.Name == "b" {
			want = 200
		}
		for _, s := range statuses(p, from[p.Name]) {
			if s == want {
				n++
			}
		}
		if n < 3 {
			t.Errorf("pod %s: %d probes got %d, want at least 3", p.Name, n, want)
		}
	}
	ps.AllHealthy(t, 2)
	ps.Pod("a").WaitProbes(t, 2)
	if s := statuses(ps.Pod("a"), 0); s[len(s)-1] != 200 {
		t.Errorf("pod a ends with %v", s[len(s)-3:])
	}
	ps.Set(fakepod.Reply{Status: 201})
	for k, p := range ps {
		for range k {
			if a := send(t, c, p.URL, "x"); a.status != 201 {
				t.Errorf("%+v", a)
			}
		}
	}
	if got := fmt.Sprint(ps.Counts()); got != "map[a:0 b:1 c:2]" || ps.Total() != 3 || len(ps.Received()) != 3 {
		t.Errorf("%s, %d, %v", got, ps.Total(), ps.Received())
	}
	ps.Forget()
	if ps.Total() != 0 {
		t.Error("Forget left records")
	}
	defer func() {
		if recover() == nil {
			t.Error("a pod that does not exist was found")
		}
	}()
	ps.Pod("x")
}

// failing is a test that notes its failure.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A wait that is in vain ends the test and says what was there.
func TestWaitGivesUp(t *testing.T) {
	patience := fakepod.Patience
	fakepod.Patience = 20 * time.Millisecond
	defer func() { fakepod.Patience = patience }()
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	send(t, client(t), p.URL+"/seen", "x")
	for what, wait := range map[string]func(testing.TB){
		"2 requests":                           func(tb testing.TB) { p.WaitRequests(tb, 2) },
		"the head of request 2":                func(tb testing.TB) { p.WaitHead(tb, 2) },
		"the end of request 2":                 func(tb testing.TB) { p.WaitEnded(tb, 2) },
		"the peer of request 1 to leave early": func(tb testing.TB) { p.WaitClosed(tb, 1) },
		"9 pieces of the answer to request 1":  func(tb testing.TB) { p.WaitSent(tb, 1, 9) },
		"5 requests in flight":                 func(tb testing.TB) { p.WaitInFlight(tb, 5) },
		"7 open connections":                   func(tb testing.TB) { p.WaitOpen(tb, 7) },
		"1 answered probes":                    func(tb testing.TB) { p.WaitProbes(tb, 1) },
		"blue":                                 func(tb testing.TB) { p.Wait(tb, "blue", func(fakepod.State) bool { return false }) },
	} {
		f := &failing{TB: t}
		var wg sync.WaitGroup
		wg.Go(func() { wait(f) })
		wg.Wait()
		if !strings.Contains(f.message, "pod a: timed out after 20ms waiting for "+what) || !strings.Contains(f.message, "a#1 conn 1.1 POST /seen 1 bytes → 200 whole") {
			t.Errorf("waiting for %s: %q", what, f.message)
		}
	}
}

package enginesim

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const kvPrompt = `"prompt":"one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"`

// pair is a prefill and a decode engine on one fake clock, either in one process or
// in two.
type pair struct {
	t              *testing.T
	clock          *fakeClock
	prefill, other *Engine
	p, d           *httptest.Server
}

func newPair(t *testing.T, set Settings, processes int) *pair {
	t.Helper()
	c := newFakeClock()
	peers := []*Peers{NewPeers(), NewPeers()}
	pr := &pair{t: t, clock: c}
	for i, to := range []**Engine{&pr.prefill, &pr.other} {
		e, err := New(set, c.clock(), peers[i%processes])
		if err != nil {
			t.Fatal(err)
		}
		*to = e
	}
	pr.p, pr.d = httptest.NewServer(pr.prefill), httptest.NewServer(pr.other)
	t.Cleanup(func() { pr.p.Close(); pr.d.Close(); http.DefaultClient.CloseIdleConnections() })
	return pr
}

// post sends a body and lets the clock run until the answer is there.
func (pr *pair) post(url, body string) (status int, answer map[string]any) {
	pr.t.Helper()
	type reply struct {
		status int
		body   []byte
		err    error
	}
	got := make(chan reply, 1)
	go func() {
		resp, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			got <- reply{err: err}
			return
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		got <- reply{resp.StatusCode, b.Bytes(), err}
	}()
	for {
		select {
		case r := <-got:
			if r.err != nil {
				pr.t.Fatal(r.err)
			}
			if err := json.Unmarshal(r.body, &answer); err != nil {
				pr.t.Fatalf("%s: %v", r.body, err)
			}
			return r.status, answer
		case <-time.After(time.Millisecond):
			if pr.prefill.Stats().Running+pr.other.Stats().Running+pr.other.Stats().Waiting > 0 {
				pr.clock.advance(10 * ms)
			}
		}
	}
}

// prefillLeg runs a prefill leg and returns its kv_transfer_params.
func (pr *pair) prefillLeg(url string) map[string]any {
	pr.t.Helper()
	status, answer := pr.post(url, `{`+kvPrompt+`,"max_tokens":1,"stream":false,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}}`)
	params, ok := answer["kv_transfer_params"].(map[string]any)
	if status != 200 || !ok {
		pr.t.Fatalf("prefill leg answered %d %v", status, answer)
	}
	return params
}

func (pr *pair) decodeLeg(params map[string]any) (status int, answer map[string]any) {
	pr.t.Helper()
	return pr.post(pr.d.URL+"/v1/completions", `{`+kvPrompt+`,"max_tokens":5,"kv_transfer_params":`+string(appendJSON(nil, params))+`}`)
}

func TestHandOver(t *testing.T) {
	for processes, name := range map[int]string{1: "one process", 2: "two processes"} {
		t.Run(name, func(t *testing.T) {
			pr := newPair(t, fast(), processes)
			params := pr.prefillLeg(pr.p.URL + "/v1/completions")
			if params["do_remote_prefill"] != true || params["do_remote_decode"] != false || params["remote_engine_id"] != pr.prefill.ID() ||
				params["remote_host"] != "127.0.0.1" || params["tp_size"] != 1.0 || params["remote_num_tokens"] != 18.0 || len(params["remote_block_ids"].([]any)) != 2 {
				t.Errorf("kv_transfer_params: %v", params)
			}
			if st := pr.prefill.Stats(); st.Leases != 1 || st.BlocksPinned != 2 {
				t.Errorf("after the prefill leg: %d leases, %d blocks pinned, want 1 and 2", st.Leases, st.BlocksPinned)
			}
			status, answer := pr.decodeLeg(params)
			if status != 200 {
				t.Fatalf("decode leg answered %d %v", status, answer)
			}
			usage := answer["usage"].(map[string]any)
			if cached := usage["prompt_tokens_details"].(map[string]any)["cached_tokens"]; cached != 17.0 {
				t.Errorf("the decode engine had %v tokens of 18, want 17", cached)
			}
			await(t, func() bool { return pr.prefill.Stats().Leases == 0 })
			if st := pr.prefill.Stats(); st.BlocksPinned != 0 || st.LeasesExpired != 0 {
				t.Errorf("after the decode leg the prefill engine pins %d blocks, %d leases expired", st.BlocksPinned, st.LeasesExpired)
			}
			if st := pr.other.Stats(); st.TransferredTokens != 18 || st.BlocksCached != 1 {
				t.Errorf("the decode engine loaded %d tokens and caches %d blocks, want 18 and 1", st.TransferredTokens, st.BlocksCached)
			}
			// The same words as without hand-over.
			_, whole := pr.post(pr.p.URL+"/v1/completions", `{`+kvPrompt+`,"max_tokens":5}`)
			if a, b := answer["choices"].([]any)[0], whole["choices"].([]any)[0]; string(appendJSON(nil, a)) != string(appendJSON(nil, b)) {
				t.Errorf("handed over %v, in one piece %v", a, b)
			}
			// Once only.
			status, answer = pr.decodeLeg(params)
			wantError(t, status, answer, 500, "KV already used")
		})
	}
}

func wantError(t *testing.T, status int, answer map[string]any, want int, text string) {
	t.Helper()
	e, ok := answer["error"].(map[string]any)
	if !ok || status != want || e["code"] != float64(want) || !strings.Contains(e["message"].(string), text) {
		t.Errorf("got %d %v, want %d with %q", status, answer, want, text)
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(limit) {
			t.Fatal("waited 10 s in vain")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestHandOverRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(pr *pair, p map[string]any)
		text   string
	}{
		"expired":           {func(pr *pair, _ map[string]any) { pr.clock.advance(30 * time.Second) }, "KV expired"},
		"unknown request":   {func(_ *pair, p map[string]any) { p["remote_request_id"] = "x" }, "unknown"},
		"foreign engine":    {func(pr *pair, p map[string]any) { p["remote_engine_id"] = pr.other.ID() }, "unknown"},
		"engine gone":       {func(pr *pair, _ map[string]any) { pr.prefill.Close(); pr.p.Close() }, "asking at its address failed"},
		"engine far away":   {func(_ *pair, p map[string]any) { p["remote_engine_id"], p["remote_host"] = "x", "192.0.2.1" }, "is not a loopback address"},
		"engine by name":    {func(_ *pair, p map[string]any) { p["remote_engine_id"], p["remote_host"] = "x", "localhost" }, "is not a loopback address"},
		"engine restarted":  {func(_ *pair, p map[string]any) { p["remote_engine_id"] = "earlier" }, "is not this engine's"},
		"other blocks":      {func(_ *pair, p map[string]any) { p["remote_block_ids"] = []int{1} }, "remote_block_ids"},
		"other host":        {func(_ *pair, p map[string]any) { p["remote_host"] = "10.0.0.1" }, "remote_host"},
		"other port":        {func(_ *pair, p map[string]any) { p["remote_port"] = 1 }, "remote_port"},
		"other tp_size":     {func(_ *pair, p map[string]any) { p["tp_size"] = 2 }, "tp_size"},
		"missing member":    {func(_ *pair, p map[string]any) { delete(p, "remote_request_id") }, "remote_request_id: want a string"},
		"re-typed port":     {func(_ *pair, p map[string]any) { p["remote_port"] = "8000" }, "remote_port: want an integer"},
		"re-typed blocks":   {func(_ *pair, p map[string]any) { p["remote_block_ids"] = "1,2" }, "remote_block_ids: want a list"},
		"fractional blocks": {func(_ *pair, p map[string]any) { p["remote_block_ids"] = []any{1.5} }, "want block numbers"},
	} {
		t.Run(name, func(t *testing.T) {
			pr := newPair(t, fast(), 1)
			params := pr.prefillLeg(pr.p.URL + "/v1/completions")
			c.change(pr, params)
			status, answer := pr.decodeLeg(params)
			wantError(t, status, answer, 500, c.text)
			if st := pr.other.Stats(); st.ClaimsRefused != 1 || st.BlocksPinned != 0 {
				t.Errorf("refused %d claims, pins %d blocks", st.ClaimsRefused, st.BlocksPinned)
			}
		})
	}
}

func TestHandOverOfAnotherPrompt(t *testing.T) {
	pr := newPair(t, fast(), 1)
	params := pr.prefillLeg(pr.p.URL + "/v1/completions")
	body := func(more string) string {
		return `{"prompt":"something else",` + more + `"max_tokens":5,"kv_transfer_params":` + string(appendJSON(nil, params)) + `}`
	}
	status, answer := pr.post(pr.d.URL+"/v1/completions", body(""))
	wantError(t, status, answer, 500, "KV of another prompt")
	status, answer = pr.decodeLeg(params)
	if status != 200 {
		t.Errorf("a refused claim used the lease up: %d %v", status, answer)
	}
}

func TestHandOverRecompute(t *testing.T) {
	set := fast()
	set.KVLoadFailurePolicy = "recompute"
	pr := newPair(t, set, 1)
	params := pr.prefillLeg(pr.p.URL + "/v1/completions")
	params["remote_request_id"] = "x"
	if status, answer := pr.decodeLeg(params); status != 200 {
		t.Errorf("got %d %v, want 200", status, answer)
	}
	if got := pr.other.Stats(); got.ClaimsRefused != 1 || got.TransferredTokens != 0 {
		t.Errorf("%+v", got)
	}
}

func TestPrefillLegRefused(t *testing.T) {
	pr := newPair(t, fast(), 1)
	for body, text := range map[string]string{
		`"stream":true,"kv_transfer_params":{"do_remote_decode":true}`:            "Prefill does not support streaming",
		`"n":2,"kv_transfer_params":{"do_remote_decode":true}`:                    "2 sequences",
		`"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":true}`: "exclude each other",
		`"kv_transfer_params":{"do_remote_decode":"true"}`:                        "should be booleans",
		`"kv_transfer_params":[]`:                                                 "valid dictionary",
	} {
		status, answer := pr.post(pr.p.URL+"/v1/completions", `{`+kvPrompt+`,"max_tokens":1,`+body+`}`)
		wantError(t, status, answer, 400, text)
	}
	// Neither is asked for: an ordinary request.
	status, answer := pr.post(pr.p.URL+"/v1/completions", `{`+kvPrompt+`,"max_tokens":1,"kv_transfer_params":{"do_remote_decode":false}}`)
	if _, has := answer["kv_transfer_params"]; status != 200 || has {
		t.Errorf("got %d %v, want 200 without kv_transfer_params", status, answer)
	}
}

// A lease pins blocks that a waiting request needs; when it expires the request runs.
func TestLeaseExpiryLetsTheQueueOn(t *testing.T) {
	set := fast()
	set.NumGPUBlocks, set.MaxModelLen = 4, 64
	b := newBench(t, set)
	p := b.put(ids(0, 40), 1)
	p.hold = &handout{RemoteRequestID: "r"}
	b.until(t, b.finished(p))
	s := b.put(ids(100, 30), 1)
	b.clock.advance(29 * time.Second)
	if b.progress(s).done {
		t.Fatal("the request ran in blocks that a lease pins")
	}
	b.clock.advance(2 * time.Second)
	if !b.progress(s).done {
		t.Fatal("the lease has expired, but the request does not run")
	}
	if st := b.Stats(); st.LeasesExpired != 1 {
		t.Errorf("%d leases expired, want 1", st.LeasesExpired)
	}
	b.idle(t)
}

// The decode engine works on other requests while KV is under way, and gives the
// lease back when the client leaves before it has arrived.
func TestLoadingTakesTime(t *testing.T) {
	set := fast()
	set.TransferTokensPerSecond = 40
	c := newFakeClock()
	peers := NewPeers()
	p, _ := New(set, c.clock(), peers)
	d, _ := New(set, c.clock(), peers)
	pb, db := &bench{p, c, c.Now()}, &bench{d, c, c.Now()}
	leg := func() *sequence {
		first := pb.put(ids(0, 40), 1)
		first.hold = &handout{RemoteRequestID: randomHex(4)}
		pb.until(t, pb.finished(first))
		h := *first.hold
		cl, err := peers.takeClaim(context.Background(), &h, promptHash(first.root, first.prompt))
		if err != nil {
			t.Fatal(err)
		}
		s := &sequence{prompt: first.prompt, root: first.root, notify: make(chan struct{}, 1), claim: cl, script: first.script}
		d.submit([]*sequence{s})
		return s
	}
	s := leg()
	start := c.Now()
	other := db.put(ids(100, 10), 5)
	db.until(t, db.finished(other))
	if got := c.Now().Sub(start); got != 50*ms {
		t.Errorf("a request beside the load took %v, want 50ms", got)
	}
	db.until(t, db.finished(s))
	// 40 tokens at 40 a second, then one step for the last token.
	if got := c.Now().Sub(start); got != 1010*ms {
		t.Errorf("first token after %v, want 1.01s", got)
	}
	d.ResetCache()
	s = leg()
	c.advance(500 * ms)
	if p.Stats().Leases != 1 {
		t.Fatal("the lease ended while its KV was loaded")
	}
	d.cancel([]*sequence{s})
	pb.idle(t)
	db.idle(t)
}

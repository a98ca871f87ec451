package calinix_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// keyless is a request without a key and without a beginning that could be shared.
const keyless = `{"model":"m","prompt":"x"}`

// playNoKey: with one pod busy the others get what has no key, in turn.
func playNoKey(t *testing.T, p *stage) {
	h := p.busy(t)
	first := p.decide(t, "/v1/completions", keyless).Pod()
	second := p.decide(t, "/v1/completions", keyless).Pod()
	if first == second || first == "a" || second == "a" {
		t.Errorf("a is busy: went to %s, then to %s", first, second)
	}
	h.release(t, p.ps)
}

// playNoLoad: in turn, in the order of the configuration.
func playNoLoad(t *testing.T, p *stage) { p.inTurn(t, "/v1/completions", keyless) }

func playNotJSON(t *testing.T, p *stage) { p.inTurn(t, chatPath, `{"model":`) }

func playNoPrompt(t *testing.T, p *stage) { p.inTurn(t, "/tokenize", `{"model":"m","prompt":"x"}`) }

// inTurn sends the same request again and again.
func (p *stage) inTurn(t *testing.T, path, body string) {
	t.Helper()
	for i := range 4 {
		if got, want := p.decide(t, path, body).Pod(), p.ps[i%3].Name; got != want {
			t.Errorf("request %d went to %s, want %s", i, got, want)
		}
		p.waitNone(t)
	}
}

// playRingEmpty: a request is on its way when a reload changes the number of virtual
// nodes; the ring on which its key would be looked up is no more.
func playRingEmpty(t *testing.T, p *stage) {
	h := p.busy(t)
	p.mark(t)
	body, headers := keyed("a key", "What is the answer?")
	slow := startUpload(t, p.cl, chatPath, body, headers...)
	p.conf.in("hashing")["virtualNodes"] = 100
	p.reload(t)
	a := slow.finish(t)
	p.compare(t, a)
	if a.Pod() == "a" {
		t.Errorf("a is busy: %v", a)
	}
	h.release(t, p.ps)
	home := p.ask(t, "a key").Pod()
	if again := p.ask(t, "a key"); again.Pod() != home || again.Header.Get("X-Calinix-Route-Policy") != p.strategy {
		t.Errorf("on the new ring: at %s, then %v", home, again)
	}
}

// elsewhere wants the key at one other pod while it cannot be at home.
func (p *stage) elsewhere(t *testing.T, home string) {
	t.Helper()
	next := ""
	for range 3 {
		a := p.decideKeyed(t, "a key")
		if a.Pod() == home || next != "" && a.Pod() != next {
			t.Errorf("home is %s: %v, before at %q", home, a, next)
		}
		next = a.Pod()
		p.waitNone(t)
	}
}

// atHome wants the key at home.
func (p *stage) atHome(t *testing.T, home string) {
	t.Helper()
	if a := p.ask(t, "a key"); a.Pod() != home {
		t.Errorf("at home again is %s: %v", home, a)
	}
}

func playKeyDown(t *testing.T, p *stage) {
	home := p.ask(t, "a key").Pod()
	p.ps.Pod(home).Healthy(false)
	p.waitUp(t, false, home)
	p.elsewhere(t, home)
	p.ps.Pod(home).Healthy(true)
	p.waitUp(t, true, home)
	p.atHome(t, home)
}

func playKeyDrained(t *testing.T, p *stage) {
	home := p.ask(t, "a key").Pod()
	drain(t, p.Caddy, home, "drain")
	p.elsewhere(t, home)
	drain(t, p.Caddy, home, "undrain")
	p.atHome(t, home)
}

func playKeyFailed(t *testing.T, p *stage) {
	home := p.ask(t, "a key").Pod()
	p.ps.Pod(home).Crash()
	p.elsewhere(t, home)
}

// playKeyBusy: one request of the key runs at its pod. That is its share of the load,
// or all that it may have.
func playKeyBusy(t *testing.T, p *stage) {
	home := p.ask(t, "a key").Pod()
	at := slices.IndexFunc(p.ps, func(q *fakepod.Pod) bool { return q.Name == home })
	h := p.hold(t, p.ps[at:at+1])
	body, headers := keyed("a key", "What is the answer?")
	if got := h.send(t, p.ps, http.MethodPost, chatPath, body, headers...); got != home {
		t.Fatalf("at %s, home is %s", got, home)
	}
	a := p.decideKeyed(t, "a key")
	if a.Pod() == home {
		t.Errorf("home is %s: %v", home, a)
	}
	h.release(t, p.ps)
	p.atHome(t, home)
}

// playPodComes: keys move to the pod that comes, and nowhere else.
func playPodComes(t *testing.T, p *stage) {
	const keys = 60
	home := map[string]string{}
	for k := range keys {
		key := fmt.Sprint("key ", k)
		home[key] = p.ask(t, key).Pod()
	}
	p.mark(t)
	p.conf.in("upstreams", "single")["pods"] = p.all
	p.reload(t)
	moved := 0
	for key, before := range home {
		if a := p.ask(t, key); a.Pod() != before {
			if moved++; a.Pod() != "f" {
				t.Errorf("%s went from %s to %s", key, before, a.Pod())
			}
			if moved == 1 {
				p.compare(t, a)
			}
		}
	}
	if moved == 0 || moved > keys/3 {
		t.Errorf("%d of %d keys moved to one of six pods", moved, keys)
	}
}

func playNewPrompt(t *testing.T, p *stage) {
	got := map[string]int{}
	for i := range 12 {
		a := p.decide(t, chatPath, chat(words(fmt.Sprint("new", i), 40)))
		if hit := a.Header.Get("X-Calinix-Cache-Hit"); hit != "false" {
			t.Errorf("hit %s: %v", hit, a)
		}
		got[a.Pod()]++
		p.waitNone(t)
	}
	if len(got) < 2 {
		t.Errorf("12 prompts went to %v", got)
	}
}

func playIndexOff(t *testing.T, p *stage) {
	prompt, home := chat(words("same", 100)), ""
	for range 3 {
		a := p.decide(t, chatPath, prompt)
		if a.Header.Get("X-Calinix-Cache-Hit") != "false" || a.Header.Get("X-Calinix-Cache-Prefix-Depth") != "0" || home != "" && a.Pod() != home {
			t.Errorf("%v, before at %q", a, home)
		}
		home = a.Pod()
		p.waitNone(t)
	}
	h := p.hold(t, p.ps)
	if at := h.send(t, p.ps, http.MethodPost, chatPath, prompt); at != home {
		t.Errorf("went to %s, before to %s", at, home)
	}
	if at := h.send(t, p.ps, http.MethodPost, chatPath, prompt); at == home {
		t.Errorf("%s is busy and is asked again", at)
	}
	h.release(t, p.ps)
}

func playAllDown(t *testing.T, p *stage) {
	for _, q := range p.ps {
		q.Healthy(false)
	}
	p.waitUp(t, false, "a", "b", "c")
	p.decideKeyed(t, "a key")
	if n := p.ps.Total(); n != 0 {
		t.Errorf("%d requests at the pods", n)
	}
}

func playAllFull(t *testing.T, p *stage) {
	h := p.hold(t, p.ps)
	for range 2 {
		h.send(t, p.ps, http.MethodPost, chatPath, question)
	}
	p.decideKeyed(t, "a key")
	h.release(t, p.ps)
	p.ask(t, "a key")
}

// playHeldFull: both pods are full, and one request waits.
func playHeldFull(t *testing.T, p *stage) {
	h := p.hold(t, p.ps)
	for range 2 {
		h.send(t, p.ps, http.MethodPost, chatPath, question)
	}
	waiting := make(chan *testcaddy.Answer, 1)
	cl := p.Client(t, testcaddy.H1)
	go func() { waiting <- cl.Post(t, chatPath, question) }()
	p.waitCount(t, 1, "calinix_held")
	p.decideKeyed(t, "a key")
	h.release(t, p.ps)
	if a := <-waiting; a.Status != 200 {
		t.Errorf("the request that waited: %v", a)
	}
}

func playModelDown(t *testing.T, p *stage) {
	drain(t, p.Caddy, "a", "drain")
	drain(t, p.Caddy, "b", "drain")
	p.decideKeyed(t, "a key")
	if n := p.ps.Total(); n != 0 {
		t.Errorf("%d requests at the pods", n)
	}
}

func playModelFull(t *testing.T, p *stage) {
	h := p.hold(t, p.ps)
	h.send(t, p.ps, http.MethodPost, chatPath, question)
	p.decideKeyed(t, "a key")
	h.release(t, p.ps)
	p.ask(t, "a key")
}

func playModelUnknown(t *testing.T, p *stage) {
	for i := range 12 {
		p.decide(t, chatPath, forModel("nobody's", words(fmt.Sprint("p", i), 20), fmt.Sprintf(`"prefix":"%d"`, i)), "X-Session-ID", fmt.Sprint(i))
		p.waitNone(t)
	}
	got := p.ps.Counts()
	maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
	if passed := p.conf.in("gateway")["unknownModel"] == "pass"; passed != (len(got) > 0) {
		t.Errorf("12 requests went to %v", got)
	}
}

func playAlias(t *testing.T, p *stage) {
	a := p.decide(t, chatPath, forModel("alias", "x", `"prefix":"x"`), "X-Session-ID", "x")
	if got, want := string(p.ps.Pod(a.Pod()).Last(t).Body), forModel("m", "x", `"prefix":"x"`); got != want {
		t.Errorf("the pod got %s, want %s", got, want)
	}
}

func playNoSuchMode(t *testing.T, p *stage) {
	if a := p.decide(t, chatPath, question, "x-calinix-mode", "dispatch"); a.Header.Get("X-Calinix-Mode") != "single" {
		t.Errorf("%v", a)
	}
}

func playNoPrefill(t *testing.T, p *stage) {
	p.waitUp(t, false, "a")
	if a := p.decideKeyed(t, "a key"); a.Header.Get("X-Calinix-Prefill-Pod-Id") != "" {
		t.Errorf("%v", a)
	}
}

//go:build llama

package llama

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/testbin"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// engine is one llama-server.
type engine struct {
	id, url string
	port    int
	model   string
	process *testcaddy.Process
}

// program is llama-server. build.sh builds the version; it is looked for where the
// tests of this package run.
var program = testbin.Program{
	Name: "llama-server", Version: "3.21.1",
	Build: func(dir string) *exec.Cmd { return exec.Command("bash", "build.sh", dir) },
}

// start starts it, and again after it was killed; it returns when the model is
// loaded.
func (e *engine) start(t *testing.T) {
	t.Helper()
	path, err := program.Path()
	if err != nil {
		t.Fatal(err)
	}
	e.process = testcaddy.StartProcess(t, testcaddy.ProcessOptions{
		Path: path, Env: []string{"LD_LIBRARY_PATH=" + filepath.Dir(path)},
		Args: []string{
			"-m", e.model, "--host", "127.0.0.1", "--port", strconv.Itoa(e.port),
			"-c", "16384", "-np", "2", "-t", "1", "-tb", "1", "--metrics", "--slots", "--no-ui",
		},
	})
	e.process.WaitReady(t, e.url+"/health")
}

// fleet is two engines behind the real binary.
type fleet struct {
	engines    map[string]*engine
	url, admin string
	client     *http.Client
}

// newFleet starts them; health are lines of the section of that name.
func newFleet(t *testing.T, health string) *fleet {
	t.Helper()
	dir := t.TempDir()
	model := filepath.Join(dir, "small.gguf")
	out, err := os.Create(model)
	if err != nil {
		t.Fatal(err)
	}
	small := Small()
	if err := small.Write(out); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	f := &fleet{engines: map[string]*engine{}, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(f.client.CloseIdleConnections)
	pods := ""
	for _, id := range []string{"a", "b"} {
		port := testcaddy.Port(t)
		e := &engine{id: id, port: port, url: fmt.Sprintf("http://127.0.0.1:%d", port), model: model}
		f.engines[id] = e
		e.start(t)
		pods += fmt.Sprintf("pod %s %s\n", id, e.url)
	}
	port, admin := testcaddy.Port(t), testcaddy.Port(t)
	f.url, f.admin = fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://localhost:%d", admin)
	caddyfile := fmt.Sprintf("{\nadmin localhost:%d\n}\nhttp://:%d {\ncalinix {\nhealth {\n%s\n}\nsingle {\n%s}\n}\n}\n", admin, port, health, pods)
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(caddyfile), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testcaddy.StartProcess(t, testcaddy.ProcessOptions{Path: testcaddy.Binary(t), Dir: dir, Args: []string{"run", "--config", "Caddyfile"}})
	p.WaitReady(t, f.url+"/v1/models")
	return f
}

// pod is what the admin API says of a pod.
type pod struct {
	ID     string
	Up     bool
	Stale  bool
	Blocks int
}

func (f *fleet) pod(t *testing.T, id string) pod {
	t.Helper()
	resp, err := f.client.Get(f.admin + "/calinix/pods")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []pod
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.ID == id {
			return p
		}
	}
	t.Fatalf("no pod %q", id)
	return pod{}
}

// wait waits until cond is true of the pod.
func (f *fleet) wait(t *testing.T, id, what string, cond func(pod) bool) {
	t.Helper()
	for end := time.Now().Add(3 * testcaddy.Patience); !cond(f.pod(t, id)); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("pod %s is not %s: %+v", id, what, f.pod(t, id))
		}
	}
}

// chat is a conversation.
type chat struct {
	messages []message
	home     string
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// turn is what one turn has shown.
type turn struct {
	pod            string
	first          time.Duration // to the first token
	prompt, cached int           // tokens, by the engine
}

// say sends the conversation, as a stream, and adds the answer to it.
func (f *fleet) say(t *testing.T, c *chat, text string) (s turn) {
	t.Helper()
	c.messages = append(c.messages, message{"user", text})
	body, err := json.Marshal(map[string]any{
		"model": "m", "messages": c.messages, "max_tokens": 4, "temperature": 0,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	resp, err := f.client.Post(f.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s", resp.Status)
	}
	s.pod = resp.Header.Get("X-Calinix-Target-Pod-Id")
	answer, done := "", false
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if s.first == 0 {
			s.first = time.Since(began)
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var event struct {
			Choices []struct {
				Delta struct{ Content string }
			}
			Usage struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for _, choice := range event.Choices {
			answer += choice.Delta.Content
		}
		if event.Usage.Prompt > 0 {
			s.prompt, s.cached = event.Usage.Prompt, event.Usage.Details.Cached
		}
	}
	if lines.Err() != nil || !done || s.prompt == 0 || answer == "" {
		t.Fatalf("an answer of %q, done %v: %v", answer, done, lines.Err())
	}
	c.messages = append(c.messages, message{"assistant", answer})
	return s
}

// text is words of which nobody else's begin the same.
func text(name string, words int) string {
	var b strings.Builder
	for i := range words {
		fmt.Fprintf(&b, "%s-%d ", name, i*7919%10007)
	}
	return b.String()
}

// TestFollowUps: the later turns of a chat come to the engine that holds the
// earlier ones, which says so; a killed engine loses its credit.
func TestFollowUps(t *testing.T) {
	f := newFleet(t, "interval 100ms\ntimeout 20s\nunhealthy_threshold 2\nhealthy_threshold 2")
	const fewest, most, turns = 4, 20, 3
	var all []chat
	var cold, warm time.Duration
	homes := map[string]int{}
	for len(all) < fewest || len(homes) < 2 { // idle engines share new chats by a hash
		if len(all) == most {
			t.Fatalf("%d chats with nothing in common are at %v", most, homes)
		}
		var c chat
		s := f.say(t, &c, text(fmt.Sprint("chat", len(all)), 150))
		if s.cached > s.prompt/10 {
			t.Errorf("of a new chat the engine has found %d of %d tokens", s.cached, s.prompt)
		}
		c.home = s.pod
		homes[s.pod]++
		cold += s.first
		all = append(all, c)
	}
	for n := 1; n < turns; n++ {
		for k := range all {
			c := &all[k]
			s := f.say(t, c, text(fmt.Sprintf("chat%d.%d", k, n), 6))
			switch {
			case s.pod != c.home:
				t.Errorf("chat %d, turn %d is at %s, the first was at %s", k, n, s.pod, c.home)
			case float64(s.cached) < 0.9*float64(s.prompt):
				t.Errorf("chat %d, turn %d: the engine has found %d of %d tokens", k, n, s.cached, s.prompt)
			}
			warm += s.first
		}
	}
	first, later := cold/time.Duration(len(all)), warm/time.Duration(len(all)*(turns-1))
	t.Logf("first turns at %v; mean time to their first byte %v, of later turns %v: ratio %.3f", homes, first, later, later.Seconds()/first.Seconds())

	// The engine of the first chat is killed.
	c := &all[0]
	dead := f.engines[c.home]
	if f.pod(t, dead.id).Blocks == 0 {
		t.Fatal("it holds nothing")
	}
	dead.process.Kill()
	f.wait(t, dead.id, "down without credit", func(p pod) bool { return !p.Up && p.Blocks == 0 })
	s := f.say(t, c, "are you there?")
	if s.pod == dead.id || s.cached > s.prompt/10 {
		t.Errorf("with its engine down, the chat is at %s, which has found %d of %d tokens", s.pod, s.cached, s.prompt)
	}
	dead.start(t)
	f.wait(t, dead.id, "up without credit", func(p pod) bool { return p.Up && p.Blocks == 0 })
	if again := f.say(t, c, "and now?"); again.pod != s.pod || float64(again.cached) < 0.9*float64(again.prompt) {
		t.Errorf("with its first engine back, the chat is at %s and not at %s, which has found %d of %d tokens", again.pod, s.pod, again.cached, again.prompt)
	}
}

// TestUnseenRestart: an engine that was restarted between two probes is found out
// by what it says of its cache.
func TestUnseenRestart(t *testing.T) {
	f := newFleet(t, "interval 1h\ntimeout 20s")
	const chats = 24
	all := make([]chat, chats)
	homes := map[string]int{}
	for k := range all {
		all[k].home = f.say(t, &all[k], text(fmt.Sprint("chat", k), 200)).pod
		homes[all[k].home]++
	}
	victim := "a"
	if homes["b"] > homes["a"] {
		victim = "b"
	}
	e := f.engines[victim]
	e.process.Kill()
	e.start(t)
	if p := f.pod(t, victim); !p.Up || p.Stale || p.Blocks == 0 {
		t.Fatalf("after an unseen restart: %+v", p)
	}
	before := f.pod(t, victim).Blocks
	told := 0
	for k := range all {
		if all[k].home != victim {
			continue
		}
		s := f.say(t, &all[k], "go on")
		told++
		if p := f.pod(t, victim); p.Stale {
			t.Logf("stale after %d answers, %d of %d blocks are left", told, p.Blocks, before)
			if p.Blocks > before*2/3 {
				t.Error("its entries are not halved")
			}
			return
		}
		if s.pod == victim && s.cached > s.prompt/2 {
			t.Errorf("the new engine has found %d of %d tokens", s.cached, s.prompt)
		}
	}
	t.Errorf("%d answers of a new engine, and it is believed: %+v", told, f.pod(t, victim))
}

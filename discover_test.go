package calinix_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// podFile is a file with pods, for the source file.
type podFile string

func newPodFile(t testing.TB, pods fakepod.Pods) podFile {
	t.Helper()
	f := podFile(filepath.Join(t.TempDir(), "pods.yaml"))
	f.write(t, pods)
	return f
}

// write replaces the file in one step.
func (f podFile) write(t testing.TB, pods fakepod.Pods, more ...string) {
	t.Helper()
	text := "pods:\n"
	for _, p := range pods {
		text += fmt.Sprintf("  - {id: %s, url: %q%s}\n", p.Name, p.URL, strings.Join(more, ""))
	}
	if len(pods) == 0 {
		text = "pods: []\n"
	}
	next := string(f) + ".new"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, string(f)); err != nil {
		t.Fatal(err)
	}
}

// waitPods waits until the site's pods are these.
func (s *site) waitPods(t testing.TB, want ...string) {
	t.Helper()
	s.WaitMetrics(t, "the pods "+strings.Join(want, " "), func(m testcaddy.Metrics) bool {
		for _, id := range want {
			if m.Sum("calinix_pod_up", "balancer", s.balancer, "pod", id) != 1 {
				return false
			}
		}
		return m.Sum("calinix_pod_up", "balancer", s.balancer) == float64(len(want))
	})
}

// Pods come and go while streams run: those that went finish them and get nothing
// new, whoever comes gets requests.
func TestDiscoverFile(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	file := newPodFile(t, ps[:2])
	s := serve(t, quickHealth+"single {\ndiscover file "+string(file)+"\n}\n", testcaddy.Plain())
	s.waitPods(t, "a", "b")
	ps.Set(fakepod.Reply{Chunks: 10, Gap: 100 * time.Millisecond})
	cl := s.Client(t, testcaddy.H1)
	first, second := startStream(t, cl, chat("one", `"stream":true`)), startStream(t, cl, chat("two", `"stream":true`))
	if first.pod == second.pod {
		t.Fatalf("both streams are at %s", first.pod)
	}
	ps.Set(fakepod.Reply{})
	file.write(t, ps[1:])
	s.waitPods(t, "b", "c")
	for range 6 {
		if a := cl.Post(t, chatPath, chat("three")); a.Status != 200 || a.Pod() == "a" {
			t.Errorf("after a has gone: %v", a)
		}
	}
	first.wantWhole(t)
	second.wantWhole(t)
	if n := s.count(t, "calinix_endpoint_changes_total", "change_type", "removed"); n != 1 {
		t.Errorf("%v pods were removed, want 1", n)
	}
	if n := s.count(t, "calinix_endpoint_changes_total", "change_type", "added"); n != 3 {
		t.Errorf("%v pods were added, want 3", n)
	}
	if n := s.count(t, "calinix_endpoint_refresh_duration_seconds_count"); n < 2 {
		t.Errorf("%v reports, want 2 or more", n)
	}
	file.write(t, nil)
	s.waitPods(t)
	if a := cl.Post(t, chatPath, chat("four")); a.Status != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("without pods: %v", a)
	}
	s.waitIdle(t, ps)
}

// Pods that come and go are counted for each of their models.
func TestDiscoverMetrics(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	file := newPodFile(t, nil)
	file.write(t, ps[:1], ", models: [big, small]")
	s := serve(t, quickHealth+"single {\ndiscover file "+string(file)+"\n}\n", testcaddy.Plain())
	file.write(t, ps, ", models: [big, small]")
	s.waitPods(t, "a", "b", "c")
	file.write(t, ps[1:], ", models: [big]")
	s.waitPods(t, "b", "c")
	for _, c := range []struct {
		model                 string
		added, removed, there float64
	}{{"big", 3, 1, 2}, {"small", 3, 1, 0}} {
		s.waitCount(t, c.added, "calinix_endpoint_changes_total", "model", c.model, "change_type", "added")
		s.waitCount(t, c.removed, "calinix_endpoint_changes_total", "model", c.model, "change_type", "removed")
		s.waitCount(t, c.there, "calinix_endpoint_count", "model", c.model)
	}
}

// A pod that is reported as draining finishes its streams and gets nothing new.
func TestDiscoverDraining(t *testing.T) {
	ps := pods(t, "a")
	file := newPodFile(t, ps)
	s := serve(t, quickHealth+"single {\ndiscover file "+string(file)+"\n}\n", testcaddy.Plain())
	ps.Set(fakepod.Reply{Chunks: 10, Gap: 100 * time.Millisecond})
	st := startStream(t, s.Client(t, testcaddy.H1), chat("one", `"stream":true`))
	file.write(t, ps, ", draining: true")
	eventually(t, "a draining", func() bool { return s.pod(t, "a").Draining })
	if a := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("two")); a.Status != 503 {
		t.Errorf("with its only pod draining: %v", a)
	}
	st.wantWhole(t)
}

// Listed pods and found ones stand side by side, and a pod that both legs find
// serves both.
func TestDiscoverBesideListed(t *testing.T) {
	ps := pods(t, "a", "b", "both", "d")
	one, two := newPodFile(t, ps[1:2]), newPodFile(t, ps[2:3])
	three := newPodFile(t, ps[2:4])
	s := serve(t, quickHealth+"single {\npod a "+ps[0].URL+"\ndiscover file "+string(one)+"\n}\n"+
		"dispatch {\nconnector plain\nprefill {\ndiscover file "+string(two)+"\n}\ndecode {\ndiscover file "+string(three)+"\n}\n}\n", testcaddy.Plain())
	m := s.Metrics(t)
	for _, want := range []string{"a single", "b single", "both prefill", "both decode", "d decode"} {
		id, role, _ := strings.Cut(want, " ")
		if !m.Has("calinix_pod_up", "balancer", s.balancer, "pod", id, "role", role) {
			t.Errorf("no pod %s with the role %s", id, role)
		}
	}
	if n := len(s.pods(t)); n != 4 {
		t.Errorf("%d pods, want 4", n)
	}
	a := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("x"), "x-calinix-mode", "dispatch")
	if a.Status != 200 || a.Header.Get("X-Calinix-Prefill-Pod-Id") != "both" || a.Header.Get("X-Calinix-Decode-Pod-Id") != "d" {
		t.Errorf("dispatch: %v", a)
	}
}

// A reload that keeps the source, or replaces it by another, keeps the pods and
// what is known of them until the new one reports.
func TestDiscoverOverReload(t *testing.T) {
	ps := pods(t, "a", "b")
	file := newPodFile(t, ps)
	keys := quickHealth + "single {\ndiscover file " + string(file) + "\n}\n"
	s := serve(t, keys, testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	long := chat(strings.Repeat("some words of a prompt ", 40))
	warm := cl.Post(t, chatPath, long)
	missing := filepath.Join(t.TempDir(), "not-yet.yaml")
	for i, next := range []string{keys + "retries 2\n", strings.ReplaceAll(keys, string(file), missing)} {
		s.reload(t, next)
		a := s.Client(t, testcaddy.H1).Post(t, chatPath, long)
		if a.Status != 200 || a.Pod() != warm.Pod() || a.Header.Get("X-Calinix-Cache-Hit") != "true" {
			t.Errorf("after reload %d: %v", i, a)
		}
	}
	s.waitCount(t, 1, "calinix_discovery_failing", "list", "single", "source", "file")
	s.Log.Wait(t, 0, "that the file cannot be read", func(e testcaddy.Entry) bool {
		return e.Level == "error" && strings.HasPrefix(e.Msg, "cannot find out which pods there are") && e.Has("source", "file")
	})
	podFile(missing).write(t, ps[1:])
	s.waitPods(t, "b")
	s.waitCount(t, 0, "calinix_discovery_failing")
}

// A source that failed before a reload and finds its pods after it no longer fails.
func TestDiscoverFailingOverReload(t *testing.T) {
	ps := pods(t, "a", "b")
	file := podFile(filepath.Join(t.TempDir(), "not-yet.yaml"))
	keys := quickHealth + "single {\npod a " + ps[0].URL + "\ndiscover file " + string(file) + "\n}\n"
	s := serve(t, keys, testcaddy.Plain())
	s.waitCount(t, 1, "calinix_discovery_failing")
	file.write(t, ps[1:])
	s.reload(t, keys+"retries 2\n")
	s.waitPods(t, "a", "b")
	s.waitCount(t, 0, "calinix_discovery_failing")
}

// A pod that cannot be taken is left out, and the log says why.
func TestDiscoverRefused(t *testing.T) {
	ps := pods(t, "a")
	file := newPodFile(t, ps)
	s := serve(t, quickHealth+"single {\npod a http://127.0.0.1:1\ndiscover file "+string(file)+"\n}\n", testcaddy.Plain())
	s.Log.Wait(t, 0, "the refusal", func(e testcaddy.Entry) bool {
		return e.Has("balancer", s.balancer) && strings.Contains(e.Msg, "a pod that was found is left out")
	})
	if n := len(s.pods(t)); n != 1 {
		t.Errorf("%d pods, want the listed one", n)
	}
}

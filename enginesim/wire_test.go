package enginesim

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWire plays testdata/wire, which is typed from what the engines' documentation
// and proxies say: the two legs meet, and what is wrong is refused with the status
// and the words that the head of each refusal has.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no exchanges", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(string(text), "\n-- ")
			head := map[string]string{}
			for line := range strings.Lines(parts[0]) {
				if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && name[0] != '#' {
					head[name] = value
				}
			}
			peers := NewPeers()
			engine := func(role string, kvPort int) *httptest.Server {
				set := fast()
				set.KVConnector, set.KVWaitTimeout = head["connector"], Duration(300*time.Millisecond)
				set.EngineID, set.KVAddress = role[:1]+"-engine", fmt.Sprintf("127.0.0.1:%d", kvPort)
				if head["roles"] != "" {
					set.Role = role
				}
				e, err := New(set, SystemClock(), peers)
				if err != nil {
					t.Fatal(err)
				}
				s := httptest.NewServer(e)
				t.Cleanup(s.Close)
				return s
			}
			at := map[string]string{"prefill": engine("prefill", 5600).URL, "decode": engine("decode", 5601).URL}
			post := func(leg, body string) (int, string) {
				req, err := http.NewRequest(http.MethodPost, at[leg]+"/v1/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return 0, ""
				}
				req.Header.Set("X-Request-Id", head["x-request-id"])
				w := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				resp, err := w.Do(req)
				if err != nil {
					t.Error(err)
					return 0, ""
				}
				defer resp.Body.Close()
				var b strings.Builder
				_ = resp.Write(&b)
				return resp.StatusCode, b.String()
			}
			prefilled := make(chan string, 1)
			for _, part := range parts[1:] {
				name, body, _ := strings.Cut(part, " --\n")
				switch kind, want, _ := strings.Cut(name, " "); kind {
				case "prefill":
					go func() {
						status, answer := post("prefill", body)
						prefilled <- fmt.Sprint(status, " ", answer)
					}()
				case "decode":
					status, answer := post("decode", body)
					if status != 200 || !strings.Contains(answer, `"cached_tokens":2`) {
						t.Errorf("decode leg: %s", answer)
					}
					if p := <-prefilled; !strings.HasPrefix(p, "200") {
						t.Errorf("prefill leg: %s", p)
					}
				default:
					status, words, _ := strings.Cut(want, " ")
					got, answer := post("decode", body)
					if fmt.Sprint(got) != status || !strings.Contains(strings.ReplaceAll(answer, `\"`, `"`), words) {
						t.Errorf("%s\nwant %s, got %s", body, want, answer)
					}
				}
			}
		})
	}
}

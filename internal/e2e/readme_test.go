package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// root is the checkout.
const root = "../.."

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is a fenced block of a page.
type block struct {
	language string
	line     int // of its first line
	text     string
}

func readmeBlocks(t *testing.T) []block {
	t.Helper()
	return blocksOf(t, "README.md")
}

func blocksOf(t *testing.T, page string) (blocks []block) {
	t.Helper()
	var open *block
	for n, line := range strings.Split(readFile(t, page), "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{language: strings.TrimSpace(language), line: n + 2}
		case fence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: a block without an end", page, open.line)
	}
	return blocks
}

// TestReadmeCommands types what the README tells people to type: it starts
// Caddyfile.example with the real binary, as "go run ./cmd/caddy" builds it, and
// runs every curl command against it, with free ports in place of the fixed ones.
func TestReadmeCommands(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatalf("%v: this test needs curl", err)
	}
	if readme := readFile(t, "README.md"); !strings.Contains(readme, "\ngo run ./cmd/caddy run --config Caddyfile.example\n") {
		t.Error("README.md does not start Caddyfile.example as this test does")
	}
	admin := testcaddy.Port(t)
	ports := []string{"8443", strconv.Itoa(testcaddy.Port(t)), "9101", strconv.Itoa(testcaddy.Port(t)), "9102", strconv.Itoa(testcaddy.Port(t)), "2019", strconv.Itoa(admin)}
	example := readFile(t, "Caddyfile.example")
	for k := 0; k < 6; k += 2 {
		if !strings.Contains(example, ":"+ports[k]) {
			t.Fatalf("Caddyfile.example has no port %s any more", ports[k])
		}
	}
	free := strings.NewReplacer(ports...)
	dir := t.TempDir()
	write(t, dir, "Caddyfile.example", free.Replace(example))
	p := testcaddy.StartProcess(t, testcaddy.ProcessOptions{
		Args: []string{"run", "--config", "Caddyfile.example", "--adapter", "caddyfile"}, Dir: dir,
		Env: []string{fmt.Sprintf("CADDY_ADMIN=localhost:%d", admin)},
	})
	p.WaitReady(t, "https://localhost:"+ports[1]+"/v1/models")

	streamed, decided, explained := 0, 0, 0
	for _, b := range readmeBlocks(t) {
		if b.language != "sh" || !strings.Contains(b.text, "curl ") {
			continue
		}
		t.Run(fmt.Sprint("line ", b.line), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			script := strings.ReplaceAll(free.Replace(b.text), "curl ", curl+" ")
			cmd := exec.CommandContext(ctx, "sh", "-e", "-c", script)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("README.md:%d: %v\n%s\n%s", b.line, err, script, out)
			}
			text := string(out)
			if strings.Contains(b.text, `"stream":true`) {
				streamed++
				if n := strings.Count(text, "\ndata: "); n < 10 || !strings.Contains(text, "\ndata: [DONE]\n") || strings.Contains(text, `"error"`) {
					t.Errorf("README.md:%d: no streamed answer:\n%s", b.line, text)
				}
			}
			if strings.Contains(b.text, "x-calinix") {
				decided++
				for _, want := range []string{"x-calinix-mode: single", "x-calinix-target-pod-id: engine-", "x-calinix-cache-prefix-depth: "} {
					if !strings.Contains(strings.ToLower(text), want) {
						t.Errorf("README.md:%d: no %q:\n%s", b.line, want, text)
					}
				}
			}
			if strings.Contains(b.text, "/calinix/explain") {
				explained++
				var e struct{ Pick struct{ Pod string } }
				if err := json.Unmarshal(out, &e); err != nil || !strings.HasPrefix(e.Pick.Pod, "engine-") {
					t.Errorf("README.md:%d: %v:\n%s", b.line, err, text)
				}
			}
		})
	}
	if streamed == 0 || decided == 0 || explained == 0 {
		t.Errorf("README.md has %d commands that stream, %d that show the decision, %d that explain; want one of each at least", streamed, decided, explained)
	}
	if status := p.Stop(t); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
}

// TestReadmeCaddyfiles: every Caddyfile that we show, in the README and in docs, is
// one, and as caddy fmt would write it.
func TestReadmeCaddyfiles(t *testing.T) {
	texts := map[string]string{"Caddyfile.example": readFile(t, "Caddyfile.example")}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatal("no docs", err)
	}
	pages := []string{"README.md"}
	for _, doc := range docs {
		pages = append(pages, "docs/"+filepath.Base(doc))
	}
	for _, page := range pages {
		for _, b := range blocksOf(t, page) {
			if b.language == "caddyfile" {
				texts[fmt.Sprintf("%s, line %d", page, b.line)] = b.text
			}
		}
	}
	if len(texts) < 12 {
		t.Fatalf("only %d Caddyfiles", len(texts))
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			if formatted := string(caddyfile.Format([]byte(text))); formatted != text {
				t.Errorf("caddy fmt changes it to\n%s", formatted)
			}
			dir := t.TempDir()
			write(t, dir, "config.yaml", readFile(t, "config.yaml")) // that it may name
			write(t, dir, "Caddyfile", text)
			_, stderr, status := command(t, dir, "validate", "--config", "Caddyfile")
			if status != 0 {
				// a directive alone, to be put into a site
				write(t, dir, "Caddyfile", ":8080 {\n"+text+"}\n")
				var inSite string
				if _, inSite, status = command(t, dir, "validate", "--config", "Caddyfile"); status != 0 {
					t.Errorf("status %d\nas a Caddyfile:\n%s\nin a site:\n%s", status, stderr, inSite)
				}
			}
		})
	}
}

// TestConfigYAML: the config.yaml of the checkout, and those of the README, are
// valid.
func TestConfigYAML(t *testing.T) {
	texts := map[string]string{"config.yaml": readFile(t, "config.yaml")}
	for _, b := range readmeBlocks(t) {
		if b.language == "yaml" && strings.Contains(b.text, "upstreams:") {
			texts[fmt.Sprintf("README.md, line %d", b.line)] = b.text
		}
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "config.yaml", text)
			if _, stderr, status := command(t, dir, "calinix", "validate"); status != 0 {
				t.Errorf("status %d: %s", status, stderr)
			}
		})
	}
}

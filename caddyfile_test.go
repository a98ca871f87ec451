package calinix

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/calinix/caddy-calinix/config"
)

var rewriteAdapt = flag.Bool("rewrite-adapt", false, "write the expectations below testdata/adapt anew")

// adapt adapts a configuration as `caddy adapt` does.
func adapt(adapter, filename, input string) (string, []caddyconfig.Warning, error) {
	result, warnings, err := caddyconfig.GetAdapter(adapter).Adapt([]byte(input), map[string]any{"filename": filename})
	return string(result), warnings, err
}

// TestCaddyfileAdapt reads testdata/adapt/*.caddytest: a Caddyfile, a line of
// dashes, and the JSON that it adapts to.
func TestCaddyfileAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddytest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddytest"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(text), "----------\n")
			result, warnings, err := adapt("caddyfile", file, input)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings { // one is that caddy fmt would change it
				t.Errorf("warning: %v", w)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, []byte(result), "", "\t"); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			if *rewriteAdapt {
				if err := os.WriteFile(file, []byte(input+"----------\n"+got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got.String() != want {
				t.Errorf("got\n%s\nwant\n%s", got.String(), want)
			}
			decodesStrictly(t, result)
		})
	}
}

// decodesStrictly checks that Caddy will take the adapted calinix handlers.
func decodesStrictly(t *testing.T, result string) {
	t.Helper()
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if v["handler"] == "calinix" {
				delete(v, "handler")
				raw, _ := json.Marshal(v)
				if err := caddy.StrictUnmarshalJSON(raw, new(Handler)); err != nil {
					t.Errorf("Caddy refuses %s: %v", raw, err)
				}
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	var all any
	if err := json.Unmarshal([]byte(result), &all); err != nil {
		t.Fatal(err)
	}
	walk(all)
}

// TestCaddyfileRefusals reads testdata/adapt/refusals.txt.
func TestCaddyfileRefusals(t *testing.T) {
	const file = "testdata/adapt/refusals.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "\n=== ")
	out := parts[0]
	for _, part := range parts[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		lines, want, ok := strings.Cut(rest, "\n----")
		if !ok {
			t.Fatalf("case %q has no line of dashes", name)
		}
		input := lines + "\n"
		if !strings.HasPrefix(lines, ":") {
			// The block's lines keep their numbers.
			input = ":8080 {\ncalinix {\n" + lines + "\n}\n}\n"
		}
		_, _, err := adapt("caddyfile", "testdata/adapt/Caddyfile", input)
		if err == nil {
			t.Errorf("%s: was accepted", name)
			continue
		}
		got := err.Error()
		if i := strings.Index(got, "': "); i >= 0 && strings.HasPrefix(got, "parsing caddyfile tokens for") {
			got = got[i+len("': "):]
		}
		if got != strings.TrimSpace(want) && !*rewriteAdapt {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", name, got, strings.TrimSpace(want))
		}
		out += fmt.Sprintf("\n=== %s\n%s\n----\n%s\n", name, lines, got)
	}
	if *rewriteAdapt {
		if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefusedSubdirectives: each of them is reverse_proxy's own, and none of
// calinix's; a name that Caddy drops should be dropped here.
func TestRefusedSubdirectives(t *testing.T) {
	own := map[string]bool{}
	for _, name := range ownSubdirectives() {
		own[name] = true
	}
	for name := range refusedSubdirectives {
		d := caddyfile.NewTestDispenser("reverse_proxy {\n" + name + "\n}")
		if err := new(reverseproxy.Handler).UnmarshalCaddyfile(d); err != nil && unrecognized(err, name) || own[name] {
			t.Errorf("%s is not a subdirective of reverse_proxy, or one of calinix: %v", name, err)
		}
	}
}

// TestPairs reads testdata/adapt/pairs: a config.yaml and the Caddyfile that says
// the same adapt to the same, and so does a Caddyfile that names the config.yaml.
func TestPairs(t *testing.T) {
	folders, err := filepath.Glob("testdata/adapt/pairs/*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			read := func(name string) string {
				text, err := os.ReadFile(filepath.Join(folder, name))
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			written, warnings, err := adapt("caddyfile", filepath.Join(folder, "Caddyfile"), read("Caddyfile"))
			if err != nil || len(warnings) > 0 {
				t.Fatal(warnings, err)
			}
			fromYAML, _, err := adapt("calinix", filepath.Join(folder, "config.yaml"), read("config.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if fromYAML != written {
				t.Errorf("config.yaml gives\n%s\nthe Caddyfile\n%s", fromYAML, written)
			}
			address, _, _ := strings.Cut(read("Caddyfile"), " ")
			naming := address + " {\n\tcalinix {\n\t\tconfig config.yaml\n\t}\n}\n"
			named, warnings, err := adapt("caddyfile", filepath.Join(folder, "Caddyfile"), naming)
			if err != nil || len(warnings) > 0 {
				t.Fatal(warnings, err)
			}
			if named != written {
				t.Errorf("a Caddyfile with config.yaml gives\n%s\nthe one without\n%s", named, written)
			}
			decodesStrictly(t, written)
		})
	}
}

// TestEverythingIsEverything: the pair of that name leaves out no key of the
// schema, so that every key is known to adapt alike.
func TestEverythingIsEverything(t *testing.T) {
	text, err := os.ReadFile("testdata/adapt/pairs/everything/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file, _, err := config.Load("config.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	// Keys of other connectors than the file's, which the pair bootstrap has.
	elsewhere := map[string]bool{"bootstrap_host": true, "bootstrap_port": true}
	var missing func(section any, path string)
	missing = func(section any, path string) {
		for _, f := range config.Fields(section) {
			key := join(path, f.JSON)
			v := reflect.ValueOf(f.Ptr).Elem()
			if elsewhere[f.JSON] {
				continue
			}
			if f.JSON != "" && v.IsZero() {
				t.Errorf("%s is not in the file", key)
			} else if pods, ok := f.Ptr.(*[]config.Pod); ok {
				if strings.HasPrefix(path, "single") {
					missing(&(*pods)[0], key)
				}
			} else if deeper, ok := f.Section(); ok {
				missing(deeper, key)
			}
		}
	}
	missing(&file.Balancer, "")
}

// TestSyntaxComment: the comment that documents the directive has every key.
func TestSyntaxComment(t *testing.T) {
	source, err := os.ReadFile("caddyfile.go")
	if err != nil {
		t.Fatal(err)
	}
	_, comment, _ := strings.Cut(string(source), "// parseCalinix reads")
	comment, _, _ = strings.Cut(comment, "\nfunc ")
	var check func(section any)
	check = func(section any) {
		for _, f := range config.Fields(section) {
			switch {
			case f.JSON == "" || f.JSON == "id" || f.JSON == "url" || f.JSON == "pods":
			case !strings.Contains(comment, " "+f.JSON) && !strings.Contains(comment, "["+f.JSON):
				t.Errorf("the Syntax comment has no %s", f.JSON)
			}
			if deeper, ok := f.Section(); ok {
				check(deeper)
			}
		}
	}
	check(new(config.Balancer))
	check(new(config.Pod))
}

// FuzzCaddyfile: no block makes the parser panic or hang, and what it accepts is
// a handler that Caddy will take.
func FuzzCaddyfile(f *testing.F) {
	files, _ := filepath.Glob("testdata/adapt/*.caddytest")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		input, _, _ := strings.Cut(string(text), "----------\n")
		if _, block, ok := strings.Cut(input, "calinix {"); ok {
			f.Add(block[:strings.LastIndex(block, "\t}\n}")])
		}
	}
	f.Fuzz(func(t *testing.T, block string) {
		if strings.Contains(block, "import") || strings.Contains(block, "config") {
			return // they read files
		}
		result, _, err := adapt("caddyfile", "Caddyfile", ":8080 {\n\tcalinix {"+block+"\t}\n}")
		if err == nil {
			decodesStrictly(t, result)
		}
	})
}

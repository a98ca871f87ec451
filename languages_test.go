package calinix_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// tree is a config.yaml, or a part of one, that can also be written as a
// Caddyfile: there the keys are in snake_case, times have their unit, gateway and
// upstreams are no sections, and a pod is a line.
type tree map[string]any

// yaml writes the tree as config.yaml.
func (c tree) yaml(t testing.TB) string {
	t.Helper()
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// caddyfile writes the tree as what stands in a calinix directive.
func (c tree) caddyfile() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c)) {
		key := snakeCase(name)
		switch v := c[name].(type) {
		case tree:
			switch name {
			case "gateway", "upstreams":
				b.WriteString(v.caddyfile())
				continue
			case "models":
				b.WriteString("models {\n")
				for _, model := range slices.Sorted(maps.Keys(v)) {
					fmt.Fprintf(&b, "%s {\n%s}\n", model, v.in(model).caddyfile())
				}
				b.WriteString("}\n")
				continue
			}
			fmt.Fprintf(&b, "%s {\n%s}\n", key, v.caddyfile())
		case []tree:
			for _, pod := range v {
				rest := maps.Clone(pod)
				delete(rest, "id")
				delete(rest, "url")
				fmt.Fprintf(&b, "pod %s %s {\n%s}\n", pod["id"], pod["url"], rest.caddyfile())
			}
		case []string:
			fmt.Fprintf(&b, "%s %s\n", key, strings.Join(v, " "))
		default:
			if unit, ok := strings.CutSuffix(key, "_ms"); ok {
				fmt.Fprintf(&b, "%s %vms\n", unit, v)
			} else if name != "version" {
				fmt.Fprintf(&b, "%s %v\n", key, v)
			}
		}
	}
	return b.String()
}

var camel = regexp.MustCompile(`([a-z])([A-Z])`)

func snakeCase(name string) string { return strings.ToLower(camel.ReplaceAllString(name, "${1}_${2}")) }

// in returns the section under the path, making what is missing.
func (c tree) in(path ...string) tree {
	for _, name := range path {
		next, ok := c[name].(tree)
		if !ok {
			next = tree{}
			c[name] = next
		}
		c = next
	}
	return c
}

// podTrees lists pods, each with these keys.
func podTrees(all fakepod.Pods, keys tree) (list []tree) {
	for _, p := range all {
		pod := maps.Clone(keys)
		if pod == nil {
			pod = tree{}
		}
		pod["id"], pod["url"] = p.Name, p.URL
		list = append(list, pod)
	}
	return list
}

// language is in what a configuration is written.
type language uint8

const (
	inCaddyfile language = iota
	inYAML
)

func (l language) String() string { return [...]string{"Caddyfile", "YAML"}[l] }

// site is the body of a site with this configuration, which is written to a file of
// the test if it is YAML.
func (l language) site(t testing.TB, c tree) string {
	t.Helper()
	if l == inCaddyfile {
		return "log\ncalinix {\n" + c.caddyfile() + "}\n"
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(c.yaml(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	return "log\ncalinix {\nconfig " + file + "\n}\n"
}

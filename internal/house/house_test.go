package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/calinix/caddy-calinix"

// mayImport lists, for each room, the rooms of ours that it may import. A room
// that is not listed fails the test: whoever builds one decides where it stands.
var mayImport = map[string][]string{
	"chain":                {},
	"config":               {},
	"discovery":            {"config"},
	"discovery/dns":        {"config", "discovery"},
	"discovery/kubernetes": {"config", "discovery"},
	"discovery/file":       {"config", "discovery"},
	"dispatch":             {"prompt", "jsonedit", "internal/jsonscan"},
	"enginesim":            {},
	"fleet":                {"chain", "index", "selection", "outcome"},
	"health":               {"fleet", "outcome"},
	"index":                {"chain"},
	"internal/jsonscan":    {},
	"jsonedit":             {"internal/jsonscan"},
	"observe":              {},
	"outcome":              {},
	"prompt":               {"chain", "internal/jsonscan"},
	"replay":               {"fleet", "index", "outcome", "selection"},
	"retry":                {},
	"scrape":               {},
	"selection":            {"index"},
}

// harnesses are for tests and measuring; they may import what they need.
var harnesses = []string{"cmd", "discovery/kubernetes/internal", "discovery/kubernetes/testserver", "internal/bench", "internal/cases", "internal/fakepod", "internal/house", "internal/soak", "internal/testbin", "internal/testcaddy", "internal/e2e"}

func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	seen := map[string]bool{}
	eachFile(t, func(room string, file *ast.File, name string) {
		if room == "." || isHarness(room) {
			return
		}
		seen[room] = true
		allowed, known := mayImport[room]
		if !known {
			t.Errorf("%s: room %q is not in the table", name, room)
			return
		}
		for _, path := range imports(t, file) {
			switch {
			case strings.HasPrefix(path, "github.com/caddyserver/") && !strings.HasPrefix(room, "discovery/"):
				t.Errorf("%s: %s imports Caddy; only the root may", name, room)
			case path == module:
				t.Errorf("%s: %s imports the root; nothing may", name, room)
			case strings.HasPrefix(path, module+"/"):
				if other := strings.TrimPrefix(path, module+"/"); !slices.Contains(allowed, other) {
					t.Errorf("%s: %s imports %s, may import only %v", name, room, other, allowed)
				}
			}
		}
	})
	for room := range mayImport {
		if !seen[room] {
			t.Errorf("room %q is in the table, but has no file", room)
		}
	}
}

// The rooms take the time as an argument, so that a simulation can run them by
// its own clock. Timers are no clock.
func TestRoomsDoNotReadTheClock(t *testing.T) {
	eachFile(t, func(room string, file *ast.File, name string) {
		if room == "." || isHarness(room) {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" &&
				slices.Contains([]string{"Now", "Since", "Until"}, call.Sel.Name) && !isClock(name) {
				t.Errorf("%s: %s calls time.%s; the time is an argument here", name, room, call.Sel.Name)
			}
			return true
		})
	})
}

// isClock tells the one file of a simulated engine that stands for a machine of
// its own, whose clock is injected.
func isClock(name string) bool { return strings.HasSuffix(name, "enginesim/clock.go") }

func isHarness(room string) bool {
	return slices.ContainsFunc(harnesses, func(h string) bool { return room == h || strings.HasPrefix(room, h+"/") })
}

// eachFile parses every Go file of the module that is no test.
func eachFile(t *testing.T, visit func(room string, file *ast.File, name string)) {
	t.Helper()
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") && name != ".." || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files++
		visit(filepath.ToSlash(filepath.Dir(rel)), file, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Fatalf("only %d files were found below %s", files, root)
	}
}

func imports(t *testing.T, file *ast.File) []string {
	t.Helper()
	var paths []string
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

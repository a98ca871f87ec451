package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	namedTest = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*\b`)
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// TestPagesNameTestsThatExist: a page that names a test as proof names one that there
// is; so does whoever runs it by that name.
func TestPagesNameTestsThatExist(t *testing.T) {
	root := filepath.Join("..", "..")
	have := map[string]bool{}
	var pages []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") && name != ".." || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".md") {
			pages = append(pages, path)
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			have[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(namedTest.FindAllString(string(text), -1)))) {
			named++
			if !have[name] {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
	if named < 10 {
		t.Errorf("only %d tests are named in %d pages", named, len(pages))
	}
}

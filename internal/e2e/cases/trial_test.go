package cases_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/cases"
)

// trial is a case under test. It keeps account of the statements of its Expect
// that were asserted.
type trial struct {
	*cases.Case
	asserted []bool
}

// begin opens the case whose id is the test's name. At the end of the test every
// statement of its Expect must have been asserted.
func begin(t *testing.T) *trial {
	t.Helper()
	c := &trial{Case: cases.Open(t, caseID(t.Name()))}
	c.asserted = make([]bool, len(c.Expect))
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return // ended before it came to all of them
		}
		for n, done := range c.asserted {
			if !done {
				t.Errorf("%s: statement %d is not asserted: %s", c.ID, n+1, c.Expect[n])
			}
		}
	})
	return c
}

// caseID turns the name of a test into the id of its case: TestBR01 is BR-01.
func caseID(test string) string {
	return strings.Replace(strings.TrimPrefix(test, "Test"), "BR", "BR-", 1)
}

// expect asserts the n-th statement of the case's Expect, counted from 1, in a
// subtest. It is named by the statement's first words, which must be those of
// the file. A statement may be asserted several times, for instance once a
// protocol.
func (c *trial) expect(t *testing.T, n int, words string, f func(t *testing.T)) {
	t.Helper()
	if n < 1 || n > len(c.Expect) || !strings.HasPrefix(c.Expect[n-1], words) {
		t.Fatalf("%s has no statement %d that begins with %q: %q", c.ID, n, words, c.Expect)
	}
	c.asserted[n-1] = true
	t.Run(words, f)
}

// TestEveryCaseHasItsTest: no case of the folder is without a test, and no test
// without a case.
func TestEveryCaseHasItsTest(t *testing.T) {
	dir, err := cases.Dir()
	if err != nil {
		t.Fatal(err)
	}
	all, err := cases.ReadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	var want, have []string
	for _, c := range all {
		want = append(want, c.ID)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "TestBR") {
				have = append(have, caseID(f.Name.Name))
			}
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		t.Errorf("cases are\n%v\ntests are\n%v", want, have)
	}
}

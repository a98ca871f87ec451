package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/bench/gobench"
)

// TestPage: the table of the page is what the program prints of the figures beside it.
func TestPage(t *testing.T) {
	f, err := gobench.ReadFile("../../../docs/performance/decision.csv")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	print(&table, f)
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/performance.md has another table than\n%s", table.String())
	}
}

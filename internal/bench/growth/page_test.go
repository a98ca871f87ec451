package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/calinix/caddy-calinix/internal/bench/gobench"
)

// TestPlots: the plots of the page are what the program draws of the figures beside
// them.
func TestPlots(t *testing.T) {
	const dir = "../../../docs/performance"
	f, err := gobench.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plots {
		drawn, err := os.ReadFile(filepath.Join(dir, p.file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(drawn, p.chart(f).svg()) {
			t.Errorf("%s is not what %s says: go run ./internal/bench/growth -draw", p.file, file)
		}
	}
}

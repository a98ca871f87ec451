package config

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// FuzzLoad: no file makes the loader panic or hang. What it refuses it explains;
// what it accepts is valid, has valid effective values, and survives JSON.
func FuzzLoad(f *testing.F) {
	seed, err := os.ReadFile("testdata/seed.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	refusals, err := os.ReadFile("testdata/refusals.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range strings.Split(string(refusals), "\n=== ")[1:] {
		_, c, _ = strings.Cut(c, "\n")
		input, _, _ := strings.Cut(c, "----")
		f.Add([]byte(input))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, warnings, err := Load("c.yaml", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "c.yaml:") || file != nil || warnings != nil {
				t.Fatalf("an error without its place, or with results: %v", err)
			}
			return
		}
		said := marshal(t, file.Balancer)
		if err := file.Balancer.Validate(); err != nil {
			t.Fatalf("accepted, but not valid: %v", err)
		}
		var again Balancer
		if err := json.Unmarshal([]byte(said), &again); err != nil {
			t.Fatal(err)
		}
		if got := marshal(t, again); got != said {
			t.Fatalf("JSON changes it:\n%s\n%s", said, got)
		}
		effective := file.Balancer.Defaults()
		if err := effective.Validate(); err != nil {
			t.Fatalf("the effective values are not valid: %v", err)
		}
		if err := Agree(&file.Balancer, &again); err != nil {
			t.Fatalf("a balancer disagrees with itself: %v", err)
		}
		if after := marshal(t, file.Balancer); after != said {
			t.Fatalf("Defaults changed what it was given:\n%s\n%s", said, after)
		}
	})
}

package replay

import (
	"fmt"
	"strings"
	"testing"
)

func TestReadMooncake(t *testing.T) {
	tr, err := ReadMooncake(strings.NewReader(`
{"timestamp": 70000, "input_length": 1000, "output_length": 0, "hash_ids": [900000000000, 7]}
{"timestamp": 60500, "input_length": 1500, "output_length": 5, "hash_ids": [900000000000, 7, 8], "more": true}
{"timestamp": 80000, "input_length": 400, "output_length": 9, "hash_ids": [3]}
`), 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range tr.Requests {
		got = append(got, fmt.Sprint(r.At, r.Input, r.Output, r.Blocks, r.known))
	}
	want := []string{"0 1500 5 [0 1 2] 0", "9500 1000 1 [0 1] 2", "19500 400 9 [3] 0"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if tr.Blocks != 4 || tr.Bound != 2.0/6 {
		t.Errorf("%d blocks, bound %v", tr.Blocks, tr.Bound)
	}
}

// TestCoarseTimestamps are spread over the time for which they stand, and those
// that are exact stay.
func TestCoarseTimestamps(t *testing.T) {
	read := func(step, each int) *Trace {
		var b strings.Builder
		for i := range 300 {
			fmt.Fprintf(&b, `{"timestamp": %d, "input_length": 9, "output_length": 1, "hash_ids": [1]}`+"\n", i/each*step)
		}
		tr, err := ReadMooncake(strings.NewReader(b.String()), 1)
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	together := func(tr *Trace) (n int) {
		for i := 1; i < len(tr.Requests); i++ {
			if tr.Requests[i].At == tr.Requests[i-1].At {
				n++
			}
		}
		return n
	}
	coarse := read(3000, 10)
	if n := together(coarse); n != 0 {
		t.Errorf("%d requests still come together", n)
	}
	for i, r := range coarse.Requests {
		if from := float64(i / 10 * 3000); r.At < from || r.At >= from+3000 {
			t.Fatalf("request %d of the group at %v comes at %v", i, from, r.At)
		}
	}
	if n := together(read(20, 10)); n != 270 {
		t.Errorf("%d requests come together, want the 270 that were sent so", n)
	}
	if n := together(read(5000, 1)); n != 0 {
		t.Errorf("%d", n)
	}
}

func TestReadMooncakeRefuses(t *testing.T) {
	line := `{"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": [1]}` + "\n"
	for in, want := range map[string]string{
		"":            "the trace is empty",
		"\n\n":        "the trace is empty",
		line + "{":    "line 2: unexpected end of JSON input",
		line + "[]":   "line 2: json: cannot unmarshal array",
		line + "null": "line 2: no hash_ids",
		`{"timestamp": 1, "input_length": 9, "output_length": 1}`:                           "line 1: no hash_ids",
		`{"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": [1]}`:          "line 1: input_length 0, want 1 to",
		`{"timestamp": 1, "input_length": 9, "output_length": -1, "hash_ids": [1]}`:         "line 1: output_length -1, want 0 to",
		`{"timestamp": -1, "input_length": 9, "output_length": 1, "hash_ids": [1]}`:         "line 1: timestamp -1, want 0 or more",
		`{"timestamp": 1, "input_length": 999999999999, "output_length": 1,"hash_ids":[1]}`: "line 1: input_length 999999999999",
		line + strings.Repeat("x", maxLine+1):                                               "reading the trace: bufio.Scanner: token too long",
	} {
		if _, err := ReadMooncake(strings.NewReader(in), 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", in, err, want)
		}
	}
}

// FuzzReadMooncake: whatever a trace says, it is refused or can be replayed.
func FuzzReadMooncake(f *testing.F) {
	f.Add([]byte(`{"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": [1]}`))
	f.Add([]byte(`{"timestamp": 1e300, "input_length": 600, "output_length": 1, "hash_ids": [-1,-1,5]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := ReadMooncake(strings.NewReader(string(data)), 1)
		if err != nil {
			return
		}
		tokens := 0
		for i := range tr.Requests {
			tokens += tr.Requests[i].Input + tr.Requests[i].Output
		}
		if tokens > 1<<20 || len(tr.Requests) > 100 {
			return
		}
		if _, err := (Run{Trace: tr, Policy: named("expectedTTFT"), Pods: 2, Engine: H100(), Rate: 1}).Do(); err != nil {
			t.Fatal(err)
		}
	})
}

package replay

import (
	"bytes"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/selection"
)

// TestGeneratedGates: the strategy keeps what it promises for any trace on one
// that it was not made for.
func TestGeneratedGates(t *testing.T) {
	report, err := Gates(Conversations(2500, 11), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Gates) != 7 || len(report.Results) != 2*len(Policies()) {
		t.Errorf("%d gates, %d results", len(report.Gates), len(report.Results))
	}
	for i := range report.Gates {
		if g := &report.Gates[i]; !g.Pass() {
			t.Error(g)
		} else {
			t.Log(g)
		}
	}
}

// TestHotPrefixIsShared: the short one of the gates on the hot prefix.
func TestHotPrefixIsShared(t *testing.T) {
	hot := HotPrefix(1000, 200, 7)
	r := do(t, hotRun(hot, named("expectedTTFT")))
	if r.FairRequests < 0.93 || r.FairBusy < 0.98 || r.Hit < 0.975 {
		t.Errorf("%+v", r)
	}
	k := selection.DefaultTTFT()
	k.Eta = 0
	if without := do(t, hotRun(hot, ours("no replication", Constants{TTFT: k}))); without.FairRequests > 0.8 {
		t.Errorf("without replication the requests are as fair: %v", without.FairRequests)
	}
}

// TestStaticFairness: the seed's published figure, to its last digit.
func TestStaticFairness(t *testing.T) {
	if got := StaticFairness(); math.Abs(got-0.751744) > 5e-7 {
		t.Errorf("Jain %.6f, want 0.751744", got)
	}
}

// TestSameRunSameResult: a run depends on nothing but what it is given, also
// when several are done at a time.
func TestSameRunSameResult(t *testing.T) {
	trace := Conversations(300, 5)
	var runs []Run
	for _, p := range Policies() {
		runs = append(runs, gateRun(trace, p, 8), gateRun(trace, p, 8))
	}
	told := 0
	results, err := All(runs, func(done int) { told = done })
	if err != nil || told != len(runs) {
		t.Fatal(told, err)
	}
	for i := 0; i < len(results); i += 2 {
		if !reflect.DeepEqual(results[i], results[i+1]) {
			t.Errorf("%s: %+v, then %+v", results[i].Policy, results[i], results[i+1])
		}
	}
}

// TestSustained: the rate that is found is kept, and a tenth more is not.
func TestSustained(t *testing.T) {
	r := gateRun(Conversations(1500, 2), named("expectedTTFT"), 0)
	r.Pods = 4
	rate, err := r.Sustained(0.95)
	if err != nil {
		t.Fatal(err)
	}
	r.Rate = rate
	if got := do(t, r).Goodput; got < 0.95 {
		t.Errorf("goodput %v at %v", got, rate)
	}
	r.Rate = 1.1 * rate
	if got := do(t, r).Goodput; got >= 0.95 {
		t.Errorf("goodput %v also at %v", got, r.Rate)
	}
}

func TestRunRefuses(t *testing.T) {
	good := gateRun(Conversations(1, 1), named("random"), 1)
	for name, spoil := range map[string]func(*Run){
		"no requests to replay":  func(r *Run) { r.Trace = &Trace{} },
		"0 pods, want 1 to 64":   func(r *Run) { r.Pods = 0 },
		"65 pods, want 1 to 64":  func(r *Run) { r.Pods = 65 },
		"engine: want a chunk":   func(r *Run) { r.Engine = Engine{} },
		"no requests to replay ": func(r *Run) { r.Trace = nil },
	} {
		r := good
		spoil(&r)
		if _, err := r.Do(); err == nil || !strings.HasPrefix(err.Error()+" ", name) {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := All([]Run{good, r, good}, nil); err == nil {
			t.Errorf("%q: All has no error", name)
		}
		if _, err := r.Sustained(0.9); err == nil {
			t.Errorf("%q: Sustained has no error", name)
		}
	}
}

func TestPolicyNames(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Policies() {
		if q, ok := PolicyNamed(p.Name); !ok || q.Name != p.Name || p.Note == "" || seen[p.Name] {
			t.Errorf("%+v", p)
		}
		seen[p.Name] = true
	}
	if _, ok := PolicyNamed("cleverest"); ok {
		t.Error("there is a policy of any name")
	}
}

func TestWriteTable(t *testing.T) {
	var b bytes.Buffer
	err := WriteTable(&b, []*Result{
		{Policy: "a", Rate: 2, Mean: 1234.4, P99: 5678, Goodput: 0.9876, Hit: 0.5, HitBound: 0.75, Queue: 3},
		{Policy: "b", Rate: 2},
		{Policy: "a", Rate: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if strings.Count(got, "requests a second") != 2 || !strings.Contains(got, "2.00 requests a second") ||
		!regexp.MustCompile(`(?m)^a +50\.0 +75\.0 \| +1234`).MatchString(got) || !strings.Contains(got, " 98.76 |") {
		t.Errorf("got %s", got)
	}
}

func TestGateLine(t *testing.T) {
	for _, c := range []struct {
		g    Gate
		want string
	}{
		{Gate{"x", 1, 1, false}, "pass"},
		{Gate{"x", 1.01, 1, false}, "miss"},
		{Gate{"x", 1, 1, true}, "pass"},
		{Gate{"x", 0.99, 1, true}, "miss"},
		{Gate{"x", math.NaN(), 1, true}, "miss"},
		{Gate{"x", math.NaN(), 1, false}, "miss"},
	} {
		if got := c.g.String(); !strings.HasSuffix(got, " "+c.want) {
			t.Errorf("%q, want %s", got, c.want)
		}
	}
}

// BenchmarkRun is a run of the product on 1,000 requests at 16 pods.
func BenchmarkRun(b *testing.B) {
	trace := Conversations(1000, 1)
	for _, name := range []string{"expectedTTFT", "cacheAware", "oracle"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do(b, gateRun(trace, named(name), 12))
			}
		})
	}
}

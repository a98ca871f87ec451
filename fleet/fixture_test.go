package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// epoch is when tests begin.
var epoch = time.Unix(1_700_000_000, 0)

// text is a chain of one block a word, hashed as far as it was asked for.
type text struct {
	hashes []uint64
	done   int
}

// words makes the chain of a prompt.
func words(all ...string) *text {
	t := &text{}
	h := xxhash.New()
	for _, w := range all {
		_, _ = h.WriteString(w + "\x00")
		t.hashes = append(t.hashes, h.Sum64())
	}
	return t
}

// run names n words after a name.
func run(name string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%04d", name, i)
	}
	return all
}

func (t *text) Extend(n int) int {
	t.done = max(t.done, min(n, len(t.hashes)))
	return t.done
}

func (t *text) Complete() int    { return t.Extend(len(t.hashes)) }
func (t *text) Hashes() []uint64 { return t.hashes[:t.done] }

// wordBytes is the length of a word: 16 tokens.
const wordBytes = 64

func (t *text) End(k int) int { return (k + 1) * wordBytes }
func (t *text) Bytes() int    { return len(t.hashes) * wordBytes }
func (t *text) Blocks() int   { return len(t.hashes) }

// key is the tie-break's key of the prompt.
func (t *text) key() uint64 { return t.hashes[len(t.hashes)-1] }

// single makes n pods named pod-0, pod-1, … that serve whole requests.
func single(n int) []Pod {
	pods := make([]Pod, n)
	for i := range pods {
		pods[i] = Pod{
			ID: fmt.Sprintf("pod-%d", i), URL: fmt.Sprintf("http://10.0.0.%d:8000", i),
			Roles: RoleSet(0).With(Single),
		}
	}
	return pods
}

// fleetOf makes a fleet of the pods, with an index of its own.
func fleetOf(t testing.TB, pods []Pod) *Fleet {
	t.Helper()
	f := New(Options{
		Index: index.New(index.Options{}), Sessions: Sessions{TTL: time.Hour, Max: 1000}, Seed: 1,
	})
	apply(t, f, pods)
	return f
}

func apply(t testing.TB, f *Fleet, pods []Pod) Diff {
	t.Helper()
	d, err := f.Apply(epoch, pods)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ask is a request with the defaults of the product for a prompt.
func ask(prompt *text) *Ask {
	a := &Ask{Weights: selection.SingleWeights()}
	if prompt != nil {
		a.Chain, a.Key, a.HasKey = prompt, prompt.key(), true
	}
	return a
}

// begin begins a leg, which must work.
func begin(t testing.TB, f *Fleet, a *Ask) *Lease {
	t.Helper()
	l := &Lease{}
	if err := f.Begin(epoch, a, l); err != nil {
		t.Fatal(err)
	}
	return l
}

// of returns the status of the pod.
func of(t testing.TB, f *Fleet, id string) Status {
	t.Helper()
	for _, s := range f.Snapshot() {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("no pod %q", id)
	return Status{}
}

// find returns the pod with the id, and whether there is one.
func (f *Fleet) find(id string) (Ref, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	slot, ok := f.byID[id]
	return Ref{slot, f.slots[slot].gen}, ok
}

// The weights that configurations give both legs of a request by default.
var (
	prefillWeights = selection.Weights{Cache: 0.65, Load: 0.25, Sticky: 0.10}
	decodeWeights  = selection.Weights{Cache: 0.10, Load: 0.55, Sticky: 0.10, Locality: 0.25}
)

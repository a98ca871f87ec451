package fleet

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/outcome"
)

// TestSessionReturns: a session comes back to its pod in each role, for as long
// as it is remembered.
func TestSessionReturns(t *testing.T) {
	pods := single(4)
	for i := range pods {
		pods[i].Roles = pods[i].Roles.With(Decode)
	}
	f := fleetOf(t, pods)
	f.Configure(Sessions{TTL: time.Minute, Max: 10})
	a := ask(words("hello"))
	a.Session = 7
	first := begin(t, f, a)
	first.End(epoch, outcome.Answered)

	sticky := func(role Role, after time.Duration) string {
		t.Helper()
		q := ask(words("something else"))
		q.Role, q.Session = role, 7
		all, _ := f.Explain(epoch.Add(after), q)
		who := ""
		for _, c := range all {
			if c.Sticky == 100 {
				who += c.ID
			}
		}
		return who
	}
	if got := sticky(Single, 59*time.Second); got != first.Pod().ID {
		t.Errorf("returns to %q, want %s", got, first.Pod().ID)
	}
	if got := sticky(Decode, 0); got != "" {
		t.Errorf("%q served it as decode pod", got)
	}
	if got := sticky(Single, 60*time.Second); got != "" {
		t.Errorf("still remembered after a minute: %q", got)
	}

	l := begin(t, f, a)
	decode := *a
	decode.Role, decode.Weights = Decode, decodeWeights
	decode.Exclude.Set(int(l.Ref().Slot))
	d := begin(t, f, &decode)
	if s, d := sticky(Single, 0), sticky(Decode, 0); s != l.Pod().ID || d == s || d == "" {
		t.Errorf("single returns to %q, decode to %q", s, d)
	}
	kept := pods[:0:0]
	for _, p := range pods {
		if p.ID != d.Pod().ID {
			kept = append(kept, p)
		}
	}
	apply(t, f, kept)
	apply(t, f, pods)
	if s, d := sticky(Single, 0), sticky(Decode, 0); s != l.Pod().ID || d != "" {
		t.Errorf("after the decode pod went and came: single %q, decode %q", s, d)
	}
}

// TestSessions compares the memory with a list in the order of use.
func TestSessions(t *testing.T) {
	type known struct {
		key    uint64
		used   int64
		served [Roles]keeper
	}
	rapid.Check(t, func(t *rapid.T) {
		bounds := Sessions{TTL: time.Duration(rapid.IntRange(0, 20).Draw(t, "ttl")), Max: rapid.IntRange(0, 6).Draw(t, "max")}
		s := newSessions(bounds)
		var want []known // oldest first
		now := int64(0)
		find := func(key uint64) int {
			for i := range want {
				if want[i].key == key {
					return i
				}
			}
			return -1
		}
		trim := func() {
			for len(want) > bounds.Max {
				want = want[1:]
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if len(s.byKey) > bounds.Max || len(s.slab) > 7 {
					t.Fatalf("%d sessions in %d places, at most %d", len(s.byKey), len(s.slab)-1, bounds.Max)
				}
				for key := range uint64(10) {
					i, at := s.byKey[key], find(key)
					if at < 0 {
						if i != 0 && !s.stale(i, now) {
							t.Fatalf("remembers session %d", key)
						}
						continue
					}
					stale := bounds.TTL > 0 && now-want[at].used >= int64(bounds.TTL)
					if !stale && (i == 0 || s.slab[i].served != want[at].served) {
						t.Fatalf("session %d is not what it was", key)
					}
				}
			},
			"wait": func(t *rapid.T) { now += int64(rapid.IntRange(0, 8).Draw(t, "nanoseconds")) },
			"expire": func(*rapid.T) {
				s.expire(now)
				for i := 0; i < len(want); i++ {
					if bounds.TTL > 0 && now-want[i].used >= int64(bounds.TTL) {
						want = append(want[:i], want[i+1:]...)
						i--
					}
				}
				if len(s.byKey) != len(want) {
					t.Fatalf("%d sessions, want %d", len(s.byKey), len(want))
				}
			},
			"configure": func(t *rapid.T) {
				bounds = Sessions{TTL: bounds.TTL, Max: rapid.IntRange(0, 6).Draw(t, "max")}
				s.configure(bounds)
				trim()
			},
			"request": func(t *rapid.T) {
				key := rapid.Uint64Range(0, 9).Draw(t, "key")
				role := Role(rapid.IntRange(0, Roles-1).Draw(t, "role"))
				k := keeper{rapid.Uint8().Draw(t, "slot"), 1}
				s.note(key, s.find(key, now), role, k, now)
				n := known{key: key}
				if at := find(key); at >= 0 {
					if bounds.TTL <= 0 || now-want[at].used < int64(bounds.TTL) {
						n = want[at]
					}
					want = append(want[:at], want[at+1:]...)
				}
				n.used, n.served[role] = now, k
				want = append(want, n)
				trim()
			},
		})
	})
}

package calinix

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/config"
)

// TestAdapter checks result, warnings and faults of the adapter as Caddy gets
// them. (That the result equals a Caddyfile's is TestPairs.)
func TestAdapter(t *testing.T) {
	const upstreams = "\nupstreams: {single: {pods: [{id: a, url: 'http://a'}]}}\n"

	got, warnings, err := adapt("calinix", "conf/gpu.yaml", "version: 1\ngateway: {port: 9000}\ncacheRegistry: {staleTtlMs: 5000}"+upstreams)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apps":{"http":{"servers":{"srv0":{"listen":[":9000"],"routes":[{"handle":[` +
		`{"cache_registry":{"stale_ttl":5000000000},"handler":"calinix","single":{"pods":[{"id":"a","url":"http://a"}]},"strategy":"cacheAware"}` +
		`]}]}}}}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	wantWarnings := []caddyconfig.Warning{{
		File: "conf/gpu.yaml", Line: 3,
		Message: "cacheRegistry.staleTtlMs 5000: a block is forgotten so soon that most of the cache's use is lost: in a published trace of chats 95 % of the reuses of a block come later than 30 s after its last use; leave this key out, or give at least 10 minutes",
	}}
	if !reflect.DeepEqual(warnings, wantWarnings) {
		t.Errorf("got  %v\nwant %v", warnings, wantWarnings)
	}

	_, _, err = adapt("calinix", "conf/gpu.yaml", "version: 1\ngateway: {port: 0}"+upstreams)
	if err == nil || err.Error() != "conf/gpu.yaml:2: gateway.port 0: too small, want at least 1" {
		t.Errorf("port 0: %v", err)
	}
	_, _, err = adapt("calinix", "", "")
	if err == nil || err.Error() != "config.yaml: the file is empty, want version: 1 and upstreams" {
		t.Errorf("no name, no text: %v", err)
	}
}

// TestConfigPath: a path that is not relative is taken as it is.
func TestConfigPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gpu.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nupstreams: {single: {pods: [{id: a, url: 'http://a'}]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, err := adapt("caddyfile", "somewhere/else/Caddyfile", ":8080 {\n\tcalinix {\n\t\tconfig "+file+"\n\t}\n}\n")
	const want = `{"apps":{"http":{"servers":{"srv0":{"listen":[":8080"],"routes":[{"handle":[` +
		`{"handler":"calinix","single":{"pods":[{"id":"a","url":"http://a"}]},"strategy":"cacheAware"}]}]}}}}}`
	if err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

// TestDurationsAreCaddys: a time means here what it means in the rest of a
// Caddyfile.
func TestDurationsAreCaddys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`([0-9]{1,3}(\.[0-9]{1,2})?(d|h|m|s|ms|us|ns)?){0,4}`).Draw(t, "duration")
		ours, errOurs := config.ParseDuration(s)
		theirs, errTheirs := caddy.ParseDuration(s)
		switch {
		case errTheirs != nil && errOurs == nil:
			t.Fatalf("%q: ours %v, Caddy's %v", s, ours, errTheirs)
		case errTheirs == nil && errOurs != nil && theirs < 365*24*time.Hour:
			t.Fatalf("%q: ours %v, Caddy's %v", s, errOurs, theirs)
		case errTheirs == nil && errOurs == nil && (theirs-time.Duration(ours)).Abs() > time.Microsecond:
			t.Fatalf("%q: ours %v, Caddy's %v", s, ours, theirs)
		}
	})
}

package config

import (
	"testing"

	"pgregory.net/rapid"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url  string
		want Address
		text string
	}{
		{"http://single-1:8000", Address{"http", "single-1", 8000}, "http://single-1:8000"},
		{"http://single-1", Address{"http", "single-1", 80}, "http://single-1:80"},
		{"https://single-1/", Address{"https", "single-1", 443}, "https://single-1:443"},
		{"HTTP://Pod.NS.svc.Cluster.Local:80/", Address{"http", "pod.ns.svc.cluster.local", 80}, "http://pod.ns.svc.cluster.local:80"},
		{"http://10.0.0.1:1", Address{"http", "10.0.0.1", 1}, "http://10.0.0.1:1"},
		{"http://[::1]:65535", Address{"http", "::1", 65535}, "http://[::1]:65535"},
		{"https://[2001:DB8::A]", Address{"https", "2001:db8::a", 443}, "https://[2001:db8::a]:443"},
		{"http://[fe80::1%25eth0]:8000", Address{"http", "fe80::1%eth0", 8000}, "http://[fe80::1%25eth0]:8000"},
		{"http://vllm_0.example.:8000", Address{"http", "vllm_0.example.", 8000}, "http://vllm_0.example.:8000"},
		{"http://xn--gre-6ka8l:8000", Address{"http", "xn--gre-6ka8l", 8000}, "http://xn--gre-6ka8l:8000"},
	} {
		got, err := ParseURL(c.url)
		if err != nil || got != c.want || got.String() != c.text {
			t.Errorf("ParseURL(%q) = %+v (%s), %v; want %+v (%s)", c.url, got, got, err, c.want, c.text)
		}
	}
}

// TestParseURLCanonical: what is accepted has one canonical form, which is
// accepted and means the same. (What is refused is in testdata/refusals.txt.)
func TestParseURLCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`(http|https|HTTP)://(\[[0-9a-fA-F:.]{2,12}(%25[a-z]{1,3})?\]|[a-zA-Z0-9._-]{0,8}|[0-9.]{7,9})(:[0-9]{0,6})?[/?#@]{0,2}`).Draw(t, "url")
		a, err := ParseURL(s)
		if err != nil {
			return
		}
		again, err := ParseURL(a.String())
		if err != nil || again != a {
			t.Fatalf("%q is %+v, its canonical form %q is %+v, %v", s, a, a.String(), again, err)
		}
	})
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"http://a:1", "https://[::1%25a]/", "http://a@b", "://", "http://[", "http://a%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseURL(s)
		if err != nil {
			return
		}
		if again, err := ParseURL(a.String()); err != nil || again != a {
			t.Fatalf("%q is %+v, its canonical form %q is %+v, %v", s, a, a.String(), again, err)
		}
	})
}

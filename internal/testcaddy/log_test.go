package testcaddy_test

import (
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func TestLog(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, "log\n"+proxy(p), testcaddy.Plain())
	mark := c.Log.Mark()
	const secret = `sk-"secret"-9`
	if a := c.Client(t, testcaddy.H1).Post(t, chat, `{}`, "Authorization", "Bearer "+secret, "X-Seen", "visible-7"); a.Status != 200 {
		t.Fatal(a)
	}
	e := c.Log.Wait(t, mark, "the access log", func(e testcaddy.Entry) bool { return strings.HasPrefix(e.Logger, "http.log.access") })
	if !e.Has("status", "200") || e.Has("status", "201") || e.Has("none", "") || e.Level != "info" || e.Msg != "handled request" {
		t.Errorf("%+v", e)
	}
	if n := len(c.Log.Access()); n != 1 {
		t.Errorf("%d access entries", n)
	}
	if d := c.Log.Find(func(e testcaddy.Entry) bool { return e.Level == "debug" && e.Logger == "http.handlers.reverse_proxy" }); len(d) == 0 {
		t.Errorf("DEBUG is not captured:\n%s", c.Log.Text())
	}
	c.Log.AssertAbsent(t, secret)
	if f := record(t, func(tb testing.TB) { c.Log.AssertAbsent(tb, secret, "visible-7") }); !strings.Contains(f, "visible-7") || strings.Contains(f, "secret") {
		t.Errorf("a header that is logged was not found: %q", f)
	}
	if f := record(t, func(tb testing.TB) { c.Log.AssertAbsent(tb, "") }); !strings.Contains(f, "cannot be looked for") {
		t.Errorf("%q", f)
	}
	impatient(t)
	f := record(t, func(tb testing.TB) {
		c.Log.Wait(tb, 0, "rain", func(testcaddy.Entry) bool { return false })
	})
	if !strings.Contains(f, "waiting for rain in the log") || !strings.Contains(f, "server running") || strings.Contains(f, "handled request") {
		t.Errorf("%q", f)
	}
}

// A secret in the JSON coding of its line is found, too.
func TestAssertAbsentSeesCodedSecrets(t *testing.T) {
	l := &testcaddy.Log{}
	if _, err := l.Write([]byte("{\"level\":\"info\",\"msg\":\"with \\\"quotes\\\"\"}\nnot json\n")); err != nil {
		t.Fatal(err)
	}
	if f := record(t, func(tb testing.TB) { l.AssertAbsent(tb, `with "quotes"`) }); f == "" {
		t.Error("not found")
	}
	if es := l.Entries(); len(es) != 2 || es[0].Msg != `with "quotes"` || es[1].Line != "not json" {
		t.Errorf("%+v", es)
	}
}

func TestLogLevelAndFreshLog(t *testing.T) {
	c := testcaddy.Serve(t, "respond x", testcaddy.Plain(), testcaddy.LogLevel("ERROR"))
	c.Client(t, testcaddy.H1).Get(t, "/")
	for _, e := range c.Log.Entries() {
		if e.Level == "debug" || e.Level == "info" {
			t.Errorf("%s", e.Line)
		}
	}
	before := c.Log.Mark()
	c.Stop()
	d := testcaddy.Serve(t, "respond x", testcaddy.Plain())
	if d.Log == c.Log || c.Log.Mark() > before+5 {
		t.Errorf("the second Caddy logs into the first one's log:\n%s", c.Log.Text())
	}
}

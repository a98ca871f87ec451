package testcaddy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func sum(b []byte) string {
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}

// The example of doc.go; against the product, BR-01 is a test of the root package.
func TestExampleOfTheDoc(t *testing.T) {
	testcaddy.NoLeaks(t)
	ps := fakepod.NewPods(t, fakepod.Options{}, "a", "b")
	a := ps.Pod("a")
	c := testcaddy.Serve(t, "log\nreverse_proxy "+a.Addr)
	cut := cases.Open(t, "BR-01").One(t, "cut")
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		ps.Forget()
		a.Next(fakepod.Reply{Cut: fakepod.Reset, At: fakepod.AfterChunks(3)})
		mark := c.Log.Mark()
		events, err := cl.StreamCase(t, cut).All()
		if err == nil {
			t.Error("the client takes a cut answer for a whole one")
		}
		if strings.Contains(testcaddy.Text(events), "[DONE]") {
			t.Error("an end was made up")
		}
		if q := a.WaitEnded(t, 1); q.SHA256 != sum(cut.Body) || q.End != fakepod.CutByPod {
			t.Errorf("pod a has seen %v", q)
		}
		if n := ps.Pod("b").Count(); n != 0 {
			t.Errorf("pod b received %d copies", n)
		}
		c.Log.Wait(t, mark, "a warning", func(e testcaddy.Entry) bool { return e.Level == "warn" })
	}, testcaddy.H1, testcaddy.H2)
	c.Log.AssertAbsent(t, "count to ten")
}

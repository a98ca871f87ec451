// Package testcaddy runs a real Caddy in the test's own process, or the real
// binary as a child process, and talks to it over HTTP/1.1, HTTP/2 and HTTP/3.
// With fakepod (the engines) and cases (what to send) it is the bench on which
// the failures of the field are tried.
//
// # A test
//
// This one is part of the package's own tests, with Caddy's stock proxy in the
// place of the directive calinix:
//
//	func TestMain(m *testing.M) { testcaddy.Main(m) } // once a package
//
//	func TestBR01(t *testing.T) {
//		testcaddy.NoLeaks(t)                                      // first: checked last
//		ps := fakepod.NewPods(t, fakepod.Options{}, "a", "b")
//		a := ps.Pod("a")
//		c := testcaddy.Serve(t, "log\nreverse_proxy "+a.Addr)     // the site's body
//		cut := cases.Open(t, "BR-01").One(t, "cut")
//		c.Each(t, func(t *testing.T, cl *testcaddy.Client) {      // a subtest each
//			ps.Forget()
//			a.Next(fakepod.Reply{Cut: fakepod.Reset, At: fakepod.AfterChunks(3)})
//			mark := c.Log.Mark()
//			events, err := cl.StreamCase(t, cut).All()
//			if err == nil {
//				t.Error("the client takes a cut answer for a whole one")
//			}
//			if strings.Contains(testcaddy.Text(events), "[DONE]") {
//				t.Error("an end was made up")
//			}
//			if q := a.WaitEnded(t, 1); q.SHA256 != sum(cut.Body) || q.End != fakepod.CutByPod {
//				t.Errorf("pod a has seen %v", q)
//			}
//			if n := ps.Pod("b").Count(); n != 0 {
//				t.Errorf("pod b received %d copies", n)
//			}
//			c.Log.Wait(t, mark, "a warning", func(e testcaddy.Entry) bool { return e.Level == "warn" })
//		}, testcaddy.H1, testcaddy.H2)                            // default: h1, h2, h3
//		c.Log.AssertAbsent(t, "count to ten")
//	}
//
// # What there is
//
//   - Serve runs one site, TLS with all three protocols or Plain; Load runs any
//     text through any adapter; LoadError wants a refusal. ReloadSite, Reload
//     and their Try forms replace the configuration. The Caddy ends with the
//     test. Loading takes 1 to 5 ms and binds before it returns.
//   - Client and Each: clients that speak exactly one protocol. Post, Get and
//     Send return the whole Answer; Stream and Open read event by event, with
//     the time of each; Leave is the client that goes away. SendCase, StreamCase
//     and SendCases send requests of cases. Post, Get and streams wait
//     for what comes, but no longer than AnswerPatience.
//   - Log holds every line that Caddy logged, at DEBUG: Wait, Find, Access,
//     AssertAbsent.
//   - AdminGet, AdminPost, AdminSend, Metrics, WaitMetric, WaitMetrics.
//   - Binary, PlainBinary, StartProcess, RunProcess for what needs a process of
//     its own.
//   - NoLeaks for goroutines, Port for ports that nobody else takes.
//
// # A fast test
//
// The suite runs on two cores under the race detector, where a scrape of the
// metrics costs more than a request, and a Caddy with its pods more than a scrape.
//
//   - Let things take as long as the test wants, not a time: fakepod.Reply.Hold
//     keeps an answer back, HoldAfter one that has begun. A stream that is "long
//     enough" is both slow and, on a busy machine, too short.
//   - A limit of the product that a test waits for (timeouts, probe intervals)
//     may be short only for the pod that is to miss it; any other pod must have
//     all the time it needs, so give other cases of a table other keys.
//   - Wait for what is nearest: a pod's own Wait functions and the log cost next
//     to nothing, WaitMetrics a scrape each time it looks. The root package's
//     waitNone and eventually ask nobody.
//   - A large answer is made anew for each request unless it is a Body or Events.
//   - Plain, where TLS and HTTP/2 have no part. One Caddy for a table of requests;
//     a Caddy each only if their configurations differ.
//   - Clients that run at once in one Caddy share what they wait for.
//
// # What it puts into a configuration
//
// An admin address of its own, the captured log (JSON, DEBUG), storage in the
// test binary's home, no root certificate in the machine's trust store, no
// autosaved configuration, a grace period of 2 s; never in place of what the
// configuration says itself. AsIs loads it as it stands.
//
// # Traps
//
//   - There is one configuration a process: no t.Parallel in tests that load.
//   - Modules are there if their package is imported: this package imports
//     Caddy's standard ones and none of ours. A test outside the root package
//     that serves calinix imports it blank.
//   - With tls internal, loading ends before the certificate is there (WaitTLS),
//     and Caddy v2.11.9 has a data race around it that -race reports now and
//     then. Serve loads a certificate from files (CertFiles) instead.
//   - A reload closes idle connections: after one, take a new client or expect
//     an error now and then. Who reloads past Reload and ReloadSite, say by
//     POST /load, needs Handover.
//   - Of two legs that are sent at once one may be given up before it is sent, on a
//     busy machine often. What Next of its pod is to do with it, it does with the
//     request that comes instead; When tells them apart.
//   - Over HTTP/3 the reset of a stream overtakes data on its way: a client may
//     see less than the pod sent before it broke off, and even no headers.
package testcaddy

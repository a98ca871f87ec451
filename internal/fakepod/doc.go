// Package fakepod is an inference engine that does what a test tells it to, on
// a loopback port: it answers, streams, stays silent, breaks off with a TCP
// reset or in good order at any byte, refuses connections, restarts on its
// address, plays tricks with kept-alive connections, fails its health probes;
// and it remembers everything that it was sent, and how each exchange ended.
//
// # A pod
//
//	a := fakepod.New(t, fakepod.Options{Name: "a"})        // a.URL, closed with the test
//	ps := fakepod.NewPods(t, fakepod.Options{}, "a", "b")  // ps.Pod("b"), ps.Counts()
//
// HTTP/1.1 pods run a loop of their own over the connection, so that every cut
// is exact to the byte. Options.Protocol HTTP2 gives h2c, or h2 with a Cert.
//
// # What it does with a request
//
// A Reply says it; the zero value is the ok script (JSON that names the pod in
// "pod" and in the header X-Fake-Pod, or an SSE stream of five chunks 20 ms
// apart if the request says "stream":true). The fields combine:
//
//	a.Set(fakepod.Reply{Delay: time.Second})                                    // late
//	a.Set(fakepod.Reply{Silent: true})                                          // never
//	a.Set(fakepod.Reply{Status: 429, Header: h, Body: b})                       // fixed
//	a.Set(fakepod.Reply{Chunks: 10, ChunkBytes: 40, Gap: 200 * ms})             // slow stream
//	a.Set(fakepod.Reply{Cut: fakepod.Reset, At: fakepod.AfterChunks(3)})        // breaks off
//	a.Set(fakepod.Reply{Cut: fakepod.Close, At: fakepod.HalfBody})              // half a Content-Length
//	a.Set(fakepod.Unread{Bytes: 1000, Reply: fakepod.Reply{Cut: fakepod.Reset}})// in the middle of the body
//	a.Set(fakepod.Reply{KV: []byte(`{…}`), Gzip: true, Framing: fakepod.Chunked}) // as a prefill pod
//
// Set is for all requests, SetPath for a path, When for a predicate, Next for
// the next request or requests; Sequence and Cycle take turns, Func computes.
// All of it may change while requests run and holds from the next one on.
// SetStrict makes the pod refuse what vLLM refuses.
//
// # Its health
//
// GETs of the health path are probes; they are scripted by SetHealth (with any
// script) or Healthy, and recorded apart. Pods.OnlyHealthy and AllHealthy set
// the health of all pods and return when a prober must have believed it.
//
// # Its connections
//
// Refuse closes the port and idle connections, Listen opens the same port
// again; Crash ends everything as a killed process does, Restart comes back;
// Freeze accepts and reads nothing; ResetConns, ResetOnReuse and CloseIdle do
// what their names say. Blackhole is an address that does not even refuse.
//
// # What it has seen
//
// Requests, Last and Conns return records. Wait… functions wait for what is to
// be seen, with a deadline (Patience) and a list of what was seen instead; a
// test needs no sleep:
//
//	q := a.WaitClosed(t, 1)             // the client of request 1 left
//	took := q.ClosedAt.Sub(left)
//
// Wait takes any condition. The package imports nothing of the product, so
// every room may use it.
package fakepod

// Package cases reads the failure cases of testdata/cases and expands each of
// their requests to the exact bytes that a test has to send.
//
// A case is a JSON file: what was reported in public, with which pods and which
// configuration it is to be tried (Given, in words), the requests, the order of
// events (Steps, in words) and what has to hold (Expect, in words). A request
// carries its body literally, in base64, or as a template:
//
//	{{i}} {{i:04d}} {{i%50}}     the running number
//	{{words:NAME,N}}             N words NAME0001 NAME0002 …; NAME may hold {i} or {i%50}
//	{{pad}}                      words, until the whole body has the stated size
//
// A test asks for the requests by name and sends them in turn:
//
//	c := cases.Open(t, "BR-12")
//	for _, r := range c.Named(t, "warm-X") {
//		req, err := r.HTTP(ctx, baseURL)
//		…
//	}
//
// Large cases (30,000 requests) are walked with Requests, which makes one body
// at a time. Templates are checked when the file is read, so expanding cannot
// fail. testdata/checksums.json pins every expanded byte.
package cases

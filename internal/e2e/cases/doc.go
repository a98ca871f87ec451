// Package cases drives the failures of the field through the product: each case
// of testdata/cases is one test, named by its id (TestBR01 is BR-01), that sends
// the case's own requests from a real client through a real Caddy to fake pods.
// It has tests only.
//
//	streams_test.go    streams and statuses reach the client as they were sent
//	leave_test.go      clients that leave
//	placement_test.go  hot spots, ties, prefixes
//	prompts_test.go    prompts in every coding and shape
//	bodies_test.go     large bodies, other paths, headers
//	retries_test.go    reused connections, failover
//	health_test.go     sick, busy and restarted pods, reloads
//	dispatch_test.go   both legs of dispatch mode: content, failures
//	addresses_test.go  IPv6, TLS, ranks
//	load_test.go       the real binary under load: races, memory
//	slow_test.go       answers that take more than a minute
//
// A case says in words what has to hold. trial_test.go sees to it that every one
// of these statements is asserted, by a subtest of its own; site_test.go has the
// sites that the cases run on.
//
// What takes long runs in a reduced size, which the test states, and whole with
//
//	go test ./internal/e2e/cases -slow
package cases

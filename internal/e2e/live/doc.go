// Package live plays a trace against the real binary and 8 simulated engines,
// under one policy after another, and wants them ranked as the replay ranks them.
//
// Time runs 8 times as fast as in the trace, and a block of 512 tokens is 16
// words: so 500 requests take 10 seconds, and cost the machine little. What is
// compared is the mean time to the first byte. Only policies that the replay
// tells well apart must come in its order. And with twice the requests that the
// engines can serve in time, holding them (overload) must help as it does there.
//
// The trace is a generated one, the same each time, or the file in Mooncake's
// format that CALINIX_TRACE names. The test has the build tag live, as it wants
// the machine for itself:
//
//	go test -tags live -v ./internal/e2e/live
package live

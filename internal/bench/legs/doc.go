// Command legs compares dispatch with single mode: 16 simulated engines that all
// serve whole requests, and the same 16 as prefill and decode pods.
//
//	go run ./internal/bench/legs                 the table of docs/dispatch.md, about 9 minutes
//	go run ./internal/bench/legs -slower 1       the same at full speed
//	go run ./internal/bench/legs -prefill 11 -decode 5
//
// Engines, Calinix and the load are one process, over real sockets. The engines keep
// time as those of the routing study do, an 8B model on one H100: chunks of 2048
// tokens, 20,000 tokens a second and attention that costs as much at a context of 38,000
// tokens, steps of 7 ms and 40 ns more for each token of context that is decoded over,
// KV handed over in 3 µs a token. Prompts are all different, so that no cache helps;
// requests come at random times (exponential gaps from a fixed seed) at a rate that does
// not wait for answers.
//
// With -slower n (2) everything that is simulated takes n times as long, and what is
// measured is divided by n: so much less does the machine count. The first lines say
// what one request alone takes, and what the engine model makes of it.
package main

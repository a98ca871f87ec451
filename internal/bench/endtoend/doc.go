// Command endtoend measures what Calinix adds to a request: latency and CPU time
// beside a stock reverse_proxy with least_conn, both built into the same binary,
// in front of the same simulated engines, over TLS.
//
//	go run ./internal/bench/endtoend                       all cells, about 10 minutes
//	go run ./internal/bench/endtoend -cells 8KiB@1,8KiB@32 -pairs 20
//	go run ./internal/bench/endtoend -idle 60s             only the cost of doing nothing, with 100 pods
//
// The engines, the stock proxy, Calinix and the load are four processes. A pair is
// one turn of the load against each of the two, in alternating order, so that a
// machine that is busy for a while is busy for both. For every cell the median over
// the pairs is printed with its 95 % interval (from order statistics, so that
// nothing is assumed about how the values are spread).
//
// Bodies are chat requests of English-like words, all different, sent as
// streamed requests for 50 tokens.
package main

// Package replay asks what routing would have done with other traffic, other
// pods or another policy: a discrete-event simulation that sends the requests of
// a trace through the product's own fleet, selection and index to simulated
// pods. It stands beside a request's way: "caddy calinix replay" runs it.
//
//	Trace    requests with their times, lengths and blocks: a Mooncake file, or
//	         one of the generators
//	Engine   what a pod costs: chunked prefill, continuous batching, a prefix
//	         cache that forgets what was not used for longest
//	Policy   who picks: the product with one of its strategies, or a model of
//	         another router, for comparison
//	Run      one trace, one engine, one policy → Result
//	Gates    the figures that the product promises, computed and judged
//
// Time is simulated, in milliseconds from the start of the trace; the clock of
// the machine is not read. The same Run gives the same Result.
package replay

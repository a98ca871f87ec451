// Package retry bounds how much of the traffic may be retries.
//
// It is asked late in a request's way: a leg has failed in a way that allows
// another pod to be tried (package outcome says which), and now the Budget of
// the balancer says whether the traffic of the last ten seconds affords it.
// When many pods fail at once, retries would otherwise double the load on
// those that are left.
//
// It does no I/O and knows no clock: now is an argument.
package retry

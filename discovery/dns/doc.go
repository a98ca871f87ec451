// Package dns finds pods by their names in the DNS: one pod for every address (A
// and AAAA records), or for every target of a service (SRV records). Answers are
// asked for anew when they expire.
package dns

// Package crowd tries what happens when more come than can be served: pods that are
// all full, hundreds of the largest bodies at once. It has tests only.
//
//	full_test.go     more requests than all maxConns together
//	bodies_test.go   200 bodies of the largest size
//	client_test.go   the clients, a process of their own
//
// Memory is that of the real binary without the race detector.
package crowd

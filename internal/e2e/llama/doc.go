// Package llama puts the product before two processes of a real engine,
// llama.cpp's llama-server, with a small model of random weights that gguf.go
// writes.
//
// The tests have the build tag llama, since they need the program. They never
// skip: it comes from the archive llama-server.tar.xz in the folder that
// CALINIX_TEST_BIN names, else build.sh builds it into the user's cache, once,
// which needs linux/amd64, git, npm, g++ and some minutes.
//
//	go test -tags llama -v ./internal/e2e/llama
package llama

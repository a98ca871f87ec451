// Package e2e proves the product from where its users stand: the official client
// libraries and curl in front, simulated engines behind, and a real Caddy, in
// this process or as the real binary, in between. It has tests only.
//
//	gosdk_test.go     the OpenAI library for Go, over HTTP/1.1, 2 and 3
//	node/             the openai package of npm (build tag node)
//	live/             a trace under one policy after another (build tag live)
//	llama/            real engines, llama.cpp's (build tag llama)
//	readme_test.go    what README.md and Caddyfile.example tell people to type
//	binary_test.go    the commands of the binary
//	streams_test.go   many streams at once, each with its own content
//	turns_test.go     later turns of a chat find the pod of the first
//	reload_test.go    reloads under load: nothing is cut, lost or leaked
//	refused_test.go   a configuration that fails leaves the running one alone
//
// site_test.go has the sites that they run on.
package e2e

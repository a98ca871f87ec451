// Package node proves that the openai package of npm works through Calinix. Its
// test has the build tag node, as it needs Node.js 20 or newer and the packages:
//
//	npm ci --prefix internal/e2e/node
//	go test -tags node ./internal/e2e/node
package node

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// request is one to be sent.
type request struct {
	id, mode, protocol, url string
	body                    []byte
	stream                  bool
	leave                   time.Duration // after which the client leaves; 0: it stays
}

// control is a request as this one to a handler of Caddy's own, which shows what any
// handler goes through.
func (r request) control(url string) request {
	r.id, r.mode, r.url = r.id+"-control", control, url
	r.stream, r.leave = false, 0
	return r
}

// control is the mode of those.
const control = "control"

// prompts makes requests whose beginnings are shared.
type prompts struct {
	words     []string
	documents []string
}

func newPrompts(seed uint64) *prompts {
	rng := rand.New(rand.NewPCG(seed, 3))
	p := &prompts{words: strings.Fields("river stone cloud garden letter window winter market engine bottle mirror forest")}
	for range 100 {
		p.documents = append(p.documents, p.text(rng, 100+rng.IntN(400)))
	}
	return p
}

func (p *prompts) text(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "%s%d ", p.words[rng.IntN(len(p.words))], rng.IntN(50))
	}
	return b.String()
}

func (p *prompts) next(rng *rand.Rand, n int, url string) request {
	r := request{id: fmt.Sprintf("soak-%d", n), stream: rng.IntN(10) < 8}
	r.mode = [...]string{"single", "dispatch"}[rng.IntN(2)]
	r.protocol = [...]string{"h1", "h1", "h1", "h1", "h1", "h2", "h2", "h2", "h2", "h3"}[rng.IntN(10)]
	if rng.IntN(100) < 8 {
		r.leave = time.Duration(1+rng.IntN(150)) * time.Millisecond
	}
	document := p.documents[rng.IntN(len(p.documents))]
	if rng.IntN(200) == 0 { // a long one
		document = strings.Repeat(document, 40)
	}
	r.body, _ = json.Marshal(map[string]any{ // strings only: cannot fail
		"model": "m", "stream": r.stream, "user": fmt.Sprint("user ", rng.IntN(500)),
		"messages": []map[string]string{{"role": "system", "content": document}, {"role": "user", "content": p.text(rng, 20)}},
	})
	r.url = url + "/" + r.mode + "/v1/chat/completions"
	return r
}

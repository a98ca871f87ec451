package fakepod

import "net/http"

// rule chooses a script for some requests.
type rule struct {
	path  string             // exact path, or
	match func(Request) bool // a predicate over the whole request
	use   Script
}

// Set makes s the script for all requests that no rule of SetPath, When or Next
// takes.
func (p *Pod) Set(s Script) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = s
}

// SetPath makes s the script for requests of exactly this path. Later rules go
// before earlier ones.
func (p *Pod) SetPath(path string, s Script) { p.rule(rule{path: path, use: s}) }

// When makes s the script for requests for which match is true. match gets the
// whole request, runs under the pod's lock and must not call its methods.
func (p *Pod) When(match func(Request) bool, s Script) { p.rule(rule{match: match, use: s}) }

func (p *Pod) rule(r rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append([]rule{r}, p.rules...)
}

// Next makes the next requests use these scripts, one each and before any rule;
// then things are as they were. Probes do not count.
func (p *Pod) Next(s ...Script) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, s...)
}

// Clear takes back Set, SetPath, When and Next: every request gets Reply{}.
// Health stays.
func (p *Pod) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script, p.rules, p.queue = Reply{}, nil, nil
}

// SetHealth makes s the script for probes: a status, a delay, a Cycle that
// flaps, a Cut, anything.
func (p *Pod) SetHealth(s Script) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health = s
}

// Healthy makes probes answer 200, or 503.
func (p *Pod) Healthy(ok bool) {
	if ok {
		p.SetHealth(Reply{})
	} else {
		p.SetHealth(Reply{Status: http.StatusServiceUnavailable})
	}
}

// SetStrict says how closely the pod looks at requests.
func (p *Pod) SetStrict(s Strict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strict = s
}

// choose turns the script into the reply for this request.
func (x *exchange) choose(s Script) Reply {
	x.pod.mu.Lock()
	strict, copied := x.pod.strict, *x.rec
	x.pod.mu.Unlock()
	if r := strict.check(&copied); r != nil {
		return *r
	}
	switch s := s.(type) {
	case Reply:
		return s
	case Func:
		return s(copied)
	case Unread: // behind a predicate: the body has been read
		return s.Reply
	}
	return Reply{}
}

// early returns the script for a request of which only the head is known, or
// nil if that depends on the body.
func (p *Pod) early(r *Request) Script {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Probe {
		return p.health.next()
	}
	if len(p.queue) > 0 {
		s := p.queue[0]
		p.queue = p.queue[1:]
		return s.next()
	}
	for k := range p.rules {
		if p.rules[k].match != nil {
			return nil
		}
		if p.rules[k].path == r.Path {
			return p.rules[k].use.next()
		}
	}
	return p.script.next()
}

// late returns the script for a request that is known whole.
func (p *Pod) late(r *Request) Script {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.rules {
		rule := &p.rules[k]
		if rule.match != nil && rule.match(*r) || rule.match == nil && rule.path == r.Path {
			return rule.use.next()
		}
	}
	return p.script.next()
}

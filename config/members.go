package config

// MaxPods is the most pods that a balancer can have.
const MaxPods = 256

// Member is a pod together with the roles in which it serves.
type Member struct {
	Pod
	Path                    string // its JSON path
	Single, Prefill, Decode bool
}

// Members lists all pods: those of single mode, of the prefill and of the decode
// leg, each in the order of the configuration. A pod has the role under which it
// is listed, and those of its capabilities for which b has a section.
func (b *Balancer) Members() []Member {
	var members []Member
	var single, prefill, decode []Pod
	if b.Single != nil {
		single = b.Single.Pods
	}
	if d := b.Dispatch; d != nil {
		prefill, decode = orEmpty(d.Prefill).Pods, orEmpty(d.Decode).Pods
	}
	add := func(path string, pods []Pod, listed Member) {
		for i, p := range pods {
			m := listed
			m.Pod, m.Path = p, index(path, i)
			if c := p.Capabilities; c != nil {
				m.Single = m.Single || isTrue(c.Single) && b.Single != nil
				m.Prefill = m.Prefill || isTrue(c.Prefill) && b.Dispatch != nil
				m.Decode = m.Decode || isTrue(c.Decode) && b.Dispatch != nil
			}
			members = append(members, m)
		}
	}
	add("single.pods", single, Member{Single: true})
	add("dispatch.prefill.pods", prefill, Member{Prefill: true})
	add("dispatch.decode.pods", decode, Member{Decode: true})
	return members
}

// HasSingle tells whether requests can be served in single mode: it has pods, or
// sources that may find some.
func (b *Balancer) HasSingle() bool {
	if b.discovers("single") {
		return true
	}
	for _, m := range b.Members() {
		if m.Single {
			return true
		}
	}
	return false
}

// HasDispatch tells whether requests can be served in dispatch mode.
func (b *Balancer) HasDispatch() bool {
	prefill, decode := b.legs()
	return prefill && decode
}

// legs tells which legs have pods, or sources that may find some.
func (b *Balancer) legs() (prefill, decode bool) {
	prefill, decode = b.discovers("dispatch.prefill"), b.discovers("dispatch.decode")
	for _, m := range b.Members() {
		prefill = prefill || m.Prefill
		decode = decode || m.Decode
	}
	return prefill, decode
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

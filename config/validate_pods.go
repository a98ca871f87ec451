package config

import (
	"strings"
	"unicode"
)

// pods checks each pod, and what no two pods of a balancer may share.
func (c *checker) pods(b *Balancer) {
	limit := MaxPods
	if r := b.CacheRegistry; r != nil && r.MaxPods != nil {
		limit = min(limit, max(*r.MaxPods, 1))
	}
	c.members(b.Members(), limit)
	for _, m := range b.Members() {
		c.pod = m.ID
		c.transfer(b.connector(), m)
	}
	c.pod = ""
}

func (c *checker) members(members []Member, limit int) {
	paths := make(map[string]string, len(members))
	for i, m := range members {
		c.pod = m.ID
		if i == limit {
			c.add(m.Path, nil, "one pod more than the %d that are allowed", limit)
			break
		}
		c.onePod(m)
		if first, ok := paths[m.ID]; ok && m.ID != "" {
			c.add(m.Path+".id", m.ID, "this id is already that of")
			c.problems[len(c.problems)-1].Other = first
			continue
		}
		paths[m.ID] = m.Path
	}
	c.pod = ""
}

func (c *checker) onePod(m Member) {
	if m.ID == "" {
		c.add(m.Path, nil, "a pod without an id")
	}
	c.visible(m.Path+".id", m.ID)
	c.text(m.Path+".node", m.Node)
	c.text(m.Path+".zone", m.Zone)
	between(c, m.Path+".max_conns", m.MaxConns, 1, maxCount)

	switch _, err := ParseURL(m.URL); {
	case m.URL == "":
		c.add(m.Path, nil, "a pod without a url")
	case err == errUserinfo:
		c.add(m.Path+".url", nil, "%v", err)
	case err != nil:
		c.add(m.Path+".url", m.URL, "%v", err)
	}

	if caps := m.Capabilities; caps != nil {
		for _, role := range []struct {
			key  string
			said *bool
			list string
		}{{"single", caps.Single, "single."}, {"prefill", caps.Prefill, "dispatch.prefill."}, {"decode", caps.Decode, "dispatch.decode."}} {
			if isFalse(role.said) && strings.HasPrefix(m.Path, role.list) {
				c.add(m.Path+".capabilities."+role.key, false, "the pod is listed under %s", role.key)
			}
		}
	}
}

// text checks a free text that ends up in logs and labels.
func (c *checker) text(path, value string) {
	if len(value) > maxName {
		c.add(path, nil, "is %d bytes long, want at most %d", len(value), maxName)
		return
	}
	if strings.ContainsFunc(value, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }) {
		c.add(path, value, "want no control characters")
	}
}

package config

import (
	"math"
	"net"
	"slices"
	"strconv"
)

// connector is the name of the connector in effect, "" without dispatch.
func (b *Balancer) connector() string {
	switch {
	case b.Dispatch == nil:
		return ""
	case b.Dispatch.Connector == "":
		return DefaultConnector
	default:
		return canonical(connectors, b.Dispatch.Connector)
	}
}

// transferKey is a key of a pod that says how it hands over.
type transferKey struct {
	name string
	yaml string // how messages name one that is required
	// said tells whether the pod has it.
	said func(p *Pod) bool
	// of says for which connectors it is, and whether such a pod must have it;
	// both speaks of decode pods too.
	of, required, both []string
}

var transferKeys = []transferKey{
	{name: "bootstrap_host", said: func(p *Pod) bool { return p.BootstrapHost != "" }, of: []string{"sglang", "mooncake"}},
	{name: "bootstrap_port", said: func(p *Pod) bool { return p.BootstrapPort != nil }, of: []string{"sglang", "mooncake"}},
	{
		name: "kv_address", yaml: "kvAddress (kv_address)", said: func(p *Pod) bool { return p.KVAddress != "" },
		of: []string{"p2pnccl", "nixlPush"}, required: []string{"p2pnccl"}, both: []string{"p2pnccl"},
	},
	{name: "engine_id", yaml: "engineId (engine_id)", said: func(p *Pod) bool { return p.EngineID != "" }, of: []string{"nixlPush"}, required: []string{"nixlPush"}},
	{name: "tp_size", said: func(p *Pod) bool { return p.TPSize != nil }, of: []string{"nixlPush"}},
	{name: "pp_size", said: func(p *Pod) bool { return p.PPSize != nil }, of: []string{"nixlPush"}},
}

// transfer checks the keys that say how a pod hands over: that they are for the
// connector and the pod's role, that none is missing, and their values.
func (c *checker) transfer(connector string, m Member) {
	for _, k := range transferKeys {
		path := m.Path + "." + k.name
		concerned := m.Prefill || m.Decode && slices.Contains(k.both, connector)
		switch said := k.said(&m.Pod); {
		case said && !slices.Contains(k.of, connector):
			c.add(path, nil, "is for the connector %s alone", orList(k.of))
		case said && !concerned && slices.Contains(k.both, connector):
			c.add(path, nil, "is for prefill and decode pods alone")
		case said && !concerned:
			c.add(path, nil, "is for prefill pods alone")
		case !said && concerned && slices.Contains(k.required, connector):
			c.add(m.Path, nil, "the connector %s needs %s", connector, k.yaml)
		}
	}
	c.visible(m.Path+".bootstrap_host", m.BootstrapHost)
	c.visible(m.Path+".engine_id", m.EngineID)
	between(c, m.Path+".bootstrap_port", m.BootstrapPort, 1, math.MaxUint16)
	between(c, m.Path+".tp_size", m.TPSize, 1, maxCount)
	between(c, m.Path+".pp_size", m.PPSize, 1, maxCount)
	between(c, m.Path+".dp_rank", m.DPRank, 0, maxCount)
	if m.KVAddress != "" {
		if _, _, err := SplitAddress(m.KVAddress); err != nil {
			c.add(m.Path+".kv_address", m.KVAddress, "want host:port, an IPv6 address in brackets")
		}
	}
}

// SplitAddress takes host:port apart. An error says that it is neither.
func SplitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || host == "" || hasSpace(host) {
		return "", 0, &net.AddrError{Err: "want host:port", Addr: address}
	}
	return host, int(n), nil
}

// hasSpace tells whether text has anything but visible ASCII characters.
func hasSpace(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return true
		}
	}
	return false
}

package config

import (
	"fmt"
	"reflect"
	"slices"
)

// Agree checks that two places that share a balancer's state, because they give
// it the same name, say the same about that state: pods, health, block_size,
// max_token_bytes, cache_registry, sessions, learn_models and overload. The error is
// a [*Problem] that names the first key on which they differ.
func Agree(a, b *Balancer) error {
	ea, eb := a.Defaults(), b.Defaults()
	if p := podsDiffer(ea.Members(), eb.Members()); p != nil {
		p.Message += fmt.Sprintf(" of balancer %q", ea.Name)
		return p
	}
	if p := sourcesDiffer(ea.Sources(), eb.Sources()); p != nil {
		p.Message += fmt.Sprintf(" of balancer %q", ea.Name)
		return p
	}
	shared := map[string]bool{"block_size": true, "max_token_bytes": true, "health": true, "cache_registry": true, "sessions": true, "learn_models": true, "overload": true}
	if key, va, vb := difference(ea, eb, "", shared); key != "" {
		return &Problem{Path: key, Message: fmt.Sprintf("%v here, %v in another place of balancer %q", va, vb, ea.Name)}
	}
	return nil
}

// podsDiffer names the first pod of a that b does not have just so, or the other
// way round, nil if there is none. The order of the pods does not matter.
func podsDiffer(a, b []Member) *Problem {
	byID := make(map[string]Member, len(b))
	for _, m := range b {
		byID[m.ID] = m
	}
	for _, m := range a {
		other, ok := byID[m.ID]
		delete(byID, m.ID)
		path := m.Path
		m.Path, other.Path = "", ""
		if !ok {
			return &Problem{Path: path, Pod: m.ID, Message: "this pod is missing in another place"}
		}
		if !reflect.DeepEqual(m, other) {
			return &Problem{Path: path, Pod: m.ID, Message: "this pod is described differently in another place"}
		}
	}
	for _, m := range b {
		if _, ok := byID[m.ID]; ok {
			return &Problem{Message: fmt.Sprintf("pod %q is missing here, but not in another place", m.ID)}
		}
	}
	return nil
}

// sourcesDiffer is podsDiffer for what finds pods.
func sourcesDiffer(a, b []Source) *Problem {
	same := func(x Source) func(Source) bool { return func(y Source) bool { return x.Key == y.Key } }
	for _, s := range a {
		if !slices.ContainsFunc(b, same(s)) {
			return &Problem{Path: s.Path + ".discover", Message: fmt.Sprintf("source %s is missing or described differently in another place", s.Name)}
		}
	}
	for _, s := range b {
		if !slices.ContainsFunc(a, same(s)) {
			return &Problem{Path: s.Path + ".discover", Message: fmt.Sprintf("source %s is missing or described differently here, but not in another place", s.Name)}
		}
	}
	return nil
}

// difference returns the path and the values of the first key on which two
// sections of the same type differ; only, unless nil, names the keys to compare.
func difference(a, b any, path string, only map[string]bool) (key string, va, vb any) {
	fa, fb := Fields(a), Fields(b)
	for i, f := range fa {
		if only != nil && !only[f.JSON] {
			continue
		}
		x, y := reflect.ValueOf(f.Ptr).Elem(), reflect.ValueOf(fb[i].Ptr).Elem()
		if reflect.DeepEqual(x.Interface(), y.Interface()) {
			continue
		}
		key = join(path, f.JSON)
		if x.Kind() == reflect.Pointer && x.IsNil() != y.IsNil() {
			return key, onOff(x), onOff(y)
		}
		if sa, ok := f.Section(); ok {
			sb, _ := fb[i].Section()
			return difference(sa, sb, key, nil)
		}
		return key, reflect.Indirect(x).Interface(), reflect.Indirect(y).Interface()
	}
	return "", nil, nil
}

// onOff says whether a section is there whose absence turns something off.
func onOff(section reflect.Value) string {
	if section.IsNil() {
		return "off"
	}
	return "on"
}

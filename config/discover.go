package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Source is something that finds pods while the balancer runs, as the
// configuration describes it.
type Source struct {
	// Path of the list that the pods belong to: "single", "dispatch.prefill" or
	// "dispatch.decode".
	Path string
	// Name of the source's module below calinix.discovery.
	Name string
	// Key is the same for two sources that find the same pods for the same list.
	Key string
	// Raw is the module's configuration, without its name.
	Raw json.RawMessage
}

// sourceKey is the member of a discover entry that names the module.
const sourceKey = "source"

// Sources lists the sources of b in the order of the configuration.
func (b *Balancer) Sources() []Source {
	var all []Source
	b.eachGroup(func(path string, _ *[]Pod, entries []json.RawMessage) {
		for _, raw := range entries {
			s, err := parseSource(path, raw)
			if err != nil {
				continue // refused by Validate
			}
			all = append(all, s)
		}
	})
	return all
}

// eachGroup visits the lists of pods that b has sections for.
func (b *Balancer) eachGroup(visit func(path string, pods *[]Pod, entries []json.RawMessage)) {
	if s := b.Single; s != nil {
		visit("single", &s.Pods, s.Discover)
	}
	d := b.Dispatch
	if d == nil {
		return
	}
	if p := d.Prefill; p != nil {
		visit("dispatch.prefill", &p.Pods, p.Discover)
	}
	if p := d.Decode; p != nil {
		visit("dispatch.decode", &p.Pods, p.Discover)
	}
}

// discovers tells whether the list at path has sources.
func (b *Balancer) discovers(path string) (has bool) {
	b.eachGroup(func(p string, _ *[]Pod, entries []json.RawMessage) { has = has || p == path && len(entries) > 0 })
	return has
}

func parseSource(path string, raw json.RawMessage) (Source, error) {
	members := map[string]any{}
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	if err := in.Decode(&members); err != nil {
		return Source{}, fmt.Errorf("want an object with the member %q and the keys of that source", sourceKey)
	}
	name, _ := members[sourceKey].(string)
	if name == "" || strings.ContainsAny(name, ". ") {
		return Source{}, fmt.Errorf("want the name of a source in %q, such as dns or file", sourceKey)
	}
	canonical, err := json.Marshal(members) // keys in order
	if err != nil {
		return Source{}, err
	}
	delete(members, sourceKey)
	config, err := json.Marshal(members)
	if err != nil {
		return Source{}, err
	}
	return Source{Path: path, Name: name, Key: path + " " + string(canonical), Raw: config}, nil
}

// sources checks what can be checked without the modules.
func (c *checker) sources(b *Balancer) {
	b.eachGroup(func(path string, _ *[]Pod, entries []json.RawMessage) {
		for i, raw := range entries {
			if _, err := parseSource(path, raw); err != nil {
				c.add(index(path+".discover", i), nil, "%v", err)
			}
		}
	})
}

// With returns b's defaults with the pods that its sources have found, by the
// sources' keys, behind those that are listed. A pod that is wrong, that has the
// id of another, or that is one too many is left out, with a problem that says
// so. A pod that is found several times is one pod, with the roles of all lists and
// the models of all sources.
func (b *Balancer) With(found map[string][]Pod) (*Balancer, Problems) {
	e := b.Defaults()
	j := joiner{limit: MaxPods, seen: map[string]Pod{}, found: map[string]bool{}}
	if r := e.CacheRegistry; r != nil && r.MaxPods != nil {
		j.limit = min(j.limit, *r.MaxPods)
	}
	for _, m := range e.Members() {
		j.seen[m.ID] = m.Pod
	}
	e.eachGroup(func(path string, pods *[]Pod, entries []json.RawMessage) {
		for _, raw := range entries {
			s, err := parseSource(path, raw)
			if err != nil {
				continue
			}
			for i, p := range found[s.Key] {
				j.pod(e, path, index(path+".discover."+s.Name, i), pods, p)
			}
		}
	})
	return e.Defaults(), j.problems
}

// joiner puts found pods into the lists of a balancer.
type joiner struct {
	checker
	limit int
	seen  map[string]Pod
	found map[string]bool // those that are not listed
}

// pod adds p, which place names in messages, to the list at path.
func (j *joiner) pod(b *Balancer, path, place string, list *[]Pod, p Pod) {
	before := len(j.problems)
	j.checker.pod = p.ID
	defer func() { j.checker.pod = "" }()
	j.onePod(Member{Pod: p, Path: place})
	if len(j.problems) > before {
		return
	}
	other, known := j.seen[p.ID]
	switch {
	case known && !sameAddress(other.URL, p.URL):
		j.add(place, nil, "another pod of this id is at %s", other.URL)
	case known:
		j.addTo(b, path, p)
	case len(j.seen) >= j.limit:
		j.add(place, nil, "one pod more than the %d that are allowed", j.limit)
	default:
		j.seen[p.ID], j.found[p.ID] = p, true
		*list = append(*list, p)
	}
}

// addTo gives the pod that is in a list already the role of the one at path. What
// is listed says for itself which models it serves.
func (j *joiner) addTo(b *Balancer, path string, again Pod) {
	b.eachGroup(func(_ string, pods *[]Pod, _ []json.RawMessage) {
		for i := range *pods {
			p := &(*pods)[i]
			if p.ID != again.ID {
				continue
			}
			if j.found[p.ID] {
				p.AddModels(again)
			}
			p.Capabilities = orEmpty(p.Capabilities)
			switch path {
			case "single":
				p.Capabilities.Single = new(true)
			case "dispatch.prefill":
				p.Capabilities.Prefill = new(true)
			case "dispatch.decode":
				p.Capabilities.Decode = new(true)
			}
		}
	})
}

// AddModels adds the models that other, which is the same pod, serves, and their
// strategies. A pod that names no models serves any.
func (p *Pod) AddModels(other Pod) {
	if len(p.Models) == 0 || len(other.Models) == 0 {
		p.Models = nil
		return
	}
	p.Models = slices.Concat(p.Models, other.Models)
	slices.Sort(p.Models)
	p.Models = slices.Compact(p.Models)
	all := maps.Clone(other.Strategies)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, p.Strategies) // the first source that says it counts
	p.Strategies = all
}

func sameAddress(a, b string) bool {
	x, err := ParseURL(a)
	y, err2 := ParseURL(b)
	return err == nil && err2 == nil && x == y
}

package config

import "go.yaml.in/yaml/v3"

const (
	// maxPairs bounds the work that nested merges of aliases can ask for.
	maxPairs = 100_000

	// maxMerges bounds how deeply one merge may lie in another; a mapping that
	// merges itself ends here.
	maxMerges = 8
)

// pair is a key of a mapping with its value.
type pair struct{ key, value *yaml.Node }

// pairs returns the keys of a mapping, those of merged mappings ("<<") after its
// own. A key of the mapping itself hides a merged one, an earlier merge a later
// one; the same key twice in one mapping is a fault.
func (d *decoder) pairs(n *yaml.Node, key string) []pair {
	if n.Kind != yaml.MappingNode {
		d.fault(n, key, "want a mapping of keys, got %s", describe(n))
		return nil
	}
	var out []pair
	d.collect(n, key, map[string]bool{}, &out, 0)
	return out
}

// collect appends the pairs of n whose keys are not in seen yet.
func (d *decoder) collect(n *yaml.Node, key string, seen map[string]bool, out *[]pair, depth int) {
	if d.pairsN += len(n.Content) / 2; d.pairsN > maxPairs || depth > maxMerges {
		if last := len(d.faults) - 1; last < 0 || d.faults[last].Text != tooManyMerges {
			d.fault(n, "", tooManyMerges)
		}
		return
	}
	own := map[string]int{}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := deref(n.Content[i]), n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			d.fault(n.Content[i], key, "want a plain word as a key, got %s", describe(k))
			continue
		}
		if k.ShortTag() == "!!merge" {
			merges = append(merges, deref(v))
			continue
		}
		if line, ok := own[k.Value]; ok {
			d.fault(k, join(key, k.Value), "the key is already given on line %d", line)
			continue
		}
		own[k.Value] = k.Line
		if !seen[k.Value] {
			seen[k.Value] = true
			*out = append(*out, pair{k, v})
		}
	}
	for _, m := range merges {
		sources := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			sources = m.Content
		}
		for _, s := range sources {
			if s = deref(s); s.Kind != yaml.MappingNode {
				d.fault(s, join(key, "<<"), "want a mapping to merge, got %s", describe(s))
				continue
			}
			d.collect(s, key, seen, out, depth+1)
		}
	}
}

const tooManyMerges = "aliases and merges expand to too many keys"

// deref follows an alias.
func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

package config

import "slices"

// podList is the schema of a file that has only pods.
type podList struct {
	Pods []Pod `json:"pods" yaml:"pods"`
}

// LoadPods reads a file with the key pods, whose pods are spelled as in
// config.yaml. name is the file's name, which errors begin with; an error is a
// [Faults] with everything that is wrong. An empty list is no error.
func LoadPods(name string, data []byte) ([]Pod, error) {
	d := &decoder{file: name, places: map[string]Place{}}
	var list podList
	if root := d.parse(data); root != nil {
		d.mapping(root, Fields(&list), position{})
		if _, ok := d.find("pods"); !ok && len(d.faults) == 0 {
			d.fault(root, "", "no pods, want the key pods with a list, which may be empty")
		}
	}
	if len(d.faults) == 0 {
		d.faults = list.problems().Locate(d.find)
	}
	if len(d.faults) > 0 {
		slices.SortStableFunc(d.faults, func(a, b Fault) int { return a.Line - b.Line })
		return nil, d.faults
	}
	return list.Pods, nil
}

func (l *podList) problems() Problems {
	c := &checker{}
	members := make([]Member, len(l.Pods))
	for i, p := range l.Pods {
		members[i] = Member{Pod: p, Path: index("pods", i)}
	}
	c.members(members, MaxPods)
	return c.problems
}

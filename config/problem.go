package config

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Problem is a fault of a configuration, or a warning about it. It names keys by
// their JSON path ("single.pods[2].url"); a front end that knows where the keys
// stand turns it into a [Fault].
type Problem struct {
	Path    string // of the key, "" is the balancer as a whole
	Pod     string // id of the pod to which the key belongs, "" without one
	Value   string // that is wrong, as it is to be shown; "" shows none
	Message string // what is wrong with it and what is wanted
	Other   string // path of a second key, which ends the message; "" without one
}

// Error writes p with JSON paths.
func (p *Problem) Error() string {
	return p.text(func(string) (Place, bool) { return Place{}, false })
}

// Problems are all faults of one configuration.
type Problems []*Problem

// Error writes one problem a line.
func (ps Problems) Error() string {
	return lines(ps)
}

// Place is where a key stands in the file that the user wrote.
type Place struct {
	File string
	Line int
	Key  string // the key's path as that file spells it; "" is as in JSON
	Text string // its value as written, "" if it is no single value
}

// Fault is a problem with its place.
type Fault struct {
	File string
	Line int // 0 without a place in the file
	Key  string
	Text string // the whole message but for the place; it names the key
}

// Error writes f as compilers do: file, line, message.
func (f Fault) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.File, f.Text)
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}

// Faults are all faults of one file, in the order of its lines.
type Faults []Fault

// Error writes one fault a line.
func (fs Faults) Error() string {
	return lines(fs)
}

// maxLines bounds the length of a message about many faults.
const maxLines = 20

// lines writes one error a line.
func lines[E error](errs []E) string {
	var b strings.Builder
	for i, err := range errs {
		if i == maxLines {
			fmt.Fprintf(&b, "\nand %d more", len(errs)-maxLines)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(err.Error())
	}
	return b.String()
}

// Locate gives each problem the place of its key, or else of the nearest section
// around it, in the order of the lines. find returns the place of a JSON path.
func (ps Problems) Locate(find func(path string) (Place, bool)) Faults {
	faults := make(Faults, len(ps))
	for i, p := range ps {
		place, ok := find(p.Path)
		for path := p.Path; !ok && path != ""; {
			path = parent(path)
			place, ok = find(path)
		}
		faults[i] = Fault{File: place.File, Line: place.Line, Key: keyOf(p.Path, find), Text: p.text(find)}
	}
	sort.SliceStable(faults, func(i, j int) bool { return faults[i].Line < faults[j].Line })
	return faults
}

// text writes p, with keys and values as find knows them.
func (p *Problem) text(find func(string) (Place, bool)) string {
	text := p.Message
	if p.Other != "" {
		text += " " + keyOf(p.Other, find)
		if at, ok := find(p.Other); ok {
			text += fmt.Sprintf(" (line %d)", at.Line)
		}
	}
	value := p.Value
	if at, ok := find(p.Path); ok && value != "" && at.Text != "" {
		value = at.Text
	}
	if value != "" {
		value = " " + value
	}

	return message(keyOf(p.Path, find), p.Pod, value, text)
}

// message puts together what is said about a key; the key of a pod is split, so
// that the pod's id stands behind its place in the list.
func message(key, pod, value, text string) string {
	place, key := "", short(key)
	if i := strings.LastIndexByte(key, ']'); i >= 0 && pod != "" {
		place, key = fmt.Sprintf("%s (%q): ", key[:i+1], short(pod)), strings.TrimPrefix(key[i+1:], ".")
	}
	if key == "" {
		return place + text
	}
	return place + key + value + ": " + text
}

// short cuts what the user wrote to a length that fits into a message.
func short(s string) string {
	if len(s) <= 100 {
		return s
	}
	return strings.ToValidUTF8(s[:100], "") + "…"
}

// keyOf spells a JSON path as find does.
func keyOf(path string, find func(string) (Place, bool)) string {
	if path == "" {
		return ""
	}
	if at, ok := find(path); ok && at.Key != "" {
		return at.Key
	}
	up := parent(path)
	return join(keyOf(up, find), strings.TrimPrefix(path[len(up):], "."))
}

// parent cuts the last key or index off a path.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// join appends a key, or an index in brackets, to a path.
func join(path, key string) string {
	if path == "" || strings.HasPrefix(key, "[") {
		return path + key
	}
	return path + "." + key
}

// index appends the index of a list's element to its path.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

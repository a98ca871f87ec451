package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// MaxFileBytes is the largest config.yaml that is read. 256 pods with every key
// take about 50 KiB.
const MaxFileBytes = 1 << 20

// File is what a config.yaml says.
type File struct {
	Port      int        // of the listener; DefaultPort if it was not given
	Balancer  Balancer   // Strategy is always set
	Transport *Transport // nil if it was not given
}

// document is the schema of config.yaml: a balancer's, and what JSON and the
// Caddyfile have elsewhere.
type document struct {
	Version *int `json:"-" yaml:"version"`
	Port    *int `json:"-" yaml:"gateway.port"`
	Balancer
	Transport *Transport `json:"-" yaml:"transport"`
}

// Load reads a config.yaml. name is the file's name, which errors and warnings
// begin with. A nil error means that everything is valid; else it is a [Faults]
// with everything that is wrong. Warnings are only given without an error.
func Load(name string, data []byte) (*File, Faults, error) {
	d := &decoder{file: name, places: map[string]Place{}}
	var doc document
	if root := d.parse(data); root != nil {
		d.mapping(root, Fields(&doc), position{})
	}
	if len(d.faults) == 0 {
		doc.Normalize()
		fillString(&doc.Strategy, DefaultYAMLStrategy)
		d.faults = doc.problems().Locate(d.find)
	}
	if len(d.faults) > 0 {
		slices.SortStableFunc(d.faults, func(a, b Fault) int { return a.Line - b.Line })
		return nil, nil, d.faults
	}

	file := &File{Port: DefaultPort, Balancer: doc.Balancer, Transport: doc.Transport}
	if doc.Port != nil {
		file.Port = *doc.Port
	}
	b := &file.Balancer
	if b.Single != nil {
		b.Single.Mode = ""
	}
	if b.Dispatch != nil {
		b.Dispatch.Mode = ""
	}
	return file, b.Warnings().Locate(d.find), nil
}

// problems checks the whole document.
func (doc *document) problems() Problems {
	c := &checker{}
	switch {
	case doc.Version == nil:
		c.add("", nil, "no version, want version: 1")
	case *doc.Version != 1:
		c.add("version", *doc.Version, "unknown version, want 1")
	}
	between(c, "port", doc.Port, 1, 65535)
	if s := doc.Single; s != nil && s.Mode != "" && s.Mode != "single" {
		c.add("single.mode", s.Mode, "contradicts its section, want single")
	}
	if s := doc.Dispatch; s != nil && s.Mode != "" && s.Mode != "dispatch" {
		c.add("dispatch.mode", s.Mode, "contradicts its section, want dispatch")
	}
	c.transport(doc.Transport)
	if ps, ok := doc.Validate().(Problems); ok {
		c.problems = append(c.problems, ps...)
	}
	return c.problems
}

// find returns the place of a key; keys that the file does not have are looked
// for in its nearest section.
func (d *decoder) find(path string) (Place, bool) {
	p, ok := d.places[path]
	return p, ok
}

var (
	yamlError     = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	unknownAnchor = regexp.MustCompile(`unknown anchor '(.+)' referenced`)
)

// errorLine finds the line of an error of the YAML parser, 0 if it has none.
func errorLine(message string, data []byte) int {
	if m := yamlError.FindStringSubmatch(message); m != nil && m[1] != "" {
		line, _ := strconv.Atoi(m[1])
		return line
	}
	if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		if before, _, ok := bytes.Cut(data, []byte("*"+m[1])); ok {
			return 1 + bytes.Count(before, []byte("\n"))
		}
	}
	return 0
}

// parse returns the root of the one document in data, nil after a fault.
func (d *decoder) parse(data []byte) *yaml.Node {
	if len(data) > MaxFileBytes {
		d.fault(nil, "", "the file has %d bytes, want at most %d", len(data), MaxFileBytes)
		return nil
	}
	in := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF):
		d.fault(nil, "", "the file is empty, want version: 1 and upstreams")
		return nil
	case err != nil:
		d.fault(&yaml.Node{Line: errorLine(err.Error(), data)}, "", "not valid YAML: %s", yamlError.ReplaceAllString(err.Error(), ""))
		return nil
	}
	if err := in.Decode(&second); !errors.Is(err, io.EOF) {
		d.fault(&second, "", "a second document begins here, want one")
		return nil
	}
	root := deref(doc.Content[0])
	if isNull(root) {
		d.fault(nil, "", "the file is empty, want version: 1 and upstreams")
		return nil
	}
	d.places[""] = Place{File: d.file, Line: root.Line}
	return root
}

// fault notes what is wrong at a node with the given key.
func (d *decoder) fault(n *yaml.Node, key, format string, args ...any) {
	f := Fault{File: d.file, Key: key, Text: message(key, d.pod, "", fmt.Sprintf(format, args...))}
	if n != nil {
		f.Line = n.Line
	}
	d.faults = append(d.faults, f)
}

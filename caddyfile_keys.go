package calinix

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/calinix/caddy-calinix/config"
)

// keyParser fills sections of the configuration's schema from Caddyfile tokens:
// subdirectives have the names of the JSON keys. It remembers where each key
// stands, for what is found out only when everything has been read.
type keyParser struct {
	d      *caddyfile.Dispenser
	places map[string]config.Place // by JSON path
	pod    string                  // id of the pod whose block is being read
}

func newKeyParser(d *caddyfile.Dispenser, directive caddyfile.Token) *keyParser {
	return &keyParser{d: d, places: map[string]config.Place{"": {File: directive.File, Line: directive.Line}}}
}

// errorf makes an error about the key with the given path, at the current token.
func (p *keyParser) errorf(path, format string, args ...any) error {
	return p.d.Err((&config.Problem{Path: path, Pod: p.pod, Message: fmt.Sprintf(format, args...)}).Error())
}

// located gives each [config.Problems] in err its place.
func (p *keyParser) located(err error) error {
	problems, ok := err.(config.Problems)
	if !ok {
		return err
	}
	var lines []string
	for _, f := range problems.Locate(func(path string) (config.Place, bool) {
		place, ok := p.places[path]
		return place, ok
	}) {
		lines = append(lines, fmt.Sprintf("%s, at %s:%d", f.Text, f.File, f.Line))
	}
	return errors.New(strings.Join(lines, "\n"))
}

// note remembers the place of a key, which is the current token; the same key
// twice is an error.
func (p *keyParser) note(path string) error {
	if first, ok := p.places[path]; ok {
		return p.errorf(path, "given twice, first at %s:%d", first.File, first.Line)
	}
	p.places[path] = config.Place{File: p.d.File(), Line: p.d.Line()}
	return nil
}

// block reads the block behind the current token: a key of fields a line.
func (p *keyParser) block(fields []config.Field, path string) error {
	for nesting := p.d.Nesting(); p.d.NextBlock(nesting); {
		if own, err := p.parse(fields, path); err != nil {
			return err
		} else if !own {
			return p.unknown(fields, path)
		}
	}
	return nil
}

// parse reads the current token and its arguments if it is a key of fields, and
// tells whether it is.
func (p *keyParser) parse(fields []config.Field, path string) (own bool, err error) {
	for _, f := range fields {
		if pods, ok := f.Ptr.(*[]config.Pod); ok {
			if p.d.Val() == "pod" {
				return true, p.podLine(pods, join(path, f.JSON))
			}
			continue
		}
		if sources, ok := f.Ptr.(*[]json.RawMessage); ok {
			if p.d.Val() == f.JSON {
				return true, p.sourceLine(sources, join(path, f.JSON))
			}
			continue
		}
		if f.JSON != "" && f.JSON == p.d.Val() {
			key := join(path, f.JSON)
			if err := p.note(key); err != nil {
				return true, err
			}
			return true, p.value(f, key)
		}
	}
	return false, nil
}

// unknown refuses the current token with the best advice there is.
func (p *keyParser) unknown(fields []config.Field, path string) error {
	key := p.d.Val()
	var names []string
	for _, f := range fields {
		if _, ok := f.Ptr.(*[]config.Pod); ok {
			names = append(names, "pod")
		} else if f.JSON != "" {
			names = append(names, f.JSON)
		}
	}
	if config.UnavailableKey(path, key) {
		return p.errorf(path, "%s is not available in this version", key)
	}
	if near, ok := config.Nearest(key, names); ok {
		return p.errorf(path, "unrecognized subdirective %s, did you mean %s?", key, near)
	}
	return p.errorf(path, "unrecognized subdirective %s, want one of %s", key, strings.Join(names, ", "))
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

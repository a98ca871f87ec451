package calinix

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/discovery"
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

// value reads the arguments of the current token into a field.
func (p *keyParser) value(f config.Field, path string) error {
	switch ptr := f.Ptr.(type) {
	case *[]int:
		args := p.d.RemainingArgs()
		if len(args) == 0 {
			return p.d.ArgErr()
		}
		for _, arg := range args {
			n, err := strconv.Atoi(arg)
			if err != nil {
				return p.errorf(path, "%q is not a whole number", arg)
			}
			*ptr = append(*ptr, n)
		}
		return nil
	case *[]string:
		args := p.d.RemainingArgs()
		if len(args) == 0 {
			return p.d.ArgErr()
		}
		*ptr = append(*ptr, args...)
		return nil
	case *map[string]string:
		return p.headers(ptr, path)
	case *map[string]*config.Model:
		return p.models(ptr, path)
	case **bool:
		if p.d.CountRemainingArgs() == 0 {
			*ptr = new(true)
			return nil
		}
	}
	if section, ok := f.Section(); ok {
		if err := p.pairs(section, path); err != nil {
			return err
		}
		return p.block(config.Fields(section), path)
	}
	var arg string
	if !p.d.AllArgs(&arg) {
		return p.d.ArgErr()
	}
	return p.scalar(f, path, arg)
}

// scalar reads one argument.
func (p *keyParser) scalar(f config.Field, path, arg string) error {
	switch ptr := f.Ptr.(type) {
	case *string:
		*ptr = arg
	case **bool:
		switch arg {
		case "on", "true":
			*ptr = new(true)
		case "off", "false":
			*ptr = new(false)
		default:
			return p.errorf(path, "%q is neither on nor off", arg)
		}
	case **int:
		n, err := strconv.Atoi(arg)
		if err != nil {
			return p.errorf(path, "%q is not a whole number", arg)
		}
		*ptr = &n
	case **int64:
		n, err := humanize.ParseBytes(arg)
		if err != nil || n > math.MaxInt64 {
			return p.errorf(path, "%q is not a size, want bytes or a unit, such as 64MiB", arg)
		}
		*ptr = new(int64(n))
	case **float64:
		x, err := strconv.ParseFloat(arg, 64)
		if err != nil {
			return p.errorf(path, "%q is not a number", arg)
		}
		*ptr = &x
	case **config.Duration:
		v, err := config.ParseDuration(arg)
		if err != nil {
			return p.errorf(path, "%v", err)
		}
		*ptr = &v
	}
	return nil
}

// pairs reads what sections of few words take on their own line: a word and its
// value each for weights, the words that hold for capabilities.
func (p *keyParser) pairs(section any, path string) error {
	fields := config.Fields(section)
	for p.d.NextArg() {
		own := false
		switch section.(type) {
		case *config.Weights, *config.Capabilities:
			for _, f := range fields {
				if own = f.JSON == p.d.Val(); !own {
					continue
				}
				key := join(path, f.JSON)
				if err := p.note(key); err != nil {
					return err
				}
				value := "on"
				if _, ok := section.(*config.Weights); ok {
					if !p.d.NextArg() {
						return p.d.ArgErr()
					}
					value = p.d.Val()
				}
				if err := p.scalar(f, key, value); err != nil {
					return err
				}
				break
			}
		default:
			return p.errorf(path, "unexpected argument %q, want a block", p.d.Val())
		}
		if !own {
			return p.unknown(fields, path)
		}
	}
	return nil
}

// headers reads a block of header fields.
func (p *keyParser) headers(out *map[string]string, path string) error {
	if p.d.NextArg() {
		return p.errorf(path, "unexpected argument %q, want a block", p.d.Val())
	}
	*out = map[string]string{}
	for nesting := p.d.Nesting(); p.d.NextBlock(nesting); {
		name := p.d.Val()
		if err := p.note(join(path, name)); err != nil {
			return err
		}
		var value string
		if !p.d.AllArgs(&value) {
			return p.d.ArgErr()
		}
		(*out)[name] = value
	}
	return nil
}

// models reads a block of models: a name a line, with its keys in a block.
func (p *keyParser) models(out *map[string]*config.Model, path string) error {
	if p.d.NextArg() {
		return p.errorf(path, "unexpected argument %q, want a block", p.d.Val())
	}
	*out = map[string]*config.Model{}
	for nesting := p.d.Nesting(); p.d.NextBlock(nesting); {
		name := p.d.Val()
		at := join(path, name)
		if err := p.note(at); err != nil {
			return err
		}
		if p.d.NextArg() {
			return p.errorf(at, "unexpected argument %q, want a block", p.d.Val())
		}
		m := new(config.Model)
		if err := p.block(config.Fields(m), at); err != nil {
			return err
		}
		(*out)[name] = m
	}
	return nil
}

// podLine reads a pod: its id, its URL and what else is said of it.
func (p *keyParser) podLine(pods *[]config.Pod, list string) error {
	path := fmt.Sprintf("%s[%d]", list, len(*pods))
	var pod config.Pod
	if err := p.note(path); err != nil {
		return err
	}
	if !p.d.AllArgs(&pod.ID, &pod.URL) {
		return p.errorf(path, "want pod <id> <url>")
	}
	p.pod = pod.ID
	defer func() { p.pod = "" }()
	// id and url have their place in the line and are no keys.
	var keys []config.Field
	for _, f := range config.Fields(&pod) {
		if f.JSON != "id" && f.JSON != "url" {
			keys = append(keys, f)
		}
	}
	if err := p.block(keys, path); err != nil {
		return err
	}
	*pods = append(*pods, pod)
	return nil
}

// sourceLine reads what finds pods: discover, the name of the source, and what
// that source's module reads itself.
func (p *keyParser) sourceLine(sources *[]json.RawMessage, list string) error {
	path := fmt.Sprintf("%s[%d]", list, len(*sources))
	if err := p.note(path); err != nil {
		return err
	}
	if !p.d.NextArg() {
		return p.errorf(path, "want discover <source> ..., with the name of a source such as dns or file")
	}
	name := p.d.Val()
	id := discovery.Namespace + "." + name
	if _, err := caddy.GetModule(id); err != nil {
		return p.errorf(path, noSource, name)
	}
	module, err := caddyfile.UnmarshalModule(p.d, id)
	if err != nil {
		return err
	}
	*sources = append(*sources, caddyconfig.JSONModuleObject(module, "source", name, nil))
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

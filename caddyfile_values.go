package calinix

import (
	"math"
	"strconv"

	"github.com/dustin/go-humanize"

	"github.com/calinix/caddy-calinix/config"
)

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

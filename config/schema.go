package config

import (
	"reflect"
	"strings"
)

// Field is one key of a section of the schema. The parsers of config.yaml and of
// the Caddyfile walk the fields, so that neither can know a key that the other
// does not.
type Field struct {
	JSON string // its key in JSON and the Caddyfile, "" if these have none
	YAML string // its key in config.yaml, with dots where it lies deeper
	Ptr  any    // points to the field: *string, **int, **Duration, *[]Pod, **Health, …
}

// Fields returns the keys of a section in the order of its declaration. section
// points to a struct of this package. It allocates; it is meant for loading.
func Fields(section any) []Field {
	v := reflect.ValueOf(section).Elem()
	fields := make([]Field, 0, v.NumField())
	for i := range v.NumField() {
		f, ptr := v.Type().Field(i), v.Field(i).Addr().Interface()
		if f.Anonymous {
			fields = append(fields, Fields(ptr)...)
			continue
		}
		if f.Tag.Get("yaml") == "-" {
			continue // no configuration can give it
		}
		json, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, Field{JSON: strings.TrimPrefix(json, "-"), YAML: f.Tag.Get("yaml"), Ptr: ptr})
	}
	return fields
}

// name is the key that stands for f in a path.
func (f Field) name() string {
	if f.JSON != "" {
		return f.JSON
	}
	return f.YAML[strings.LastIndexByte(f.YAML, '.')+1:]
}

// Section allocates the struct behind a field whose Ptr is a pointer to a pointer
// to one, unless it is there already, and returns it; ok is false for any other
// field.
func (f Field) Section() (section any, ok bool) {
	v := reflect.ValueOf(f.Ptr).Elem()
	if v.Kind() != reflect.Pointer || v.Type().Elem().Kind() != reflect.Struct {
		return nil, false
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Interface(), true
}

// yamlKeys returns the full path of every key of config.yaml. A list's elements
// stand under the list's own key.
func yamlKeys(t reflect.Type, path string) []string {
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			keys = append(keys, yamlKeys(f.Type, path)...)
			continue
		}
		if f.Tag.Get("yaml") == "-" {
			continue
		}
		key := join(path, f.Tag.Get("yaml"))
		keys = append(keys, key)
		elem := f.Type
		for elem.Kind() == reflect.Pointer || elem.Kind() == reflect.Slice {
			elem = elem.Elem()
		}
		if elem.Kind() == reflect.Struct {
			keys = append(keys, yamlKeys(elem, key)...)
		}
	}
	return keys
}

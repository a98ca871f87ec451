package testcaddy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// Option changes how a configuration is loaded.
type Option func(*options)

type options struct {
	adapter  string
	filename string
	level    string
	noAdmin  bool
	plain    bool
	global   string
	asIs     bool
}

// Adapter makes the text be read by a config adapter other than caddyfile;
// "json" (or "") is none.
func Adapter(name string) Option { return func(o *options) { o.adapter = name } }

// Filename is the name under which the adapter sees the text: relative paths
// count from its folder, errors name it.
func Filename(path string) Option { return func(o *options) { o.filename = path } }

// LogLevel is the level of the captured log instead of DEBUG, for tests that
// send very much.
func LogLevel(level string) Option { return func(o *options) { o.level = level } }

// NoAdmin switches the admin listener off, which saves some milliseconds.
func NoAdmin() Option { return func(o *options) { o.noAdmin = true } }

// Plain makes Serve serve HTTP without TLS: HTTP/1.1 only, a little faster.
func Plain() Option { return func(o *options) { o.plain = true } }

// Global adds text to Serve's global options.
func Global(text string) Option { return func(o *options) { o.global += text + "\n" } }

// AsIs loads exactly what the configuration says: no admin address, log or
// storage of the harness is put in. For tests of those parts.
func AsIs() Option { return func(o *options) { o.asIs = true } }

func apply(opts []Option) options {
	o := options{adapter: "caddyfile", level: "DEBUG"}
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Adapt turns a text into Caddy's JSON without loading it and returns the
// adapter's warnings, that about formatting left out.
func Adapt(text string, opts ...Option) (config []byte, warnings []string, err error) {
	o := apply(opts)
	if o.adapter == "" || o.adapter == "json" {
		return []byte(text), nil, nil
	}
	a := caddyconfig.GetAdapter(o.adapter)
	if a == nil {
		return nil, nil, fmt.Errorf("no config adapter %q: is its package imported?", o.adapter)
	}
	settings := map[string]any{}
	if o.filename != "" {
		settings["filename"] = o.filename
	}
	config, found, err := a.Adapt([]byte(text), settings)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range found {
		if !strings.Contains(w.Message, "not formatted") {
			warnings = append(warnings, w.String())
		}
	}
	return config, warnings, nil
}

// site is the Caddyfile of Serve. Its certificate is loaded from files because a
// managed one (tls internal) is not there yet when loading ends, and because
// Caddy v2.11.9 has a data race between starting and the event that it emits for
// managed certificates, which the race detector reports now and then.
func (o *options) site(port int, body string) string {
	head := fmt.Sprintf("http://:%d {\n", port)
	if !o.plain {
		head = fmt.Sprintf("https://:%d {\n\ttls %s %s\n", port, certFile(), keyFile())
	}
	return "{\n\tauto_https disable_redirects\n" + o.global + "}\n" + head + body + "\n}\n"
}

// object is a JSON object of a configuration.
type object = map[string]any

// in returns the object under the path, making what is missing.
func in(o object, path ...string) object {
	for _, name := range path {
		next, ok := o[name].(object)
		if !ok {
			next = object{}
			o[name] = next
		}
		o = next
	}
	return o
}

// orSet sets a member that the configuration leaves open.
func orSet(o object, name string, value any) {
	if _, there := o[name]; !there {
		o[name] = value
	}
}

// harden puts in what every test wants and no test wants to write: an admin
// address of its own, the captured log, storage in the test binary's home, no
// root certificate in the machine's trust store, no autosaved configuration,
// and an end to waiting for old connections. What the configuration says itself
// stays. It also returns where the admin listener is.
func harden(config []byte, o *options, admin, logKey string) (hardened []byte, adminAddr string, err error) {
	var c object
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	if err := d.Decode(&c); err != nil {
		return nil, "", fmt.Errorf("reading the adapted configuration: %w", err)
	}
	if c == nil {
		c = object{}
	}
	if o.noAdmin {
		in(c, "admin")["disabled"] = true
	} else {
		orSet(in(c, "admin"), "listen", admin)
		adminAddr, _ = in(c, "admin")["listen"].(string)
		if strings.HasPrefix(adminAddr, ":") {
			adminAddr = "localhost" + adminAddr
		}
	}
	in(c, "admin", "config")["persist"] = false
	writer := object{"output": "testcaddy", "key": logKey}
	for _, log := range []object{in(c, "logging", "logs", "default"), in(c, "logging", "sink")} {
		orSet(log, "writer", writer)
		orSet(log, "encoder", object{"format": "json"})
		orSet(log, "level", o.level)
	}
	orSet(c, "storage", object{"module": "file_system", "root": filepath.Join(home, "data", "caddy")})
	if apps, ok := c["apps"].(object); ok {
		if needsCA(apps) {
			cas := in(apps, "pki", "certificate_authorities")
			in(cas, "local")
			for name := range cas {
				orSet(in(cas, name), "install_trust", false)
			}
		}
		if http, ok := apps["http"].(object); ok {
			orSet(http, "grace_period", "2s")
		}
	}
	hardened, err = json.Marshal(c)
	return hardened, adminAddr, err
}

// needsCA reports whether the configuration may issue certificates of a CA of
// Caddy's own, by request or because a site has a name. The CA is made only
// then: it costs more than the rest of loading.
func needsCA(apps object) bool {
	if apps["pki"] != nil {
		return true
	}
	text, err := json.Marshal([]any{apps["http"], apps["tls"]})
	return err != nil || bytes.Contains(text, []byte(`"host"`)) || bytes.Contains(text, []byte(`"internal"`))
}

// stopped is the configuration that ends the admin listener.
func stopped(logKey string) []byte {
	return caddyconfig.JSON(&caddy.Config{
		Admin: &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: new(bool)}},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{
			WriterRaw: caddyconfig.JSONModuleObject(logWriter{Key: logKey}, "output", "testcaddy", nil),
		}}}},
	}, nil)
}

// Package file finds pods in a file that another program writes.
package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/discovery"
)

func init() {
	caddy.RegisterModule(new(Source))
}

// Source watches a file with the pods of a list:
//
//	pods:
//	  - {id: engine-1, url: "http://10.0.0.1:8000", zone: a}
//
// Pods have the keys that they have in config.yaml. The file's content is compared
// twice a second, which also sees files that are replaced or, as Kubernetes
// does with ConfigMaps, lie behind links that are. While the file is missing or
// has a fault, the pods known last stay.
type Source struct {
	// The file. A relative path counts from the Caddyfile's folder, elsewhere
	// from the working directory.
	Path string `json:"path,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*Source) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: discovery.Namespace + ".file", New: func() caddy.Module { return new(Source) }}
}

// Provision checks the settings.
func (s *Source) Provision(caddy.Context) error {
	if s.Path == "" {
		return errors.New("file: no path, want the file with the pods")
	}
	return nil
}

// UnmarshalCaddyfile reads
//
//	file <path>
func (s *Source) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the source's name
	if !d.AllArgs(&s.Path) {
		return d.ArgErr()
	}
	if !filepath.IsAbs(s.Path) {
		s.Path = filepath.Join(filepath.Dir(d.File()), s.Path)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		return d.Errf("unrecognized subdirective %s, file has none", d.Val())
	}
	return nil
}

// period is how often the file is compared.
const period = 500 * time.Millisecond

// Watch implements [discovery.Source].
func (s *Source) Watch(ctx context.Context, sink discovery.Sink) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	var known []byte // the content that was looked at last
	for {
		pods, data, err := s.read(known)
		switch {
		case err != nil:
			known = data
			sink.Failing(err)
		case data != nil:
			known = data
			sink.Found(pods)
			sink.Failing(nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// read returns the pods of the file and its content, no content if that is known
// already.
func (s *Source) read(known []byte) ([]config.Pod, []byte, error) {
	data, err := os.ReadFile(s.Path)
	if err != nil {
		return nil, nil, err
	}
	if known != nil && bytes.Equal(data, known) {
		return nil, nil, nil
	}
	pods, err := config.LoadPods(s.Path, data)
	if err != nil {
		return nil, nil, fmt.Errorf("reading pods: %w", err) // looked at again: it may be half written
	}
	return pods, data, nil
}

// Interface guards.
var (
	_ discovery.Source      = (*Source)(nil)
	_ caddy.Provisioner     = (*Source)(nil)
	_ caddyfile.Unmarshaler = (*Source)(nil)
)

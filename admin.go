package calinix

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/outcome"
)

func init() {
	caddy.RegisterModule(adminAPI{})
}

// adminAPI serves /calinix/ on Caddy's admin listener. It holds no state: Caddy
// provisions it before any app and never cleans it up, so every request looks
// the balancers up anew.
//
//	GET  /calinix/pods               every pod with its state
//	GET  /calinix/index              size of the prefix index
//	POST /calinix/explain            how a request would be routed; nothing is sent, nothing learned
//	POST /calinix/pods/{id}/drain    no new requests for the pod
//	POST /calinix/pods/{id}/undrain  new requests again
//
// ?balancer=NAME chooses among several balancers; the default is the first by
// name.
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.calinix", New: func() caddy.Module { return new(adminAPI) }}
}

// Routes implements [caddy.AdminRouter].
func (a adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: "/calinix/", Handler: caddy.AdminHandlerFunc(a.serve)}}
}

func (a adminAPI) serve(w http.ResponseWriter, r *http.Request) error {
	path := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/calinix/"), "/")
	var method string
	var route func(http.ResponseWriter, *http.Request, *balancer) error
	switch {
	case len(path) == 1 && path[0] == "pods":
		method, route = http.MethodGet, a.pods
	case len(path) == 1 && path[0] == "index":
		method, route = http.MethodGet, a.index
	case len(path) == 1 && path[0] == "explain":
		method, route = http.MethodPost, a.explain
	case len(path) == 3 && path[0] == "pods" && (path[2] == "drain" || path[2] == "undrain"):
		method, route = http.MethodPost, a.drain(path[1], path[2] == "drain")
	default:
		return adminError(http.StatusNotFound, "unknown path %q, want pods, index, explain, pods/ID/drain or pods/ID/undrain", r.URL.Path)
	}
	if r.Method != method && !(method == http.MethodGet && r.Method == http.MethodHead) {
		w.Header().Set("Allow", method)
		return adminError(http.StatusMethodNotAllowed, "method %s is not allowed here, want %s", r.Method, method)
	}
	b, err := chosen(r.URL.Query().Get("balancer"))
	if err != nil {
		return err
	}
	return route(w, r, b)
}

// chosen returns the balancer of that name, or the first one for "".
func chosen(name string) (*balancer, error) {
	all := allBalancers()
	for _, b := range all {
		if name == "" || b.name == name {
			return b, nil
		}
	}
	if name == "" {
		return nil, adminError(http.StatusNotFound, "no balancer is configured")
	}
	return nil, adminError(http.StatusNotFound, "no balancer is named %q", name)
}

// podJSON is one pod of GET /calinix/pods.
type podJSON struct {
	Balancer string   `json:"balancer"`
	ID       string   `json:"id"`
	URL      string   `json:"url"`
	Role     string   `json:"role"` // the first of Roles
	Roles    []string `json:"roles"`
	Up       bool     `json:"up"`
	Draining bool     `json:"draining"`
	// Inflight is the number of legs that run at the pod, all roles together.
	Inflight int  `json:"inflight"`
	MaxConns *int `json:"maxConns"` // null: no limit
	Blocks   int  `json:"blocks"`   // that the index lists for the pod
	// Room is how many blocks the index may list for the pod, CacheTokens the
	// size of the engine's cache from which that follows; null: any number.
	Room        *int   `json:"room"`
	CacheTokens *int64 `json:"cacheTokens"`
	// Stale: the pod delivers less than half of what its cache was expected to.
	Stale  bool     `json:"stale"`
	Node   string   `json:"node"`
	Zone   string   `json:"zone"`
	Models []string `json:"models"` // null: any
	Health string   `json:"health"` // the last probe's result, "" before the first
}

func (adminAPI) pods(w http.ResponseWriter, _ *http.Request, b *balancer) error {
	out := []podJSON{}
	for _, s := range b.fleet.Snapshot() {
		p := podJSON{
			Balancer: b.name, ID: s.ID, URL: s.URL, Roles: rolesOf(s.Roles), Up: s.Up, Draining: s.Draining,
			Blocks: s.Blocks, Stale: s.Stale, Node: s.Node, Zone: s.Zone, Models: s.Models, Health: b.lastProbe(s.Ref),
		}
		p.Role = p.Roles[0]
		for _, n := range s.Running {
			p.Inflight += n
		}
		if s.Room > 0 {
			p.Room = &s.Room
		}
		if s.Cache > 0 {
			p.CacheTokens = &s.Cache
		}
		if s.Limited {
			p.MaxConns = &s.MaxConns
		}
		out = append(out, p)
	}
	return writeJSON(w, out)
}

// rolesOf lists the roles of a pod by name.
func rolesOf(set fleet.RoleSet) []string {
	var names []string
	for leg, name := range roleNames {
		if set.Has(legRole(outcome.Leg(leg))) {
			names = append(names, name)
		}
	}
	return names
}

func (adminAPI) index(w http.ResponseWriter, _ *http.Request, b *balancer) error {
	type pod struct {
		ID     string `json:"id"`
		Blocks int    `json:"blocks"`
	}
	pods := []pod{}
	for _, s := range b.fleet.Snapshot() {
		pods = append(pods, pod{s.ID, s.Blocks})
	}
	return writeJSON(w, struct {
		Balancer string `json:"balancer"`
		Blocks   int    `json:"blocks"`
		Bytes    int64  `json:"bytes"`
		Pods     []pod  `json:"pods"`
	}{b.name, b.blocks.Blocks(), b.blocks.Bytes(), pods})
}

func (adminAPI) drain(escapedID string, on bool) func(http.ResponseWriter, *http.Request, *balancer) error {
	return func(w http.ResponseWriter, _ *http.Request, b *balancer) error {
		id, err := url.PathUnescape(escapedID)
		if err != nil {
			return adminError(http.StatusBadRequest, "pod id %q: %v", escapedID, err)
		}
		if !b.fleet.Drain(id, on) {
			return adminError(http.StatusNotFound, "balancer %q has no pod %q%s", b.name, id, elsewhere(id))
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// elsewhere names the balancers that do have a pod of that id.
func elsewhere(id string) string {
	var names []string
	for _, b := range allBalancers() {
		if slices.ContainsFunc(b.fleet.Snapshot(), func(s fleet.Status) bool { return s.ID == id }) {
			names = append(names, strconv.Quote(b.name))
		}
	}
	if names == nil {
		return ""
	}
	return ", but " + strings.Join(names, " and ") + " has: choose it with ?balancer=NAME"
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

func adminError(status int, format string, args ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, args...)}
}

// Interface guards.
var _ caddy.AdminRouter = adminAPI{}

package calinix

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/jsonedit"
)

// modelRoute is how requests that name a model, or one of its aliases, are
// served.
type modelRoute struct {
	name     string // the engines'
	client   string // the client's
	restore  bool   // answers name the model as the client does
	rules    *rules
	own      bool // the strategy is the model's own, not the balancer's
	maxConns int64
	running  *atomic.Int64 // requests of the model under all its names; nil without maxConns
}

// modelRoutes lists them by the client's name.
func (h *Handler) modelRoutes() (map[string]*modelRoute, error) {
	e := h.effective
	routes := map[string]*modelRoute{}
	for name, m := range e.Models {
		strategy := m.Strategy
		if strategy == "" {
			strategy = e.Strategy
		}
		r, err := newRules(strategy, m.Weights, h.metrics, e.Name)
		if err != nil {
			return nil, err
		}
		for _, client := range append([]string{name}, m.Aliases...) {
			route := &modelRoute{
				name: name, client: client, restore: *m.RestoreAlias && client != name,
				rules: r, own: m.Strategy != "",
			}
			if m.MaxConns != nil {
				route.maxConns = int64(*m.MaxConns)
			}
			routes[client] = route
		}
	}
	return routes, nil
}

// modelLoad counts the requests of each model that has a limit. It belongs to the
// balancer: the count goes on over a reload.
type modelLoad struct {
	mu     sync.Mutex
	byName map[string]*atomic.Int64
}

// of returns the counter of the model of that name.
func (l *modelLoad) of(name string) *atomic.Int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName == nil {
		l.byName = map[string]*atomic.Int64{}
	}
	if l.byName[name] == nil {
		l.byName[name] = new(atomic.Int64)
	}
	return l.byName[name]
}

// chooseModel decides what follows from the request's model: which pods may serve
// it, by which rules, under which name, and whether there is room for it.
func (x *exchange) chooseModel() *apiError {
	req := x.request
	x.rules = x.h.rules
	if len(req.Model) == 0 {
		return nil
	}
	route := x.h.models[string(req.Model)]
	if route != nil {
		if route.client != route.name {
			if refused := x.rename(route); refused != nil {
				return refused
			}
		}
		x.rules = route.rules
	}
	service := x.h.state.fleet.Serves(req.Model)
	switch {
	case !service.Named: // any pod will do
	case service.Roles != 0:
		x.model = bytes.Clone(req.Model) // for longer than the request is kept
		x.route.mode = x.h.modeOf(x.route.mode, service.Roles)
	case !x.h.passUnknown:
		return unknownModel(string(req.Model))
	}
	if service.HasStrategy && (route == nil || !route.own) {
		x.rules = x.rules.with(service.Strategy)
	}
	if route != nil && route.running != nil {
		if n := route.running.Add(1); n > route.maxConns {
			route.running.Add(-1)
			return &apiError{
				status: http.StatusServiceUnavailable, code: "model_at_max_conns", retryAfter: retryAfter,
				message: "model " + strconv.Quote(cut(route.client, maxQuoted)) + " is at its maxConns",
			}
		}
		x.running = route.running
	}
	return nil
}

// maxQuoted bounds what is repeated of a client's words.
const maxQuoted = 128

// unknownModel is the answer to a request for a model that no pod serves.
func unknownModel(name string) *apiError {
	return &apiError{
		status: http.StatusNotFound, code: "model_not_found",
		message: "the model " + strconv.Quote(cut(name, maxQuoted)) + " does not exist",
	}
}

// rename makes the request one for the model behind an alias. The pods get the
// client's bytes but for the name.
func (x *exchange) rename(route *modelRoute) *apiError {
	name, err := json.Marshal(route.name)
	if err != nil {
		return &apiError{status: http.StatusInternalServerError, code: "bad_alias", message: err.Error()}
	}
	b := x.body
	if err := b.reserve(b.size()+int64(len(b.decoded)+len(name)), x.h.bodies); err != nil {
		return x.bodyError(err)
	}
	renamed, err := jsonedit.Apply(nil, b.decoded, jsonedit.Edit{Name: "model", Value: name})
	if err != nil { // it has been read as JSON by the same rules
		return badBody(err.Error())
	}
	b.raw, b.decoded = renamed, renamed
	x.r.Header.Del("Content-Encoding") // the body is ours now
	x.request.Rename([]byte(route.name))
	if route.restore {
		x.renaming = newRenaming(route)
		x.r.Header.Set("Accept-Encoding", "identity") // the answer is to be read
	}
	return nil
}

// modeOf is the mode of a request whose model is served in these roles: a mode
// for which the model has no pods is ignored, as is one for which there are none
// at all.
func (h *Handler) modeOf(m mode, roles fleet.RoleSet) mode {
	single := roles.Has(fleet.Single)
	both := roles.Has(fleet.Prefill) && roles.Has(fleet.Decode)
	switch {
	case m == modeSingle && !single && both:
		return modeDispatch
	case m == modeDispatch && !both && single:
		return modeSingle
	}
	return m
}

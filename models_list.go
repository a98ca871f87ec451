package calinix

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/outcome"
)

// Bounds of asking pods for their models: for how long a client waits, and how long
// a list may be.
const (
	listPatience = 2 * time.Second
	maxModelList = 4 << 20
)

// modelsPath is the end of the path of the list of models; behind a further slash
// stands the name of one.
const modelsPath = "/v1/models"

// listsModels says whether the request asks for the list of models, or for one of
// it, which Calinix then answers: where models are told apart no single pod knows
// all of them. Elsewhere one pod's answer is the list.
func (x *exchange) listsModels() bool {
	if x.r.Method != http.MethodGet {
		return false
	}
	base, _, ok := strings.Cut(x.r.URL.EscapedPath()+"/", modelsPath+"/")
	return ok && !strings.Contains(base, "/v1/") &&
		(len(x.h.models) > 0 || *x.h.effective.LearnModels.Enabled || x.h.state.fleet.NamesModels())
}

// listModels answers with the models of all pods that are up, each once, and the
// aliases.
func (x *exchange) listModels() {
	x.route.policy = "" // no pod is picked
	path := x.r.URL.EscapedPath()
	at := strings.Index(path+"/", modelsPath+"/") + len(modelsPath)
	wanted, err := url.PathUnescape(strings.Trim(path[at:], "/"))
	if err != nil {
		x.refuse(x.leg(), outcome.Rejected, unknownModel(path[at:]))
		return
	}
	items, refused := x.collectModels(path[:at])
	switch {
	case x.gone():
		x.refuse(x.leg(), outcome.ClientGone, errClientGone)
	case len(items) == 0 && refused == nil:
		x.refuse(x.leg(), outcome.NoPod, &apiError{
			status: http.StatusServiceUnavailable, code: "no_pod_available", retryAfter: retryAfter,
			message: "no pod has said which models it serves",
		})
	case len(items) == 0 && refused != nil:
		x.show()
		refused.replay(x.w, x.h.answerRules(), x.replacer())
		x.finish(outcome.OfStatus(x.kind(), refused.status), nil)
	case wanted != "":
		i := slices.IndexFunc(items, func(m modelItem) bool { return m.id == wanted })
		if i < 0 {
			x.refuse(x.leg(), outcome.Rejected, unknownModel(wanted))
			return
		}
		x.answer(items[i].raw)
	default:
		list := struct {
			Object string            `json:"object"`
			Data   []json.RawMessage `json:"data"`
		}{Object: "list", Data: []json.RawMessage{}}
		for _, m := range items {
			list.Data = append(list.Data, m.raw)
		}
		body, err := json.Marshal(list)
		if err != nil {
			x.refuse(x.leg(), outcome.Rejected, &apiError{status: http.StatusBadGateway, code: "bad_model_list", message: err.Error()})
			return
		}
		x.answer(body)
	}
}

// kind is the leg as which a request that goes to no one pod is counted.
func (x *exchange) kind() outcome.Leg {
	if x.route.mode == modeDispatch {
		return outcome.Decode
	}
	return outcome.Single
}

// answer sends JSON of Calinix's own.
func (x *exchange) answer(body []byte) {
	h := x.w.Header()
	x.show()
	x.placeholders()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = x.w.Write(body)
	x.h.count(x.route.mode, x.kind(), "", "200")
	x.finish(outcome.Answered, nil)
}

// modelItem is an entry of a list of models.
type modelItem struct {
	id  string
	raw json.RawMessage
}

// collectModels asks the pods for their models, with the client's own headers,
// and adds what the configuration knows. Of a model that several pods have, the
// entry of the first pod counts. If no pod had a list, refused is what one of them
// answered instead, if any did.
func (x *exchange) collectModels(path string) (items []modelItem, refused *capture) {
	seen := map[string]bool{}
	add := func(m modelItem) {
		if !seen[m.id] {
			seen[m.id] = true
			items = append(items, m)
		}
	}
	pods := slices.DeleteFunc(x.h.state.fleet.Snapshot(), func(s fleet.Status) bool { return !s.Up || s.Draining })
	answers := x.askPods(pods, path)
	var named []string // that no pod's list has
	for i, got := range answers {
		list, ok := readModels(got)
		if !ok && got != nil && got.status != 0 && got.status != http.StatusOK && refused == nil {
			refused = got
		}
		s := &pods[i]
		for _, m := range list {
			if !s.Declared || slices.Contains(s.Models, m.id) {
				add(m)
			}
		}
		named = append(named, s.Models...)
	}
	if refused != nil && len(items) == 0 {
		return nil, refused
	}
	for _, name := range named {
		add(ownItem(name, ""))
	}
	for _, alias := range slices.Sorted(maps.Keys(x.h.models)) {
		if route := x.h.models[alias]; seen[route.name] {
			add(ownItem(alias, route.name))
		}
	}
	return items, nil
}

// ownItem is the entry of a model that is known by the configuration alone; root
// is the model behind an alias.
func ownItem(id, root string) modelItem {
	raw, err := json.Marshal(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
		Root    string `json:"root,omitempty"`
	}{id, "model", 0, "calinix", root})
	if err != nil {
		raw = []byte("null") // strings always encode
	}
	return modelItem{id, raw}
}

// readModels reads the list that a pod has answered with.
func readModels(got *capture) ([]modelItem, bool) {
	if got == nil || got.status != http.StatusOK || got.full {
		return nil, false
	}
	body, err := got.plain()
	if err != nil {
		return nil, false
	}
	return parseModels(body)
}

// parseModels reads a list of models; entries without an id are left out.
func parseModels(body []byte) (items []modelItem, ok bool) {
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil || list.Data == nil {
		return nil, false
	}
	for _, raw := range list.Data {
		var entry struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(raw, &entry) == nil && entry.ID != "" {
			items = append(items, modelItem{entry.ID, raw})
		}
	}
	return items, true
}

// askPods sends the request to each of the pods, under the path of the whole list,
// and returns what they have answered: nil where there was no answer in time.
func (x *exchange) askPods(pods []fleet.Status, path string) []*capture {
	ctx, cancel := context.WithTimeout(x.r.Context(), listPatience)
	defer cancel()
	answers := make([]*capture, len(pods))
	panics := make([]any, len(pods))
	eachPod(pods, func(i int) { answers[i], panics[i] = x.askPod(ctx, &pods[i], path) })
	for _, p := range panics {
		if p != nil && p != http.ErrAbortHandler {
			panic(p) // not a pod's doing
		}
	}
	return answers
}

// askPod sends the request to one pod. It runs beside others, and so has a
// replacer, variables and headers of its own.
func (x *exchange) askPod(ctx context.Context, pod *fleet.Status, path string) (got *capture, panicked any) {
	target, ok := pod.Data.(*target)
	if !ok || ctx.Err() != nil {
		return nil, nil
	}
	got = newCapture(maxModelList)
	server, _ := x.r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	r := caddyhttp.PrepareRequest(x.r.Clone(ctx), caddy.NewReplacer(), got, server)
	if u, err := url.ParseRequestURI(path); err == nil {
		u.RawQuery = x.r.URL.RawQuery
		r.URL, r.RequestURI = u, u.RequestURI()
	}
	x.route.set(r.Header)
	r.Header.Set("Accept-Encoding", "identity")
	l := x.newLeg(x.kind(), target, new(fleet.Lease))
	out, panicked := l.run(x.h.legs, got, r, x.next)
	x.h.count(x.route.mode, l.kind, pod.ID, out.MetricCode(l.kind, l.status))
	if out != outcome.Answered && l.status == 0 {
		return nil, panicked
	}
	return got, panicked
}

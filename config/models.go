package config

import (
	"maps"
	"slices"
)

// Model says how the requests for one model are served.
type Model struct {
	// Further names under which clients may ask for the model. The pods get its
	// own name in their place.
	Aliases []string `json:"aliases,omitempty" yaml:"aliases"`

	// Whether an answer to an alias names the alias again in its member model.
	// Default: false.
	RestoreAlias *bool `json:"restore_alias,omitempty" yaml:"restoreAlias"`

	// How a pod is chosen. Default: the strategy of the balancer.
	Strategy string `json:"strategy,omitempty" yaml:"strategy"`

	// The weights of cacheAware's four factors, per role. Default: those of the
	// balancer.
	Weights *RoleWeights `json:"weights,omitempty" yaml:"weights"`

	// The most requests for the model, under all its names, that may run at once
	// at all pods together; further ones are answered with 503 and Retry-After.
	// Default: no limit.
	MaxConns *int `json:"max_conns,omitempty" yaml:"maxConns"`
}

// LearnModels says whether and how pods are asked which models they serve.
type LearnModels struct {
	// Whether pods that name no models in the configuration are asked. Default:
	// false.
	Enabled *bool `json:"enabled,omitempty" yaml:"enabled"`

	// The path that is asked with GET. Default: "/v1/models".
	Path string `json:"path,omitempty" yaml:"path"`

	// The time between two questions. Default: 10s.
	Interval *Duration `json:"interval,omitempty" yaml:"intervalMs"`
}

func (m *LearnModels) defaults() *LearnModels {
	e := orEmpty(m)
	fill(&e.Enabled, false)
	fillString(&e.Path, DefaultModelsPath)
	fill(&e.Interval, DefaultModelsPeriod)
	return e
}

// defaultModels returns the models with what they take over from the balancer;
// Strategy stays empty where none is given, as the balancer's then counts.
func defaultModels(models map[string]*Model, w *RoleWeights) map[string]*Model {
	if len(models) == 0 {
		return nil
	}
	all := make(map[string]*Model, len(models))
	for name, m := range models {
		e := orEmpty(m)
		e.Strategy = canonical(strategies, e.Strategy)
		fill(&e.RestoreAlias, false)
		e.Weights = e.Weights.over(w)
		all[name] = e
	}
	return all
}

// over returns the weights with the missing ones from w, which has all.
func (r *RoleWeights) over(w *RoleWeights) *RoleWeights {
	e := orEmpty(r)
	for _, role := range []struct{ said, rest **Weights }{{&e.Single, &w.Single}, {&e.Prefill, &w.Prefill}, {&e.Decode, &w.Decode}} {
		rest := *role.rest
		*role.said = (*role.said).defaults(factors{*rest.Cache, *rest.Load, *rest.Sticky, *rest.Locality})
	}
	return e
}

// models checks the section models, and the models of the pods against it.
func (c *checker) models(b *Balancer) {
	if m := b.LearnModels; m != nil {
		c.path("learn_models.path", m.Path)
		c.positive("learn_models.interval", m.Interval)
	}
	c.choice("unknown_model", b.UnknownModel, "value", unknownModels)
	served := map[string]string{} // by name: the path of a pod's
	for _, m := range b.Members() {
		c.pod = m.ID
		c.choice(m.Path+".strategy", m.Strategy, "strategy", strategies)
		seen := map[string]bool{}
		for i, name := range m.Models {
			path := index(m.Path+".models", i)
			c.modelName(path, name)
			if seen[name] {
				c.add(path, name, "the pod names this model twice")
			}
			seen[name] = true
			if _, ok := served[name]; !ok {
				served[name] = path
			}
		}
	}
	c.pod = ""
	taken := map[string]string{} // by name of a model or alias: its path
	names := slices.Sorted(maps.Keys(b.Models))
	for _, name := range names {
		taken[name] = modelPath(name)
	}
	for _, name := range names {
		path := modelPath(name)
		c.modelName(path, name)
		m := orEmpty(b.Models[name])
		c.choice(path+".strategy", m.Strategy, "strategy", strategies)
		if m.Weights != nil {
			effective := m.Weights.over(orEmpty(b.Weights).defaults())
			c.roleWeights(path+".weights.single", m.Weights.Single, effective.Single)
			c.roleWeights(path+".weights.prefill", m.Weights.Prefill, effective.Prefill)
			c.roleWeights(path+".weights.decode", m.Weights.Decode, effective.Decode)
		}
		between(c, path+".max_conns", m.MaxConns, 1, maxCount)
		for i, alias := range m.Aliases {
			at := index(path+".aliases", i)
			c.modelName(at, alias)
			other, why := taken[alias], "this name is already that of"
			if pod, ok := served[alias]; ok && other == "" {
				other, why = pod, "this is the name of a model that a pod serves:"
			}
			if other != "" {
				c.add(at, alias, "%s", why)
				c.problems[len(c.problems)-1].Other = other
				continue
			}
			taken[alias] = at
		}
	}
}

// modelPath is the JSON path of a model.
func modelPath(name string) string { return "models." + name }

// modelName checks the name of a model.
func (c *checker) modelName(path, name string) {
	if name == "" {
		c.add(path, nil, "an empty name of a model")
	}
	c.text(path, name)
}

// unserved warns of models that no pod serves, where all pods say what they serve.
func (c *checker) unserved(b *Balancer) {
	served := map[string]bool{}
	for _, m := range b.Members() {
		if len(m.Models) == 0 {
			return // it takes any, or will be asked
		}
		for _, name := range m.Models {
			served[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Models)) {
		if !served[name] {
			c.add(modelPath(name), nil, "no pod names this model: requests for it are answered with 404")
		}
	}
}

// normalizeModels does the same for the strategies of models and pods.
func (b *Balancer) normalizeModels() {
	for _, m := range b.Models {
		if m != nil {
			m.Strategy = canonical(strategies, m.Strategy)
		}
	}
	lists := []*Pods{}
	if b.Single != nil {
		lists = append(lists, &Pods{Pods: b.Single.Pods})
	}
	if d := b.Dispatch; d != nil {
		lists = append(lists, d.Prefill, d.Decode)
	}
	for _, l := range lists {
		if l == nil {
			continue
		}
		for i := range l.Pods {
			l.Pods[i].Strategy = canonical(strategies, l.Pods[i].Strategy)
		}
	}
}

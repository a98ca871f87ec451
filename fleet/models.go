package fleet

import (
	"slices"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// models says which pods serve which models. A table is never changed, only
// replaced: a request asks for its model before it takes the fleet's lock.
type models struct {
	byName map[string]*modelPods
	any    index.Bitmap // live pods that name no models: they take any
	other  Service      // of every name that is not in byName
}

// modelPods are the pods that name a model.
type modelPods struct {
	pods    index.Bitmap // live pods that name it
	service Service
}

// Service is what is known of a model.
type Service struct {
	// Roles are those in which some pod serves the model, up or not. No pod does
	// if there are none.
	Roles RoleSet
	// Named says whether any pod names its models: if not, models choose no pods.
	Named bool
	// Strategy is the one that the first of the model's pods asks for that asks
	// for one, if HasStrategy.
	Strategy    selection.Strategy
	HasStrategy bool
}

// Serves returns what is known of a model, by the name that engines have for it.
// Where no pod names its models every pod serves every model. It takes no lock.
func (f *Fleet) Serves(name []byte) Service {
	m := f.models.Load()
	if one := m.byName[string(name)]; one != nil {
		return one.service
	}
	return m.other
}

// NamesModels says whether any pod names its models. It takes no lock.
func (f *Fleet) NamesModels() bool { return f.models.Load().other.Named }

// SetModels notes which models the pod has said it serves. They count if the
// configuration names none for it. It does nothing if the pod is gone.
func (f *Fleet) SetModels(ref Ref, names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.slots[ref.Slot]
	if s.life != live || s.gen != ref.Gen || slices.Equal(s.learned, names) {
		return
	}
	s.learned = slices.Clone(names)
	f.nameModels()
	f.stir()
}

// served returns the names of the models that the pod serves, none for any.
func (s *slot) served() []string {
	if len(s.pod.Models) > 0 {
		return s.pod.Models
	}
	return s.learned
}

// nameModels finds out anew which pods serve which models. Guarded by mu.
func (f *Fleet) nameModels() {
	m := &models{byName: map[string]*modelPods{}}
	for _, slot := range f.ranked() {
		s := &f.slots[slot]
		names := s.served()
		if len(names) == 0 {
			m.any.Set(int(slot))
		}
		for _, name := range names {
			one := m.byName[name]
			if one == nil {
				one = &modelPods{}
				m.byName[name] = one
			}
			one.pods.Set(int(slot))
			if !one.service.HasStrategy {
				one.service.Strategy, one.service.HasStrategy = s.pod.strategyFor(name)
			}
		}
	}
	m.other = Service{Roles: f.rolesOf(m.any), Named: len(m.byName) > 0}
	for _, one := range m.byName {
		one.service.Roles, one.service.Named = f.rolesOf(m.any.Or(one.pods)), true
	}
	f.models.Store(m)
}

// rolesOf returns the roles that the pods have. Guarded by mu.
func (f *Fleet) rolesOf(pods index.Bitmap) (set RoleSet) {
	for r := range f.role {
		if !f.role[r].And(pods).Empty() {
			set = set.With(Role(r))
		}
	}
	return set
}

// others returns the pods that do not serve the model; none without a name, or if
// no pod names its models.
func (m *models) others(name []byte) index.Bitmap {
	if len(name) == 0 || len(m.byName) == 0 {
		return index.Bitmap{}
	}
	serving := m.any
	if one := m.byName[string(name)]; one != nil {
		serving = serving.Or(one.pods)
	}
	return index.All(index.Pods).AndNot(serving)
}

package calinix

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
)

// policyState is what policies of one configuration have learnt.
type policyState struct {
	fleet  *fleet.Fleet
	blocks *index.Index
	stop   context.CancelFunc

	mu   sync.Mutex
	pods map[string]fleet.Ref // by dial address
}

func newPolicyState(o index.Options, s fleet.Sessions, capacity fleet.Capacity) *policyState {
	blocks := index.New(o)
	ctx, stop := context.WithCancel(context.Background())
	st := &policyState{
		blocks: blocks,
		fleet:  fleet.New(fleet.Options{Index: blocks, Sessions: s, Capacity: capacity}),
		stop:   stop,
		pods:   map[string]fleet.Ref{},
	}
	st.fleet.SetRings(config.DefaultVirtualNodes)
	go st.age(ctx)
	return st
}

func (s *policyState) age(ctx context.Context) {
	tick := time.NewTicker(ageing)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.blocks.Expire(now)
			s.fleet.Expire(now)
		}
	}
}

// Destruct implements [caddy.Destructor].
func (s *policyState) Destruct() error {
	s.stop()
	return nil
}

var errTooManyUpstreams = errors.New("a pool of more than 256 upstreams cannot be told apart, use fewer or another policy")

// refs returns the pods of the upstreams, in their order. Upstreams that are
// new become pods; others stay until there is no more room, for another proxy
// may have them.
func (s *policyState) refs(now time.Time, pool reverseproxy.UpstreamPool) ([]fleet.Ref, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(pool) > index.Pods {
		return nil, errTooManyUpstreams
	}
	for _, u := range pool {
		if _, ok := s.pods[u.Dial]; !ok {
			if err := s.learn(now, pool); err != nil {
				return nil, err
			}
			break
		}
	}
	refs := make([]fleet.Ref, len(pool))
	for i, u := range pool {
		refs[i] = s.pods[u.Dial]
	}
	return refs, nil
}

// learn makes every upstream of the pool a pod. Guarded by mu.
func (s *policyState) learn(now time.Time, pool reverseproxy.UpstreamPool) error {
	// The pool's order is the order of the configuration, in which turns are
	// taken; the pods of other proxies come after it.
	var pods []fleet.Pod
	known := map[string]bool{}
	add := func(dial string) {
		if !known[dial] && len(pods) < index.Pods {
			known[dial] = true
			pods = append(pods, fleet.Pod{ID: dial, URL: dial, Roles: fleet.RoleSet(0).With(fleet.Single)})
		}
	}
	for _, u := range pool {
		add(u.Dial)
	}
	for _, dial := range slices.Sorted(maps.Keys(s.pods)) {
		add(dial)
	}
	if _, err := s.fleet.Apply(now, pods); err != nil {
		return fmt.Errorf("pods of the policy: %w", err)
	}
	clear(s.pods)
	for _, st := range s.fleet.Snapshot() {
		s.pods[st.ID] = st.Ref
	}
	return nil
}

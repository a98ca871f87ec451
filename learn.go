package calinix

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/fleet"
)

// learner asks pods which models they serve. It uses the transport and the headers
// of probes.
type learner struct {
	prober   *prober
	path     string
	interval time.Duration
}

// learnTimeout bounds one question: engines answer it from memory.
const learnTimeout = 2 * time.Second

// learn asks the pods for their models as the newest configuration says, at its
// start, when pods have changed, and once in an interval.
func (b *balancer) learn(ctx context.Context) {
	for {
		l := b.current().learner
		interval := time.Duration(math.MaxInt64) // until something changes
		if l != nil {
			b.askModels(ctx, l)
			interval = l.interval
		}
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-b.changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// askAgain makes learn ask without waiting for the interval to end.
func (b *balancer) askAgain() {
	select {
	case b.changed <- struct{}{}:
	default: // it will anyway
	}
}

// askModels asks every pod that is up and for which the configuration names no
// models. One that does not answer keeps those that it last had.
func (b *balancer) askModels(ctx context.Context, l *learner) {
	pods := slices.DeleteFunc(b.fleet.Snapshot(), func(s fleet.Status) bool { return s.Declared || !s.Up })
	eachPod(pods, func(i int) {
		names, err := l.ask(ctx, pods[i].URL)
		if err != nil {
			b.unlearnt(pods[i].ID, err)
			return
		}
		b.fleet.SetModels(pods[i].Ref, names)
	})
}

// unlearnt says that a pod did not tell its models.
func (b *balancer) unlearnt(pod string, err error) {
	if c := b.logger().Check(zap.DebugLevel, "pod did not tell its models"); c != nil {
		c.Write(zap.String("pod", pod), zap.Error(err))
	}
}

// ask asks one pod.
func (l *learner) ask(ctx context.Context, url string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	header, err := l.prober.header()
	if err != nil {
		return nil, err
	}
	body, err := l.prober.transport.get(ctx, strings.TrimSuffix(url, "/")+l.path, header, maxModelList)
	if err != nil {
		return nil, err
	}
	items, ok := parseModels(body)
	if !ok {
		return nil, fmt.Errorf("%s answers with something else than a list of models", l.path)
	}
	names := make([]string, len(items))
	for i, m := range items {
		names[i] = m.id
	}
	return names, nil
}

package kubernetes

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/calinix/caddy-calinix/discovery"
)

// watcher keeps copies of the Services, their slices of endpoints and, where labels
// of pods are asked for, the pods, and tells the sink what follows from them
// whenever one changes.
type watcher struct {
	source *Source
	sink   discovery.Sink

	services, slices, pods cache.SharedIndexInformer // pods is nil if labels do not matter
	factories              []informers.SharedInformerFactory

	changed chan struct{} // has room for one: that there is something new
	noted   map[note]bool // what find has met last
	moving  moving

	mu     sync.Mutex
	faults map[request]error // what has failed and has not been answered since
}

// resync is how often everything is looked at although nothing has changed.
const resync = 10 * time.Minute

func newWatcher(s *Source, sink discovery.Sink) *watcher {
	w := &watcher{source: s, sink: sink, changed: make(chan struct{}, 1), faults: map[request]error{}}
	services := w.factory(func(o *metav1.ListOptions) {
		if s.Service != "" {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.Service).String()
		}
		o.LabelSelector = s.services.String()
	})
	endpoints := w.factory(func(o *metav1.ListOptions) {
		if s.Service != "" {
			o.LabelSelector = labels.Set{discoveryv1.LabelServiceName: s.Service}.String()
		} else {
			o.LabelSelector = discoveryv1.LabelServiceName
		}
	})
	w.services = w.prepare(services.Core().V1().Services().Informer())
	w.slices = w.prepare(endpoints.Discovery().V1().EndpointSlices().Informer())
	if s.pods != nil {
		pods := w.factory(func(o *metav1.ListOptions) { o.LabelSelector = s.pods.String() })
		w.pods = w.prepare(pods.Core().V1().Pods().Informer())
	}
	return w
}

// factory makes informers of what a selection of the namespace's objects is.
func (w *watcher) factory(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
	f := informers.NewSharedInformerFactoryWithOptions(w.source.client, resync,
		informers.WithNamespace(w.source.Namespace), informers.WithTweakListOptions(tweak))
	w.factories = append(w.factories, f)
	return f
}

// signal makes run look at what there is.
func (w *watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // one is waiting, which will see this change too
	}
}

// answered takes what the tap tells. A watch begins where everything is known, so
// one that is answered makes up for a list; without one changes are not seen,
// however often a list is answered.
func (w *watcher) answered(to request, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.faults[to] = err
		w.signal()
		return
	}
	before := len(w.faults)
	delete(w.faults, to)
	if to.verb == verbWatch {
		delete(w.faults, request{verbList, to.path})
	}
	if len(w.faults) < before {
		w.signal() // the sink is to know what is well again
	}
}

// fault returns how one of the informers fails, nil if none does.
func (w *watcher) fault() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) == 0 {
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(w.faults)), func(a, b request) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.verb, b.verb))
	})
	return w.faults[first] // the same as long as it fails
}

// prepare makes an informer signal its changes.
func (w *watcher) prepare(i cache.SharedIndexInformer) cache.SharedIndexInformer {
	// These fail only for informers that run already.
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.signal() },
		UpdateFunc: func(_, _ any) { w.signal() },
		DeleteFunc: func(any) { w.signal() },
	})
	// The tap tells of failures; the handler that is used without one logs them at
	// every try.
	_ = i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	_ = i.SetTransform(trim)
	return i
}

// trim drops what nobody reads of an object and can be large.
func trim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	if p, ok := obj.(*corev1.Pod); ok {
		p.Spec, p.Status = corev1.PodSpec{}, corev1.PodStatus{}
	}
	return obj, nil
}

func (w *watcher) run(ctx context.Context) {
	told := w.answered
	w.source.told.Store(&told)
	ctx = klog.NewContext(ctx, w.source.clientLog)
	for _, f := range w.factories {
		f.StartWithContext(ctx)
	}
	defer func() {
		for _, f := range w.factories {
			f.Shutdown()
		}
	}()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		// Where nothing is found nothing changes either.
		if cache.WaitForCacheSync(ctx.Done(), w.synced) {
			w.signal()
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
			// What one watch sees counts, whatever becomes of the others.
			if w.synced() {
				w.report()
			}
			w.sink.Failing(w.fault())
		}
	}
}

// report tells the sink the pods that there are, and has itself called again where
// that may change by itself.
func (w *watcher) report() {
	pods, names := w.find()
	pods, soon := w.moving.keep(pods, names, w.source)
	if soon {
		time.AfterFunc(grace, w.signal)
	}
	w.sink.Found(pods)
}

// synced tells whether all copies have been complete once.
func (w *watcher) synced() bool {
	return w.services.HasSynced() && w.slices.HasSynced() && (w.pods == nil || w.pods.HasSynced())
}

// list returns the objects of an informer's copy.
func list[T any](i cache.SharedIndexInformer) []T {
	objects := i.GetStore().List()
	out := make([]T, 0, len(objects))
	for _, o := range objects {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

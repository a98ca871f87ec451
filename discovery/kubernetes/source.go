package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/calinix/caddy-calinix/discovery"
)

func init() {
	caddy.RegisterModule(new(Source))
}

// Source finds the pods behind Services.
//
// A ready endpoint is a pod. One that is terminating but still serves drains: it
// finishes its streams and gets nothing new. All others are none. The id of a pod
// is the name of the Kubernetes pod (or the address, of endpoints without one),
// with the port behind it if several ports are asked for.
type Source struct {
	// The namespace of the Services. Default: that of the credentials.
	Namespace string `json:"namespace,omitempty"`

	// The name of a Service. Either this or service_selector is needed.
	Service string `json:"service,omitempty"`

	// Which Services, by their labels, such as flexinfer.ai/model=llama.
	ServiceSelector string `json:"service_selector,omitempty"`

	// Which of the pods behind them, by their labels, such as
	// llm-d.ai/role=prefill. Needs the right to watch pods. Default: all.
	PodSelector string `json:"pod_selector,omitempty"`

	// The pods' ports on which the engines listen, by the Service's names for them
	// or their numbers: each is a pod of its own (ranks on one host). Default: the
	// only one that there is.
	Ports []string `json:"ports,omitempty"`

	// http or https. Default: https for ports whose appProtocol is https, else
	// http.
	Scheme string `json:"scheme,omitempty"`

	// The label of a Service that names the model which its pods serve; of a pod,
	// where its Service has none and pod_selector is given. Default:
	// flexinfer.ai/model.
	ModelLabel string `json:"model_label,omitempty"`

	// The annotation of a Service that chooses the strategy of its model:
	// session-affinity, prefix or least-loaded. Default: flexinfer.ai/routing.
	RoutingAnnotation string `json:"routing_annotation,omitempty"`

	// A kubeconfig file, and which of its contexts. Default: $KUBECONFIG or
	// ~/.kube/config, and where neither is there the credentials that a pod has.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty"`

	services, pods labels.Selector // pods is nil for all
	account        string          // where a pod's credentials are, in tests
	client         kubernetes.Interface
	told           atomic.Pointer[func(to request, err error)] // see tap
	logger         *zap.Logger
	clientLog      logr.Logger // for what client-go has to say
}

// Defaults of the names of labels and annotations.
const (
	DefaultModelLabel        = "flexinfer.ai/model"
	DefaultRoutingAnnotation = "flexinfer.ai/routing"
)

// CaddyModule returns the Caddy module information.
func (*Source) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: discovery.Namespace + ".kubernetes", New: func() caddy.Module { return new(Source) }}
}

// Provision checks the settings and reads the credentials. It does not ask the API
// server for anything: that may be away.
func (s *Source) Provision(ctx caddy.Context) error {
	s.logger = ctx.Logger()
	s.clientLog = logr.FromSlogHandler(ctx.Slogger().Handler())
	if err := s.settle(); err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	config, namespace, err := s.credentials(cmp.Or(s.account, podAccount))
	if err != nil {
		return fmt.Errorf("kubernetes: reading the credentials: %w", err)
	}
	if s.Namespace == "" {
		s.Namespace = namespace
	}
	config.UserAgent = "calinix"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return tap{next: next, told: &s.told} })
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	return nil
}

// settle checks the settings and fills in those that were not given.
func (s *Source) settle() (err error) {
	if (s.Service == "") == (s.ServiceSelector == "") {
		return errors.New("want either a service, by name, or a service_selector, by labels")
	}
	if s.services, err = labels.Parse(s.ServiceSelector); err != nil {
		return fmt.Errorf("service_selector %q: %w", s.ServiceSelector, err)
	}
	if s.PodSelector != "" {
		if s.pods, err = labels.Parse(s.PodSelector); err != nil {
			return fmt.Errorf("pod_selector %q: %w", s.PodSelector, err)
		}
	}
	switch s.Scheme {
	case "", "http", "https":
	default:
		return fmt.Errorf("scheme %q: want http or https", s.Scheme)
	}
	if s.ModelLabel == "" {
		s.ModelLabel = DefaultModelLabel
	}
	if s.RoutingAnnotation == "" {
		s.RoutingAnnotation = DefaultRoutingAnnotation
	}
	return nil
}

// Watch implements [discovery.Source].
func (s *Source) Watch(ctx context.Context, sink discovery.Sink) {
	newWatcher(s, sink).run(ctx)
}

// Interface guards.
var (
	_ discovery.Source  = (*Source)(nil)
	_ caddy.Provisioner = (*Source)(nil)
)

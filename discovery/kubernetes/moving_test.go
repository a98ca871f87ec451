package kubernetes

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A pod that goes from one slice to another is there all the time; one that no slice
// lists any more is gone soon, and one that is not ready at once.
func TestMove(t *testing.T) {
	const a, b, c = "a=http://10.0.0.1:8000", "b=http://10.0.0.2:8000", "c=http://10.0.0.3:8000"
	for name, ports := range map[string][]string{"one port": nil, "several ports": {"http", "metrics"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMover(t, ports)
				m.slice(t, "llama-1", at("a", "10.0.0.1"), at("b", "10.0.0.2"))
				m.slice(t, "llama-2", at("c", "10.0.0.3"))
				m.has(t, a, b, c)

				m.slice(t, "llama-1", at("a", "10.0.0.1"))
				m.has(t, a, b, c)
				time.Sleep(grace / 2)
				m.has(t, a, b, c)
				m.slice(t, "llama-2", at("b", "10.0.0.2"), at("c", "10.0.0.3"))
				m.has(t, a, b, c)
				time.Sleep(2 * grace)
				m.has(t, a, b, c)

				m.slice(t, "llama-2", at("c", "10.0.0.3"))
				m.has(t, a, b, c)
				time.Sleep(grace / 2)
				m.slice(t, "llama-1") // does not make b wait longer
				m.has(t, a, b, c)
				time.Sleep(grace / 2)
				m.has(t, a, c)
				time.Sleep(grace / 2)
				m.has(t, c)

				m.slice(t, "llama-1", at("a", "10.0.0.1"))
				m.has(t, a, c)
				m.slice(t, "llama-1", with(at("a", "10.0.0.1"), false, false, false))
				m.has(t, c)
				m.slice(t, "llama-2", at("c", "10.0.0.1"))
				m.has(t, "c=http://10.0.0.1:8000")
			})
		})
	}
}

// mover is a watcher whose copies a test writes itself, by a clock that a test owns:
// with an API server it would be luck in which moments the watcher looks.
type mover struct {
	*watcher
	reports *reports
}

func newMover(t *testing.T, ports []string) *mover {
	s := &Source{Service: "llama", Ports: ports, logger: zap.NewNop()}
	require.NoError(t, s.settle())
	var err error
	s.client, err = kubernetes.NewForConfig(&rest.Config{Host: "nowhere"})
	require.NoError(t, err)
	m := &mover{reports: newReports()}
	m.watcher = newWatcher(s, m.reports)
	require.NoError(t, m.services.GetStore().Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "llama"}}))
	return m
}

// slice writes a slice, and the watcher looks at it.
func (m *mover) slice(t *testing.T, name string, endpoints ...endpoint) {
	t.Helper()
	require.NoError(t, m.slices.GetStore().Add(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "llama"}},
		Ports:      http8000, Endpoints: endpoints,
	}))
	m.report()
}

// has lets the watcher look if it wants to, and checks what it has reported.
func (m *mover) has(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	select {
	case <-m.changed:
		m.report()
	default:
	}
	for i := range want {
		if len(m.source.Ports) > 1 {
			want[i] = strings.Replace(want[i], "=", ":8000=", 1)
		}
	}
	assert.Equal(t, want, m.reports.now())
}

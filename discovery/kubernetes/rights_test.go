package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod's own credentials lead to the API server, and with the Role of rbac.yaml to
// the pods of its namespace.
func TestInPod(t *testing.T) {
	c := inCluster(t)
	c.service(t, "llama", nil, nil)
	c.pod(t, "a", map[string]string{"x": "y"})
	c.pod(t, "b", map[string]string{"x": "z"})
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"), at("b", "10.0.0.2"))
	apply(t, c, "rbac.yaml", metav1.ApplyOptions{FieldManager: "test"})
	r := c.inPod(t, &Source{Service: "llama", PodSelector: "x=y"})
	r.waitPods(t, "a=http://10.0.0.1:8000")
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.3"), at("b", "10.0.0.2"))
	assert.Less(t, r.waitPods(t, "a=http://10.0.0.3:8000"), soon)
	c.pod(t, "b", map[string]string{"x": "y"})
	assert.Less(t, r.waitPods(t, "a=http://10.0.0.3:8000", "b=http://10.0.0.2:8000"), soon)
	c.service(t, "llama", map[string]string{DefaultModelLabel: "llama"}, nil)
	assert.Less(t, r.waitPods(t, "a=http://10.0.0.3:8000,model=llama", "b=http://10.0.0.2:8000,model=llama"), soon)
}

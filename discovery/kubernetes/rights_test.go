package kubernetes

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// Who does not choose by labels of pods needs no right to see them.
func TestInPodWithoutPods(t *testing.T) {
	c := inCluster(t)
	c.service(t, "llama", nil, nil)
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
	apply(t, c, "rbac.yaml", metav1.ApplyOptions{FieldManager: "test"}, without(t, "pods", "list", "watch"))
	r := c.inPod(t, &Source{ServiceSelector: "!other"})
	r.waitPods(t, "a=http://10.0.0.1:8000")
	c.slice(t, "llama", "llama-1", http8000, at("b", "10.0.0.2"))
	assert.Less(t, r.waitPods(t, "b=http://10.0.0.2:8000"), soon)
}

// Every right of the Role is needed: without it the source fails all the time, says
// which one is missing, and finds its pods when it has it.
func TestEveryRightIsNeeded(t *testing.T) {
	for resource, path := range map[string]string{
		"services":       "/api/v1/namespaces/%s/services",
		"endpointslices": "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices",
		"pods":           "/api/v1/namespaces/%s/pods",
	} {
		for _, verb := range []string{"list", "watch"} {
			t.Run(verb+" "+resource, func(t *testing.T) {
				t.Parallel() // the pauses of informers grow
				c := inCluster(t)
				c.service(t, "llama", nil, nil)
				c.pod(t, "a", map[string]string{"x": "y"})
				c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
				apply(t, c, "rbac.yaml", metav1.ApplyOptions{FieldManager: "test"}, without(t, resource, verb))
				var environment []string
				if verb == "list" {
					// Newer servers send lists by way of a watch, and need no list.
					environment = append(environment, "KUBE_FEATURE_WatchListClient=false")
				}
				r := c.inPod(t, &Source{Service: "llama", PodSelector: "x=y"}, environment...)
				want := "the API server answered 403 Forbidden to " + verb + " " + fmt.Sprintf(path, c.namespace)
				refused := 0
				r.wait(t, want+", three times", func(_, _ string) bool {
					refused = 0
					for _, fault := range r.allFaults() {
						switch {
						case fault == want:
							refused++
						case refused > 0:
							require.NotEmpty(t, fault, "all is well, it says, without the right")
						}
					}
					return refused >= 3
				})
				apply(t, c, "rbac.yaml", metav1.ApplyOptions{FieldManager: "test"})
				r.waitPods(t, "a=http://10.0.0.1:8000")
				c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.2"))
				r.waitPods(t, "a=http://10.0.0.2:8000")
			})
		}
	}
}

// without takes rights away from a Role.
func without(t *testing.T, resource string, verbs ...any) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		if object.GetKind() != "Role" {
			return
		}
		rules, _, err := unstructured.NestedSlice(object.Object, "rules")
		require.NoError(t, err)
		taken := 0
		rules = slices.DeleteFunc(rules, func(r any) bool {
			rule := r.(map[string]any)
			if !slices.Contains(rule["resources"].([]any), any(resource)) {
				return false
			}
			left := slices.DeleteFunc(slices.Clone(rule["verbs"].([]any)), func(v any) bool { return slices.Contains(verbs, v) })
			taken += len(rule["verbs"].([]any)) - len(left)
			rule["verbs"] = left
			return len(left) == 0
		})
		require.Equal(t, len(verbs), taken, "the Role has no such rights")
		require.NoError(t, unstructured.SetNestedSlice(object.Object, rules, "rules"))
	}
}

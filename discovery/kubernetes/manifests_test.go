package kubernetes

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// The API server accepts every manifest as it stands, but for the namespace.
func TestManifests(t *testing.T) {
	c := inCluster(t)
	files, err := filepath.Glob("manifests/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			apply(t, c, filepath.Base(f), metav1.ApplyOptions{FieldManager: "test", DryRun: []string{metav1.DryRunAll}})
		})
	}
}

// apply applies the objects of a manifest to the test's namespace, at the server's
// side, after they were changed.
func apply(t *testing.T, c *cluster, file string, o metav1.ApplyOptions, change ...func(*unstructured.Unstructured)) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("manifests", file))
	require.NoError(t, err)
	groups, err := restmapper.GetAPIGroupResources(c.Admin.Discovery())
	require.NoError(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client, err := dynamic.NewForConfig(c.Config())
	require.NoError(t, err)
	text := strings.ReplaceAll(string(data), "namespace: llm", "namespace: "+c.namespace)
	in := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	n := 0
	for {
		var object unstructured.Unstructured
		err := in.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		for _, f := range change {
			f(&object)
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(t, err)
		_, err = client.Resource(mapping.Resource).Namespace(c.namespace).Apply(t.Context(), object.GetName(), &object, o)
		require.NoErrorf(t, err, "%s %s", kind.Kind, object.GetName())
		n++
	}
	require.Positive(t, n)
}

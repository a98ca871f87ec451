package kubernetes

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The file that is named goes before $KUBECONFIG, and a context brings its namespace.
func TestCredentials(t *testing.T) {
	write := func(host string) string {
		c := clientcmdapi.NewConfig()
		c.Clusters["c"] = &clientcmdapi.Cluster{Server: host}
		c.Contexts["one"] = &clientcmdapi.Context{Cluster: "c", Namespace: "llm"}
		c.Contexts["two"] = &clientcmdapi.Context{Cluster: "c", Namespace: "other"}
		c.CurrentContext = "one"
		file := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, clientcmd.WriteToFile(*c, file))
		return file
	}
	named := write("https://named:6443")
	t.Setenv("KUBECONFIG", write("https://environment:6443"))
	for _, tt := range []struct {
		source          *Source
		host, namespace string
	}{
		{&Source{}, "https://environment:6443", "llm"},
		{&Source{Kubeconfig: named}, "https://named:6443", "llm"},
		{&Source{Kubeconfig: named, Context: "two"}, "https://named:6443", "other"},
	} {
		config, namespace, err := tt.source.credentials()
		require.NoError(t, err)
		assert.Equal(t, tt.host, config.Host)
		assert.Equal(t, tt.namespace, namespace)
	}
	_, _, err := (&Source{Kubeconfig: named, Context: "three"}).credentials()
	assert.ErrorContains(t, err, `context "three" does not exist`)
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, _, err = (&Source{}).credentials()
	assert.Error(t, err, "neither a kubeconfig nor a pod's credentials")
}

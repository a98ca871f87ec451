package churn

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Caddy takes the Caddyfile of the manifest as it stands.
func TestManifestCaddyfile(t *testing.T) {
	credentials := clientcmdapi.NewConfig()
	credentials.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	credentials.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	credentials.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*credentials, file))
	t.Setenv("KUBECONFIG", file)

	manifest, err := os.Open("../manifests/calinix.yaml")
	require.NoError(t, err)
	defer manifest.Close()
	var m corev1.ConfigMap // the first object
	require.NoError(t, yaml.NewYAMLOrJSONDecoder(manifest, 4096).Decode(&m))
	text := m.Data["Caddyfile"]
	require.NotEmpty(t, text)
	adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	require.NoError(t, err)
	require.Empty(t, warnings)
	var config caddy.Config
	require.NoError(t, caddy.StrictUnmarshalJSON(adapted, &config))
	require.NoError(t, caddy.Validate(&config))
}

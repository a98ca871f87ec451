package kubernetes

import (
	"crypto"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
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
		config, namespace, err := tt.source.credentials(t.TempDir())
		require.NoError(t, err)
		assert.Equal(t, tt.host, config.Host)
		assert.Equal(t, tt.namespace, namespace)
	}
	_, _, err := (&Source{Kubeconfig: named, Context: "three"}).credentials(t.TempDir())
	assert.ErrorContains(t, err, `context "three" does not exist`)
}

// Where there is no kubeconfig a pod's own credentials count, and what is missing of
// them is named.
func TestPodCredentials(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	account := t.TempDir()
	lacks := func(what string) {
		t.Helper()
		_, _, err := new(Source).credentials(account)
		assert.ErrorContains(t, err, what)
	}
	write := func(name, data string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(account, name), []byte(data), 0o600))
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	lacks("this is no pod")
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	lacks(filepath.Join(account, "token"))
	write("token", "secret")
	lacks(filepath.Join(account, "ca.crt"))
	write("ca.crt", "no certificate")
	lacks(filepath.Join(account, "ca.crt"))
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	require.NoError(t, err)
	signer, err := keyutil.ParsePrivateKeyPEM(key)
	require.NoError(t, err)
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "ca"}, signer.(crypto.Signer))
	require.NoError(t, err)
	write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: ca.Raw})))
	lacks(filepath.Join(account, "namespace"))
	write("namespace", "llm\n")
	config, namespace, err := new(Source).credentials(account)
	require.NoError(t, err)
	assert.Equal(t, "llm", namespace)
	assert.Equal(t, &rest.Config{
		Host:            "https://[fd00::1]:443",
		BearerTokenFile: filepath.Join(account, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(account, "ca.crt")},
	}, config)

	// who asks for a kubeconfig does not get these
	_, _, err = (&Source{Kubeconfig: filepath.Join(account, "none")}).credentials(account)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, _, err = (&Source{Context: "prod"}).credentials(account)
	assert.ErrorContains(t, err, `context "prod" does not exist`)
}

// A pod has its credentials where the client library looks for them.
func TestPodAccount(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	token := ""
	config, err := rest.InClusterConfig()
	var missing *fs.PathError
	switch {
	case err == nil: // these tests run in a pod
		token = config.BearerTokenFile
	case errors.As(err, &missing):
		token = missing.Path
	}
	assert.Equal(t, filepath.Join(podAccount, "token"), token)
}

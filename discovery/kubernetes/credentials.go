package kubernetes

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

// podAccount is the directory in which every pod has the credentials of its service
// account.
const podAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// credentials returns how to reach the API server, and the namespace that belongs
// to it. account is where a pod has its own.
func (s *Source) credentials(account string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.Kubeconfig
	files, err := rules.Load()
	if err != nil {
		return nil, "", err
	}
	config := clientcmd.NewNonInteractiveClientConfig(*files, s.Context, &clientcmd.ConfigOverrides{CurrentContext: s.Context}, rules)
	rc, err := config.ClientConfig()
	if s.Kubeconfig == "" && clientcmd.IsEmptyConfig(err) {
		return ofPod(account)
	}
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", err
	}
	return rc, namespace, nil
}

// ofPod returns the credentials that a pod has in account. It does what
// [rest.InClusterConfig] does, which knows no other directory, but does not go on
// without the certificate that the API server's is signed with, or in another
// namespace.
func ofPod(account string) (*rest.Config, string, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, "", errors.New("there is no kubeconfig, and this is no pod: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is missing")
	}
	token, ca := filepath.Join(account, "token"), filepath.Join(account, "ca.crt")
	if _, err := os.Stat(token); err != nil {
		return nil, "", fmt.Errorf("there is no kubeconfig, and the pod has no token (automountServiceAccountToken?): %w", err)
	}
	if _, err := cert.NewPool(ca); err != nil {
		return nil, "", err
	}
	namespace, err := os.ReadFile(filepath.Join(account, "namespace"))
	if err != nil {
		return nil, "", err
	}
	return &rest.Config{
		Host:            "https://" + net.JoinHostPort(host, port),
		BearerTokenFile: token, // read again every minute: it is replaced before it expires
		TLSClientConfig: rest.TLSClientConfig{CAFile: ca},
	}, strings.TrimSpace(string(namespace)), nil
}

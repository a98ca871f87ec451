package kubernetes

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// credentials returns how to reach the API server, and the namespace that belongs
// to it.
func (s *Source) credentials() (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules() // falls back to the pod's own
	rules.ExplicitPath = s.Kubeconfig
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.Context})
	rc, err := config.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", err
	}
	rc.UserAgent = "calinix"
	return rc, namespace, nil
}

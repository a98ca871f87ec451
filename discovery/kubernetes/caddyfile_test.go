package kubernetes

import (
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCaddyfile(t *testing.T) {
	s := new(Source)
	require.NoError(t, s.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`kubernetes llama {
		namespace          llm
		pod_selector       "llm-d.ai/role in (decode, prefill-decode)"
		ports              http 9000
		scheme             https
		model_label        example.com/model
		routing_annotation example.com/routing
		kubeconfig         /etc/kubeconfig
		context            prod
	}`)))
	assert.Equal(t, &Source{
		Namespace: "llm", Service: "llama", PodSelector: "llm-d.ai/role in (decode, prefill-decode)", Ports: []string{"http", "9000"},
		Scheme: "https", ModelLabel: "example.com/model", RoutingAnnotation: "example.com/routing",
		Kubeconfig: "/etc/kubeconfig", Context: "prod",
	}, s)
	s = new(Source)
	require.NoError(t, s.UnmarshalCaddyfile(caddyfile.NewTestDispenser("kubernetes {\nservice_selector tier=chat\n}")))
	assert.Equal(t, &Source{ServiceSelector: "tier=chat"}, s)
	for text, want := range map[string]string{
		"kubernetes one two":              "wrong argument count",
		"kubernetes {\nports\n}":          "wrong argument count",
		"kubernetes {\nnamespace\n}":      "wrong argument count",
		"kubernetes {\nnamespace a b\n}":  "wrong argument count",
		"kubernetes {\nnamespaces llm\n}": "unrecognized subdirective namespaces",
	} {
		assert.ErrorContains(t, new(Source).UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)), want, text)
	}
}

package config

// Transport is config.yaml's section about connections to pods. JSON and the
// Caddyfile have Caddy's own transport in its place, into which it is turned. It
// has no default values of its own: what is not said stays unsaid there.
type Transport struct {
	// The time limit of connecting. Default: 3s.
	DialTimeout *Duration `json:"dial_timeout" yaml:"dialTimeoutMs"`

	// How long an idle connection is kept; 0 keeps none. Default: 4s.
	KeepAlive *Duration `json:"keepalive" yaml:"keepaliveMs"`

	// The time limit of waiting for an answer's header; 0 is none. Default: 0.
	ResponseHeaderTimeout *Duration `json:"response_header_timeout" yaml:"responseHeaderTimeoutMs"`

	// How the certificates of https pods are checked.
	TLS *TLS `json:"tls" yaml:"tls"`

	// Versions of HTTP: "1.1", "2" or "h2c". Default: "1.1".
	Versions []string `json:"versions" yaml:"versions"`
}

// TLS says how the certificates of https pods are checked.
type TLS struct {
	// A file of certificates in PEM form of the authorities to trust. A relative
	// path counts from the folder in which the server was started, as those of
	// Caddy's transport do. Default: those of the system.
	CAFile string `json:"ca_file" yaml:"caFile"`

	// Whether certificates are not checked at all. Default: false.
	InsecureSkipVerify *bool `json:"insecure_skip_verify" yaml:"insecureSkipVerify"`

	// The name that certificates must have. Default: the host of the pod's URL.
	ServerName string `json:"server_name" yaml:"serverName"`
}

// versions of HTTP that the transport can speak to pods.
var versions = []name{{"1.1", "1.1"}, {"2", "2"}, {"h2c", "h2c"}}

func (c *checker) transport(t *Transport) {
	if t == nil {
		return
	}
	c.positive("transport.dial_timeout", t.DialTimeout)
	c.notNegative("transport.keepalive", t.KeepAlive)
	c.notNegative("transport.response_header_timeout", t.ResponseHeaderTimeout)
	for i, v := range t.Versions {
		c.choice(index("transport.versions", i), v, "version of HTTP", versions)
		if v == "" {
			c.add(index("transport.versions", i), v, "unknown version of HTTP, want %s", list(versions))
		}
	}
}

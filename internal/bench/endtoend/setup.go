package main

import (
	"context"
	"fmt"
	"strings"
)

// bench is the processes that are measured and what they stand before.
type bench struct {
	engines, stock, calinix *caddy
	stockURL, calinixURL    string
}

// startBench starts simulated engines and the two proxies before them.
func startBench(ctx context.Context, o options, dir string, engines int) (_ *bench, err error) {
	addresses, err := takeAddresses(engines + 2)
	if err != nil {
		return nil, err
	}
	stock, own, pods := addresses[0], addresses[1], addresses[2:]
	b := &bench{stockURL: url(stock), calinixURL: url(own)}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	if b.engines, err = start(ctx, o.binary, dir, "engines", enginesFile(pods, o.decode), pods...); err != nil {
		return nil, err
	}
	if b.stock, err = start(ctx, o.binary, dir, "stock", stockFile(stock, pods), stock); err != nil {
		return nil, err
	}
	if b.calinix, err = start(ctx, o.binary, dir, "calinix", calinixFile(o.admin, own, pods), own); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bench) stop() {
	for _, c := range []*caddy{b.calinix, b.stock, b.engines} {
		if c != nil {
			c.stop()
		}
	}
}

func url(address string) string { return "https://" + address + "/v1/chat/completions" }

// globalOptions is formatted with the admin endpoint.
const globalOptions = `{
	admin %s
	auto_https disable_redirects
	skip_install_trust
	log {
		level ERROR
	}
}
`

func enginesFile(pods []string, decode float64) string {
	return fmt.Sprintf(globalOptions+`
%s {
	inference_sim {
		prefill_tokens_per_second 1e12
		decode_tokens_per_second %g
		batch_slowdown 0
		max_num_batched_tokens 1000000
		max_num_seqs 4096
	}
}
`, "off", sites(pods), decode)
}

func stockFile(listen string, pods []string) string {
	return fmt.Sprintf(globalOptions+`
https://%s {
	tls internal
	reverse_proxy %s {
		lb_policy least_conn
		health_uri /health
		health_interval 2s
		transport http {
			keepalive 4s
		}
	}
}
`, "off", listen, strings.Join(pods, " "))
}

func calinixFile(admin, listen string, pods []string) string {
	var b strings.Builder
	for i, p := range pods {
		fmt.Fprintf(&b, "\t\t\tpod engine-%d http://%s\n", i, p)
	}
	return fmt.Sprintf(globalOptions+`
https://%s {
	tls internal
	calinix {
		strategy expected_ttft
		single {
%s		}
	}
}
`, admin, listen, b.String())
}

package calinix

import (
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/config"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("calinix", parseCalinix)
	httpcaddyfile.RegisterDirectiveOrder("calinix", httpcaddyfile.Before, "reverse_proxy")
}

// parseCalinix reads the calinix directive. Syntax:
//
//	calinix [<matcher>] {
//	    # everything from a file; a relative path counts from this file's folder
//	    config <config.yaml>
//
//	    # or here; switches take on or off, sizes bytes or units such as 64MiB
//	    name              <name>
//	    strategy          cache_aware|expected_ttft|session_affinity|prefix|least_loaded|
//	                      round_robin|random|power_of_two
//	    unknown_model     reject|pass
//	    tie_break         prompt|pod_id
//	    mode              single|dispatch
//	    block_size        <tokens>
//	    max_token_bytes   <bytes>
//	    max_body_bytes    <size>
//	    body_memory_bytes <size>
//	    response_headers  <switch>
//	    log_trace         <switch>
//	    retries           <number>
//	    retry_budget      <share>
//	    retry_status      <status...>
//	    weights {
//	        single  [cache <weight>] [load <weight>] [sticky <weight>] [locality <weight>]
//	        prefill ...
//	        decode  ...
//	    }
//	    health {
//	        endpoint            <path>
//	        interval            <duration>
//	        timeout             <duration>
//	        healthy_threshold   <number>
//	        unhealthy_threshold <number>
//	        headers {
//	            <field> <value>
//	        }
//	        passive {
//	            failures <number>
//	            window   <duration>
//	        }
//	    }
//	    cache_registry {
//	        enabled        <switch>
//	        max_pods       <number>
//	        shards_count   <number>
//	        stale_ttl      <duration>
//	        max_blocks     <number>
//	        blocks_per_pod <number>
//	    }
//	    sessions {
//	        idle_ttl <duration>
//	        max      <number>
//	    }
//	    expected_ttft {
//	        prefill_rate <tokens per second>
//	        gamma        <weight>
//	        theta        <weight>
//	        eta          <share>
//	        replicas     <number>
//	        tau          <duration>
//	    }
//	    overload {
//	        hold     <duration>
//	        order    shortest
//	        max_held <number>
//	        timeout  <duration>
//	    }
//	    models {
//	        <name> {
//	            aliases       <name...>
//	            restore_alias [<switch>]
//	            strategy      <strategy>
//	            max_conns     <number>
//	            weights {
//	                ...
//	            }
//	        }
//	    }
//	    learn_models {
//	        enabled  [<switch>]
//	        path     <path>
//	        interval <duration>
//	    }
//	    hashing {
//	        load_factor   <factor>
//	        virtual_nodes <number>
//	    }
//	    engine_metrics {
//	        enabled  <switch>
//	        path     <path>
//	        interval <duration>
//	    }
//	    single {
//	        pod <id> <url> {
//	            healthy      <switch>
//	            draining     [<switch>]
//	            max_conns    <number>
//	            models       <name...>
//	            strategy     <strategy>
//	            capabilities [single] [prefill] [decode]
//	            node         <name>
//	            zone         <name>
//	            dp_rank      <number>
//	        }
//	        # finds further pods while the balancer runs; also in prefill and decode
//	        discover dns  <name> <port> { ... }
//	        discover file <path>
//	    }
//	    dispatch {
//	        connector           nixl|nixl_push|mooncake|sglang|p2pnccl|trtllm|shared_storage|plain
//	        prefill_timeout     <duration>
//	        on_prefill_failure  fail|decode_only
//	        min_uncached_tokens <number>
//	        adaptive            [<switch>]
//	        prefill {
//	            pod <id> <url> {
//	                ...                        # and, by connector:
//	                bootstrap_host <host>      # sglang, mooncake
//	                bootstrap_port <port>
//	                kv_address     <host:port> # p2pnccl, nixl_push
//	                engine_id      <id>        # nixl_push
//	                tp_size        <number>
//	                pp_size        <number>
//	            }
//	        }
//	        decode {
//	            pod ...
//	        }
//	    }
//
//	    # reverse_proxy's subdirectives keep their meaning: header_up, header_down,
//	    # transport, flush_interval, handle_response, replace_status, rewrite,
//	    # trusted_proxies, response_buffers, stream_timeout, verbose_logs ...
//	}
//
// Those of reverse_proxy that choose or check upstreams (to, dynamic, lb_*,
// health_*, max_fails ...) are refused, each with the key to use instead. weights
// and capabilities may also be written as blocks, one word and its value a line.
func parseCalinix(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	d := h.Dispenser
	d.Next() // consume the directive's name
	directive := d.Token()
	if d.NextArg() {
		return nil, d.Errf("unexpected argument %q: pods are listed in a block, lines `pod <id> <url>` in `single`", d.Val())
	}

	handler := new(Handler)
	keys := newKeyParser(d, directive)
	proxy := proxyParser{directive: directive}
	var file *caddyfile.Token // the argument of config
	for d.NextBlock(0) {
		proxy.openAt(d)
		name := d.Val()
		if name == "config" {
			if file != nil {
				return nil, d.Err("config is given twice")
			}
			if !d.NextArg() {
				return nil, d.ArgErr()
			}
			token := d.Token()
			file = &token
			if d.NextArg() {
				return nil, d.ArgErr()
			}
			continue
		}
		if own, err := keys.parse(config.Fields(&handler.Balancer), ""); err != nil {
			return nil, err
		} else if own {
			continue
		}
		if cure, ok := refusedSubdirectives[name]; ok {
			return nil, d.Errf("%s is not for calinix: %s", name, cure)
		}
		proxy.take(d)
	}
	proxy.close = d.Token()

	var err error
	if handler.Proxy, err = proxy.parse(h); err != nil {
		return nil, err
	}
	if file != nil {
		return handler, handler.readFile(*file, keys)
	}
	handler.Normalize()
	return handler, keys.located(handler.Balancer.Validate())
}

// ownSubdirectives are the names of calinix's own subdirectives.
func ownSubdirectives() []string {
	names := []string{"config"}
	for _, f := range config.Fields(new(config.Balancer)) {
		names = append(names, f.JSON)
	}
	return names
}

// unrecognized tells whether an error is about the name of a subdirective, which
// reverse_proxy does not know.
func unrecognized(err error, name string) bool {
	return strings.HasPrefix(err.Error(), "unrecognized subdirective "+name+",")
}

package calinix

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/enginesim"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("inference_sim", parseInferenceSim)
	httpcaddyfile.RegisterDirectiveOrder("inference_sim", httpcaddyfile.Before, "reverse_proxy")
}

func parseInferenceSim(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	s := new(InferenceSim)
	return s, s.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile reads the inference_sim directive. Syntax, with the defaults:
//
//	inference_sim [<matcher>] [<name>] {
//	    name                       <name>       # the address it listens on
//	    models                     <name...>    # any
//	    seed                       0
//	    block_size                 16
//	    num_gpu_blocks             28800
//	    max_token_bytes            16
//	    max_model_len              131072
//	    max_num_seqs               256
//	    max_num_batched_tokens     2048
//	    prefill_tokens_per_second  20000
//	    attention_tokens           0            # off
//	    decode_tokens_per_second   50
//	    batch_slowdown             0.005
//	    decode_context_tokens      0            # off
//	    transfer_tokens_per_second 333333
//	    kv_lease_duration          30s
//	    kv_load_failure_policy     fail         # or recompute
//	    kv_connector               nixl         # or nixl_push, mooncake, p2pnccl, shared_storage, sglang, trtllm
//	    role                       <leg>        # prefill or decode; both
//	    engine_id                  <id>         # random
//	    kv_address                 127.0.0.1:5600
//	    bootstrap_port             8998
//	    kv_wait_timeout            480s
//	    output_tokens              64
//	    cache_output               off          # or on
//	    prompt_tokens_details      always       # or nonzero, never
//	    stream_headers             at_once      # or first_token
//	    embedding_dimensions       64
//	    health_status              200
//	}
//
// The fields of [enginesim.Settings] say what each means.
func (s *InferenceSim) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	directive := d.Token()
	args := d.RemainingArgs()
	if len(args) > 1 {
		return d.ArgErr()
	}
	given := map[string]bool{}
	if len(args) == 1 {
		s.Name = args[0]
		given["name"] = true
	}
	for d.NextBlock(0) {
		key := d.Val()
		field, known := simField(&s.Settings, key)
		if !known {
			return d.Errf("unrecognized subdirective %s", key)
		}
		if given[key] {
			return d.Errf("%s: given twice", key)
		}
		given[key] = true
		values := d.RemainingArgs()
		if list, ok := field.(*[]string); ok && len(values) > 0 {
			*list = values
			continue
		}
		if len(values) != 1 {
			return d.ArgErr()
		}
		if err := setSimField(field, values[0]); err != nil {
			return d.Errf("%s %q: %v", key, values[0], err)
		}
	}
	if _, err := s.WithDefaults(); err != nil {
		return fmt.Errorf("inference_sim: %w, at %s:%d", err, directive.File, directive.Line)
	}
	return nil
}

// simField returns a pointer to the setting that JSON calls key.
func simField(s *enginesim.Settings, key string) (ptr any, known bool) {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == key {
			return v.Field(i).Addr().Interface(), true
		}
	}
	return nil, false
}

// setSimField parses text into a setting.
func setSimField(ptr any, text string) (err error) {
	switch p := ptr.(type) {
	case *string:
		*p = text
	case *bool:
		*p = text == "on"
		if text != "on" && text != "off" {
			return errors.New("want on or off")
		}
	case *int:
		*p, err = strconv.Atoi(text)
	case **int:
		*p = new(int)
		**p, err = strconv.Atoi(text)
	case *uint64:
		*p, err = strconv.ParseUint(text, 10, 64)
	case *float64:
		*p, err = strconv.ParseFloat(text, 64)
	case **float64:
		*p = new(float64)
		**p, err = strconv.ParseFloat(text, 64)
	case *enginesim.Duration:
		d, e := caddy.ParseDuration(text)
		*p, err = enginesim.Duration(d), e
	default:
		return fmt.Errorf("settings of type %T cannot be written in a Caddyfile", ptr)
	}
	return plainNumberError(err)
}

// plainNumberError says what strconv does not like without naming strconv.
func plainNumberError(err error) error {
	if n := (*strconv.NumError)(nil); errors.As(err, &n) {
		return fmt.Errorf("want a number: %w", n.Err)
	}
	return err
}

// Interface guard.
var _ caddyfile.Unmarshaler = (*InferenceSim)(nil)

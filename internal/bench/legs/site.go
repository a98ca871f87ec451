package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/calinix/caddy-calinix"
)

// The engine model: Llama 3.1 8B on one H100.
const (
	prefillRate   = 20000.0              // tokens a second
	chunk         = 2048                 // tokens of a step
	attention     = 38000.0              // context at which attention costs as much as the rest
	step          = 7 * time.Millisecond // the shortest
	decodeContext = 175000.0             // tokens of context that lengthen a step by that
	handover      = 3 * time.Microsecond // a token
	blocks        = 28800                // of 16 tokens
	tau           = 20 * time.Second     // of expectedTTFT
	ttftRate      = 2000.0               // of expectedTTFT
)

// alone is how long the first token of one request takes that is alone: the chunks of
// its prompt, and in dispatch mode the hand-over and a step for the last token, which is
// computed anew.
func (o *options) alone(mode string) time.Duration {
	took := 0.0
	for done := 0; done < o.prompt; done += chunk {
		n := float64(min(chunk, o.prompt-done))
		took += max(step.Seconds(), n/prefillRate) + n*(float64(done)+n/2)/(prefillRate*attention)
	}
	if mode == "dispatch" {
		took += float64(o.prompt)*handover.Seconds() + step.Seconds()
	}
	return time.Duration(took * float64(time.Second))
}

// pods says how many pods of which kind there are.
func (o *options) pods(mode string) string {
	if mode == "dispatch" {
		return fmt.Sprintf("%d prefill + %d decode", o.prefill, o.decode)
	}
	return fmt.Sprintf("%d single", o.prefill+o.decode)
}

// serve runs Caddy with the engines and Calinix before them.
func serve(o *options, mode string) (url string, stop func(), err error) {
	ports, err := freePorts(1 + o.prefill + o.decode)
	if err != nil {
		return "", nil, err
	}
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(o.caddyfile(mode, ports[0], ports[1:])), nil)
	if err == nil {
		err = caddy.Load(config, true)
	}
	if err != nil {
		return "", nil, err
	}
	stop = func() { _ = caddy.Stop() } // what is left of it ends with the process
	return fmt.Sprintf("http://127.0.0.1:%d/v1/completions", ports[0]), stop, nil
}

func (o *options) caddyfile(mode string, port int, engines []int) string {
	var sites strings.Builder
	for _, p := range engines {
		fmt.Fprintf(&sites, `
http://:%d {
	bind 127.0.0.1
	inference_sim {
		num_gpu_blocks             %d
		max_num_batched_tokens     %d
		prefill_tokens_per_second  %g
		attention_tokens           %g
		decode_tokens_per_second   %g
		batch_slowdown             0
		decode_context_tokens      %g
		transfer_tokens_per_second %g
	}
}
`, p, blocks, chunk, prefillRate/o.slower, attention, 1/step.Seconds()/o.slower, decodeContext, 1/handover.Seconds()/o.slower)
	}
	list := func(name string, engines []int) string {
		var b strings.Builder
		for i, p := range engines {
			fmt.Fprintf(&b, "\t\t\t\tpod %s-%d http://127.0.0.1:%d\n", name, i+1, p)
		}
		return b.String()
	}
	pods := fmt.Sprintf("single {\n%s\t\t\t}", list("single", engines))
	if mode == "dispatch" {
		pods = fmt.Sprintf("dispatch {\n\t\t\t\tconnector nixl\n\t\t\t\tprefill {\n%s\t\t\t\t}\n\t\t\t\tdecode {\n%s\t\t\t\t}\n\t\t\t}",
			list("prefill", engines[:o.prefill]), list("decode", engines[o.prefill:]))
	}
	return fmt.Sprintf(`{
	admin off
	persist_config off
	grace_period 1s
	log {
		level ERROR
	}
}
http://:%d {
	bind 127.0.0.1
	calinix {
		strategy %s
		expected_ttft {
			prefill_rate %g
			tau          %s
		}
		health {
			timeout 10s
		}
		%s
	}
}
%s`, port, o.strategy, ttftRate/o.slower, time.Duration(float64(tau)*o.slower), pods, sites.String())
}

// freePorts returns n ports on which nothing listened just now.
func freePorts(n int) (ports []int, err error) {
	open := make([]net.Listener, 0, n)
	defer func() {
		for _, l := range open {
			err = errors.Join(err, l.Close())
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		open, ports = append(open, l), append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

package config

import "encoding/json"

// Single lists the pods of single mode.
type Single struct {
	// "single" if it is given at all. Only config.yaml has it; Load checks and
	// drops it.
	Mode string `json:"-" yaml:"mode"`

	Pods []Pod `json:"pods,omitempty" yaml:"pods"`

	// What finds further pods while the balancer runs: objects with the name of a
	// source (dns, file, or one that was built in) in "source", and its keys.
	Discover []json.RawMessage `json:"discover,omitempty" yaml:"discover"`
}

// Dispatch describes disaggregated serving: a prefill leg, then a decode leg.
type Dispatch struct {
	// "dispatch" if it is given at all. Only config.yaml has it; Load checks and
	// drops it.
	Mode string `json:"-" yaml:"mode"`

	// How the two legs hand over: nixl, nixlPush, mooncake, sglang, p2pnccl,
	// trtllm, sharedStorage or plain. Default: nixl.
	Connector string `json:"connector,omitempty" yaml:"connector"`

	// The time limit of the prefill leg as a whole, both tries; 0 is none.
	// Default: 0.
	PrefillTimeout *Duration `json:"prefill_timeout,omitempty" yaml:"prefillTimeoutMs"`

	// What happens when the prefill leg fails: fail or decodeOnly. Default: fail.
	OnPrefillFailure string `json:"on_prefill_failure,omitempty" yaml:"onPrefillFailure"`

	// A prompt of which the best decode pod lacks fewer tokens than this skips the
	// prefill leg; 0 is never. Default: 0.
	MinUncachedTokens *int `json:"min_uncached_tokens,omitempty" yaml:"minUncachedTokens"`

	// Also skip the prefill leg of a prompt of which the best decode pod lacks so
	// little that computing it takes less than handing the prompt over, as both
	// were measured. Default: false.
	Adaptive *bool `json:"adaptive,omitempty" yaml:"adaptive"`

	// The pods of the prefill leg.
	Prefill *Pods `json:"prefill,omitempty" yaml:"prefill"`

	// The pods of the decode leg.
	Decode *Pods `json:"decode,omitempty" yaml:"decode"`
}

// Pods lists the pods of one leg.
type Pods struct {
	Pods []Pod `json:"pods,omitempty" yaml:"pods"`

	// What finds further pods while the balancer runs: see Single.
	Discover []json.RawMessage `json:"discover,omitempty" yaml:"discover"`
}

// Pod is one engine behind the balancer.
type Pod struct {
	// The name of the pod, unique in its balancer. 1 to 128 visible ASCII
	// characters: it stands in headers, metrics and the admin API.
	ID string `json:"id,omitempty" yaml:"id"`

	// Where the pod listens: http or https, host, and port unless it is 80 or
	// 443; an IPv6 address in brackets; no path, query or credentials.
	URL string `json:"url,omitempty" yaml:"url"`

	// False starts the pod as down until healthy_threshold probes in a row have
	// passed. Default: up until the first probe decides.
	Healthy *bool `json:"healthy,omitempty" yaml:"healthy"`

	// True starts the pod as draining: it gets no new requests. Default: false.
	Draining *bool `json:"draining,omitempty" yaml:"draining"`

	// The most requests that the pod may have at once. Default: no limit.
	MaxConns *int `json:"max_conns,omitempty" yaml:"maxConns"`

	// The models that the pod serves, adapters included. Default: any, unless
	// learn_models is on.
	Models []string `json:"models,omitempty" yaml:"models"`

	// How requests for these models are routed if the section models says nothing
	// of it. Of several pods of a model the first that has one counts. Default: the
	// strategy of the balancer.
	Strategy string `json:"strategy,omitempty" yaml:"strategy"`

	// The same for single ones of these models, by their names, which goes before
	// Strategy. For sources of pods only: configurations have the section models.
	Strategies map[string]string `json:"-" yaml:"-"`

	// Roles that the pod has besides the one under which it is listed.
	Capabilities *Capabilities `json:"capabilities,omitempty" yaml:"capabilities"`

	// The machine on which the pod runs. Default: the host of the URL.
	Node string `json:"node,omitempty" yaml:"node"`

	// The zone in which the pod runs. Default: none.
	Zone string `json:"zone,omitempty" yaml:"zone"`

	// Where decode pods reach the bootstrap server of this prefill pod, for the
	// connectors sglang and mooncake. Default: the host of the URL.
	BootstrapHost string `json:"bootstrap_host,omitempty" yaml:"bootstrapHost"`

	// The port of that server. Default: 8998.
	BootstrapPort *int `json:"bootstrap_port,omitempty" yaml:"bootstrapPort"`

	// Where the engine's KV transfer listens, host and port: for p2pnccl the ZMQ
	// address of every prefill and decode pod, which has no default; for nixlPush
	// the NIXL side channel of a prefill pod, by default port 5600 (and its
	// data-parallel rank more) at the host of the URL.
	KVAddress string `json:"kv_address,omitempty" yaml:"kvAddress"`

	// The engine_id of a prefill pod, for nixlPush.
	EngineID string `json:"engine_id,omitempty" yaml:"engineId"`

	// The tensor-parallel size of a prefill pod, for nixlPush. Default: 1.
	TPSize *int `json:"tp_size,omitempty" yaml:"tpSize"`

	// The pipeline-parallel size of a prefill pod, for nixlPush. Default: 1.
	PPSize *int `json:"pp_size,omitempty" yaml:"ppSize"`

	// The data-parallel rank that the pod stands for, where one port serves
	// several: its requests carry X-Data-Parallel-Rank. Default: none.
	DPRank *int `json:"dp_rank,omitempty" yaml:"dpRank"`
}

// Capabilities names roles of a pod. The role under which the pod is listed is
// its own anyway, so false for that one is refused; true for another adds that
// role, where the configuration has a section for it.
type Capabilities struct {
	Single  *bool `json:"single,omitempty" yaml:"single"`
	Prefill *bool `json:"prefill,omitempty" yaml:"prefill"`
	Decode  *bool `json:"decode,omitempty" yaml:"decode"`
}

package config

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// TestDefaults spells out every effective value of a configuration that says
// nothing but where its pods are.
func TestDefaults(t *testing.T) {
	said := mustLoad(t, `
version: 1
upstreams:
  single: {pods: [{id: a, url: "HTTPS://Engine-A/"}]}
  dispatch:
    prefill: {pods: [{id: p, url: "http://[FE80::1]:8000", node: rack-1}]}
    decode: {pods: [{id: d, url: "http://10.0.0.1"}]}
`)
	before := marshal(t, said)
	effective := said.Defaults()
	const want = `{"name":"default","strategy":"cacheAware","unknown_model":"reject","tie_break":"prompt","mode":"single","block_size":16,"max_token_bytes":16,` +
		`"max_body_bytes":67108864,"body_memory_bytes":1073741824,` +
		`"weights":{"single":{"cache":0.6,"load":0.3,"sticky":0.1,"locality":0},"prefill":{"cache":0.65,"load":0.25,"sticky":0.1,"locality":0},"decode":{"cache":0.1,"load":0.55,"sticky":0.1,"locality":0.25}},` +
		`"response_headers":true,"log_trace":false,"retries":1,"retry_budget":0.1,` +
		`"health":{"endpoint":"/health","interval":2000000000,"timeout":500000000,"healthy_threshold":2,"unhealthy_threshold":3,"passive":{"failures":0,"window":10000000000}},` +
		`"cache_registry":{"enabled":true,"max_pods":256,"shards_count":256,"stale_ttl":0,"max_blocks":1000000,"blocks_per_pod":0},` +
		`"sessions":{"idle_ttl":1800000000000,"max":100000},` +
		`"expected_ttft":{"prefill_rate":2000,"gamma":0.5,"theta":0.01,"eta":0.7,"replicas":2,"tau":20000000000},"learn_models":{"enabled":false,"path":"/v1/models","interval":10000000000},"hashing":{"load_factor":1.25,"virtual_nodes":160},"engine_metrics":{"enabled":false,"path":"/metrics","interval":2000000000},` +
		`"single":{"pods":[{"id":"a","url":"https://engine-a:443","draining":false,"node":"engine-a"}]},` +
		`"dispatch":{"connector":"nixl","prefill_timeout":0,"on_prefill_failure":"fail","min_uncached_tokens":0,"adaptive":false,` +
		`"prefill":{"pods":[{"id":"p","url":"http://[fe80::1]:8000","draining":false,"node":"rack-1"}]},` +
		`"decode":{"pods":[{"id":"d","url":"http://10.0.0.1:80","draining":false,"node":"10.0.0.1"}]}}}`
	if got := marshal(t, effective); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if after := marshal(t, said); after != before {
		t.Errorf("Defaults changed what it was given:\n%s\n%s", before, after)
	}
	if again := marshal(t, effective.Defaults()); again != want {
		t.Errorf("the defaults of the effective values differ: %s", again)
	}
	if err := effective.Validate(); err != nil {
		t.Errorf("the effective values are not valid: %v", err)
	}
}

// TestDefaultsKeep leaves everything alone that was said, zeros included.
func TestDefaultsKeep(t *testing.T) {
	said := mustLoad(t, `
version: 1
gateway:
  name: n
  strategy: random
  tieBreak: podId
  mode: dispatch
  blockSize: 32
  maxTokenBytes: 0
  maxBodyBytes: 1
  bodyMemoryBytes: 2
  weights: {single: {cache: 0, load: 1, sticky: 0}, prefill: {cache: 2}, decode: {locality: 0}}
  responseHeaders: false
  logTrace: true
  retries: 0
  retryBudget: 0
  retryStatus: [502, 503]
health: {endpoint: /up, intervalMs: 1, timeoutMs: 2, healthyThreshold: 3, unhealthyThreshold: 4, headers: {A: b}, passive: {failures: 5, windowMs: 6}}
cacheRegistry: {enabled: false, maxPods: 9, shardsCount: 10, staleTtlMs: 11, maxBlocks: 12, blocksPerPod: -1}
expectedTTFT: {prefillRate: 18, gamma: 0, theta: 0, eta: 0, replicas: 19, tauMs: 20}
hashing: {loadFactor: 2, virtualNodes: 21}
learnModels: {enabled: true, path: /x, intervalMs: 22}
sessions: {idleTtlMs: 13, max: 14}
engineMetrics: {enabled: false, path: /m, intervalMs: 15}
upstreams:
  dispatch:
    connector: plain
    prefillTimeoutMs: 16
    onPrefillFailure: decodeOnly
    minUncachedTokens: 0
    prefill: {pods: [{id: p, url: "http://p:81", healthy: false, draining: true, maxConns: 17, models: [m], strategy: prefix, capabilities: {decode: true}, node: x, zone: z}]}
`)
	effective := said.Defaults()
	if missing := lost(reflect.ValueOf(said).Elem(), reflect.ValueOf(effective).Elem(), ""); len(missing) > 0 {
		t.Errorf("not kept: %v", missing)
	}
}

// lost names every key that said has and effective has differently.
func lost(said, effective reflect.Value, path string) (keys []string) {
	for i := range said.NumField() {
		key, s, e := path+said.Type().Field(i).Name, said.Field(i), effective.Field(i)
		switch {
		case s.IsZero():
		case s.Kind() == reflect.Pointer && s.Elem().Kind() == reflect.Struct:
			keys = append(keys, lost(s.Elem(), e.Elem(), key+".")...)
		case !reflect.DeepEqual(s.Interface(), e.Interface()):
			keys = append(keys, key)
		}
	}
	return keys
}

// TestDefaultsComplete finds every pointer that Defaults leaves nil: callers
// read the others without looking.
func TestDefaultsComplete(t *testing.T) {
	b := &Balancer{Single: &Single{Pods: []Pod{{}}}, Dispatch: &Dispatch{}}
	mayBeNil := map[string]bool{
		"Overload": true, "Healthy": true, "MaxConns": true, "Capabilities": true,
		"BootstrapPort": true, "TPSize": true, "PPSize": true, "DPRank": true,
	}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			name, f := v.Type().Field(i).Name, v.Field(i)
			if f.Kind() == reflect.Slice && f.Len() > 0 && f.Index(0).Kind() == reflect.Struct {
				walk(f.Index(0), path+name+"[0].")
			}
			if f.Kind() != reflect.Pointer {
				continue
			}
			if f.IsNil() {
				if !mayBeNil[name] {
					t.Errorf("%s%s is nil", path, name)
				}
			} else if f.Elem().Kind() == reflect.Struct {
				walk(f.Elem(), path+name+".")
			}
		}
	}
	walk(reflect.ValueOf(b.Defaults()).Elem(), "")
}

// TestSchemaSpelling holds the two spellings of every key together: JSON has
// config.yaml's last word in snake case, without the unit of times.
func TestSchemaSpelling(t *testing.T) {
	var check func(typ reflect.Type)
	check = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			json, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			yaml := f.Tag.Get("yaml")
			yaml = yaml[strings.LastIndexByte(yaml, '.')+1:]
			if want := snake(strings.TrimSuffix(yaml, "Ms")); json != want && json != "-" {
				t.Errorf("%s.%s: JSON key %q, want %q", typ.Name(), f.Name, json, want)
			}
			if json != "-" && typ.Name() != "Transport" && typ.Name() != "TLS" && !strings.HasSuffix(f.Tag.Get("json"), ",omitempty") {
				t.Errorf("%s.%s: want omitempty", typ.Name(), f.Name)
			}
			isTime := f.Type == reflect.TypeFor[*Duration]()
			if isTime != strings.HasSuffix(yaml, "Ms") {
				t.Errorf("%s.%s: times, and only they, end in Ms in config.yaml", typ.Name(), f.Name)
			}
			elem := f.Type
			for elem.Kind() == reflect.Pointer || elem.Kind() == reflect.Slice {
				elem = elem.Elem()
			}
			if elem.Kind() == reflect.Struct {
				check(elem)
			}
		}
	}
	check(reflect.TypeFor[Balancer]())
	check(reflect.TypeFor[Transport]())
}

func snake(camel string) string {
	camel = strings.NewReplacer("Ttl", "_ttl", "TTFT", "_ttft").Replace(camel)
	var b strings.Builder
	for _, r := range camel {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// TestJSON reads a balancer as Caddy does, with times as numbers or as strings.
func TestJSON(t *testing.T) {
	var b Balancer
	err := json.Unmarshal([]byte(`{"health":{"interval":"1m30s","timeout":250000000},"sessions":{"idle_ttl":"1d"}}`), &b)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"health":{"interval":90000000000,"timeout":250000000},"sessions":{"idle_ttl":86400000000000}}`
	if got := marshal(t, b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, bad := range []string{`{"health":{"interval":"soon"}}`, `{"health":{"interval":true}}`, `{"health":{"interval":1.5}}`} {
		if err := json.Unmarshal([]byte(bad), &b); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

// TestValidateJSONPaths checks what Validate says where no file is known: the
// keys as JSON has them.
func TestValidateJSONPaths(t *testing.T) {
	b := &Balancer{
		BlockSize: new(0),
		Health:    &Health{Interval: new(Duration(-1))},
		Dispatch: &Dispatch{
			Prefill: &Pods{Pods: []Pod{{ID: "p", URL: "http://p"}}},
			Decode:  &Pods{Pods: []Pod{{ID: "d", URL: "ftp://d"}, {ID: "p", URL: "http://p"}}},
		},
	}
	const want = `block_size 0: too small, want at least 1
health.interval -1ns: want no negative time
dispatch.decode.pods[0] ("d"): url "ftp://d": unknown scheme, want http or https
dispatch.decode.pods[1] ("p"): id "p": this id is already that of dispatch.prefill.pods[0]`
	if err := b.Validate(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func mustLoad(t *testing.T, yaml string) *Balancer {
	t.Helper()
	f, _, err := Load("config.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return &f.Balancer
}

// TestContractKeys reads a file that has every key there is, and the keys that
// are known by name only.
func TestContractKeys(t *testing.T) {
	keys := map[string]bool{}
	for _, k := range allYAMLKeys() {
		keys[k] = true
	}
	data, err := os.ReadFile("testdata/keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(data)) {
		if !keys[line] {
			t.Errorf("%s is missing in the schema", line)
		}
		delete(keys, line)
	}
	for k := range keys {
		t.Errorf("%s is in the schema but not in testdata/keys.txt", k)
	}
}

// TestPodTokens: how much of a pod is remembered, and where that is from.
func TestPodTokens(t *testing.T) {
	for _, c := range []struct {
		said, blockSize int
		metrics         bool
		want            int64
		learns          bool
	}{
		{0, 16, false, 460800, false},
		{0, 1 << 20, true, 460800, true},
		{-1, 16, true, 0, false},
		{1, 16, false, 16, false},
		{900, 512, true, 460800, false},
		{1<<31 - 1, 1 << 20, false, (1<<31 - 1) << 20, false},
	} {
		b := &Balancer{
			BlockSize: &c.blockSize, CacheRegistry: &CacheRegistry{BlocksPerPod: &c.said},
			EngineMetrics: &EngineMetrics{Enabled: &c.metrics},
		}
		e := b.Defaults()
		if got := e.PodTokens(); got != c.want || e.LearnsCaches() != c.learns {
			t.Errorf("%+v: %d tokens, learns %v", c, got, e.LearnsCaches())
		}
	}
}

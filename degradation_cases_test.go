package calinix_test

var (
	hashing  = []string{"sessionAffinity", "prefix"}
	scoring  = []string{"expectedTTFT", "cacheAware"}
	every    = []string{"expectedTTFT", "cacheAware", "sessionAffinity", "prefix", "leastLoaded", "powerOfTwo", "roundRobin", "random"}
	balancer = []place{ofBalancer}
)

// degradations bring about the cases of the table in docs/routing.md, by its ids.
var degradations = map[string]degradation{
	"no-key":    {strategies: []string{"sessionAffinity"}, play: playNoKey},
	"no-prefix": {strategies: []string{"prefix"}, play: playNoKey},
	"no-load":   {strategies: hashing, play: playNoLoad},
	// What is not JSON names no model: the balancer's strategy decides.
	"not-json":             {strategies: hashing, places: balancer, play: playNotJSON},
	"ring-empty":           {strategies: hashing, play: playRingEmpty},
	"key-down":             {strategies: hashing, pods: 5, config: quickProbes, play: playKeyDown},
	"key-drained":          {strategies: hashing, pods: 5, play: playKeyDrained},
	"key-full":             {strategies: hashing, pods: 5, config: onePlaceEach, play: playKeyBusy},
	"key-failed":           {strategies: hashing, pods: 5, play: playKeyFailed},
	"key-above-bound":      {strategies: hashing, pods: 5, play: playKeyBusy},
	"pod-comes":            {strategies: hashing, pods: 6, config: withoutTheLast, play: playPodComes},
	"no-prompt":            {strategies: append(scoring, "leastLoaded"), play: playNoPrompt},
	"new-prompt":           {strategies: scoring, play: playNewPrompt},
	"index-off":            {strategies: scoring, config: func(p *stage) { p.conf.in("cacheRegistry")["enabled"] = false }, play: playIndexOff},
	"all-down":             {strategies: every, places: balancer, config: quickProbes, play: playAllDown},
	"all-full":             {strategies: every, places: balancer, pods: 2, config: onePlaceEach, play: playAllFull},
	"held-full":            {strategies: every[:1], places: balancer, pods: 2, config: oneHeld, play: playHeldFull},
	"model-down":           {strategies: every[:1], config: ofModelM, play: playModelDown},
	"model-full":           {strategies: every[:1], config: func(p *stage) { p.conf.in("models", "m")["maxConns"] = 1 }, play: playModelFull},
	"model-unknown":        {strategies: every, places: balancer, config: ofModelM, play: playModelUnknown},
	"model-unknown-passed": {strategies: every, places: balancer, config: passUnknown, play: playModelUnknown},
	"alias":                {strategies: every, config: func(p *stage) { p.conf.in("models", "m")["aliases"] = []string{"alias"} }, play: playAlias},
	"no-such-mode":         {strategies: every[:1], play: playNoSuchMode},
	"no-prefill":           {strategies: []string{"sessionAffinity"}, places: balancer, config: withoutPrefill, play: playNoPrefill},
}

func quickProbes(p *stage) {
	p.conf["health"] = tree{"intervalMs": 20, "timeoutMs": 2000, "healthyThreshold": 2, "unhealthyThreshold": 2}
}

func onePlaceEach(p *stage) {
	for _, pod := range p.listed() {
		pod["maxConns"] = 1
	}
}

func oneHeld(p *stage) {
	onePlaceEach(p)
	p.conf["overload"] = tree{"maxHeld": 1}
}

// ofModelM makes the pods of model m, but the last one, which is another's.
func ofModelM(p *stage) {
	list := p.listed()
	for i, pod := range list {
		pod["models"] = []string{"m"}
		if i == len(list)-1 {
			pod["models"] = []string{"other"}
		}
	}
}

func passUnknown(p *stage) {
	ofModelM(p)
	p.conf.in("gateway")["unknownModel"] = "pass"
}

func withoutTheLast(p *stage) {
	p.all = p.listed()
	p.conf.in("upstreams", "single")["pods"] = p.all[:len(p.all)-1]
}

// withoutPrefill makes the first pod a prefill pod that is down, the others decode
// pods.
func withoutPrefill(p *stage) {
	p.ps[0].Healthy(false)
	p.conf["upstreams"] = tree{"dispatch": tree{
		"onPrefillFailure": "decodeOnly",
		"prefill":          tree{"pods": podTrees(p.ps[:1], nil)}, "decode": tree{"pods": podTrees(p.ps[1:], nil)},
	}}
}

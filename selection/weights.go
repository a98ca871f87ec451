package selection

// Weights says how much each factor counts in the four-factor score. They need
// not add up to 1. A NaN or an infinite weight can do no more harm than a bad
// pick: see Pick.
type Weights struct {
	Cache    float64 // share of the prompt's blocks that the pod holds
	Load     float64 // how free the pod is
	Sticky   float64 // whether the pod served the session before
	Locality float64 // how near the pod is to the prefill pod
}

// SingleWeights are the defaults for pods that serve whole requests. Those of both
// legs are a configuration's: see package config.
func SingleWeights() Weights { return Weights{Cache: 0.60, Load: 0.30, Sticky: 0.10} }

// Parts are a candidate's four factors, each before its weight, and the score
// that comes of them.
type Parts struct {
	// Cache is 100 times the share of the prompt's blocks that the pod holds
	// from the first on without a gap; 0 without a prompt.
	Cache float64
	// Load is the load factor: 100 for an idle pod, less the busier it is.
	Load float64
	// Sticky is 100 for the pod that served the session before, else 0.
	Sticky float64
	// Locality is 100 on the node of the prefill pod, 50 in its zone, else 0.
	Locality float64
	// Score is the number that Pick compares.
	Score float64
}

// weigh returns the four-factor score. The order of the operations is part of
// the contract: with it scores equal the published reference vectors to the
// last bit. The conversions keep compilers from fusing a product with a sum,
// which would round differently from machine to machine.
func (w *Weights) weigh(p *Parts) float64 {
	s := float64(p.Cache*w.Cache) + float64(p.Load*w.Load)
	s += float64(p.Sticky * w.Sticky)
	return s + float64(p.Locality*w.Locality)
}

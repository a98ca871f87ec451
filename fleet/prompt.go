package fleet

import (
	"time"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// Chain is what the fleet needs of a prompt's chain; *chain.Chain is one.
type Chain interface {
	index.Chain
	// End returns the byte behind block k of those hashed so far.
	End(k int) int
	// Bytes returns the length of the text, Blocks the number of its blocks; they
	// need not be hashed for that.
	Bytes() int
	Blocks() int
}

// tokens returns the length of the prompt in estimated tokens of the engine, at
// least 1: legs of which nothing is known spread by their number.
func (a *Ask) tokens() int64 {
	n := a.Tokens
	if n <= 0 && a.Chain != nil {
		n = chain.EstimateTokens(a.Chain.Bytes())
	}
	return max(1, int64(n))
}

// covered returns how many of the prompt's tokens lie in its first blocks.
func (a *Ask) covered(blocks int, tokens int64) int64 {
	if blocks == 0 {
		return 0
	}
	return tokens * int64(a.Chain.End(blocks-1)) / int64(max(1, a.Chain.Bytes()))
}

// duty is what the picked pod does with the prompt. A decode leg that is near a
// prefill pod gets the prompt computed; without one it is a whole request.
func (a *Ask) duty() selection.Duty {
	switch {
	case a.Role == Prefill:
		return selection.Compute
	case a.Role == Decode && a.HasNear:
		return selection.Generate
	default:
		return selection.Serve
	}
}

// load is what the leg weighs at a pod that holds so many leading blocks.
func (a *Ask) load(depth int) selection.Load {
	tokens := a.tokens()
	l := selection.Load{Prompt: tokens}
	if a.duty() != selection.Generate {
		l.Uncached = max(1, tokens-a.covered(depth, tokens))
	}
	return l
}

// rate is how many tokens a second a pod is assumed to compute.
func (a *Ask) rate() float64 {
	if a.TTFT.PrefillRate > 0 {
		return a.TTFT.PrefillRate
	}
	return selection.DefaultTTFT().PrefillRate
}

// weigh fills in what ExpectedTTFT reads of the prompt: the work that it is for
// the pods of each frame, and for those that hold nothing. Depths ascend, so the
// end of a hot prefix need not be sought again for those within it.
func (w *work) weigh(now time.Time, x *index.Index, a *Ask) {
	r := &w.request
	tokens, hot := a.tokens(), 0
	r.TTFT, r.Duty, r.Tokens = a.TTFT, a.duty(), tokens
	if r.TTFT.PrefillRate <= 0 {
		r.TTFT = selection.DefaultTTFT()
	}
	worth := func(depth int) float64 {
		if hot <= depth {
			hot = depth
			if r.TTFT.Eta > 0 && r.Duty != selection.Generate {
				hot = x.Hot(now, &w.query, depth, r.TTFT.Replicas)
			}
		}
		return r.TTFT.Work(tokens, a.covered(depth, tokens), a.covered(hot, tokens))
	}
	w.work = w.work[:0]
	none := worth(0)
	for i := range r.Frames {
		w.work = append(w.work, worth(r.Frames[i].Depth))
	}
	w.work = append(w.work, none)
	r.Work = w.work
}

package enginesim

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
)

// embeddings serves /v1/embeddings: the vectors are a pure function of the seed and
// the tokens, of length one.
func (e *Engine) embeddings(w http.ResponseWriter, r *http.Request, set Settings) {
	body, ok := readBody(w, r, writeError)
	if !ok {
		return
	}
	rd := &reader{body: body}
	a := rd.common(&set)
	a.embed, a.transfer, a.stream = true, node{}, false
	if body.get("input").absent() {
		rd.fail("input", "input: Field required")
	}
	a.prompts = rd.promptForms("input", tokenizer{*set.MaxTokenBytes})
	dims := rd.integer("dimensions", 1, set.EmbeddingDimensions)
	format := rd.text("encoding_format")
	if format != "" && format != "float" && format != "base64" {
		rd.fail("encoding_format", "encoding_format: Input should be 'float' or 'base64'")
	}
	if dims > 1<<16 {
		rd.fail("dimensions", "dimensions must be at most %d, got %d.", 1<<16, dims)
	}
	if rd.err != nil {
		writeError(w, rd.err)
		return
	}
	j, refusal := e.newJob(r.Context(), set, a, r)
	if refusal != nil {
		writeError(w, refusal)
		return
	}
	e.accepted(r.URL.Path)
	if j.run(r.Context(), nil) != nil {
		return
	}
	type item struct {
		Index     int    `json:"index"`
		Object    string `json:"object"`
		Embedding any    `json:"embedding"`
	}
	items := make([]item, len(j.seqs))
	for i, s := range j.seqs {
		v := embed(&set, s.prompt, dims)
		items[i] = item{Index: i, Object: "embedding", Embedding: v}
		if format == "base64" {
			b := make([]byte, 0, 4*len(v))
			for _, x := range v {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			items[i].Embedding = base64.StdEncoding.EncodeToString(b)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"id": "embd-" + j.id, "object": "list", "created": j.created, "model": a.model,
		"data": items, "usage": j.usage(),
	})
}

func embed(set *Settings, prompt []uint32, dims int) []float32 {
	sc := newScript(set, prompt, &sampling{}, 0, 1)
	v := make([]float64, dims)
	var norm float64
	for i := range v {
		v[i] = float64(mix(sc.root+uint64(i))>>11)/(1<<52) - 1
		norm += v[i] * v[i]
	}
	out := make([]float32, dims)
	for i := range v {
		out[i] = float32(v[i] / math.Sqrt(norm))
	}
	return out
}

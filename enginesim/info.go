package enginesim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// models serves /v1/models.
func (e *Engine) models(w http.ResponseWriter, set Settings) {
	names := set.Models
	if len(names) == 0 {
		names = []string{set.defaultModel()}
	}
	data := make([]any, len(names))
	for i, name := range names {
		data[i] = map[string]any{
			"id": name, "object": "model", "created": e.clock.Now().Unix(), "owned_by": "vllm",
			"root": name, "parent": nil, "max_model_len": set.MaxModelLen,
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

// tokenize serves vLLM's /tokenize, in its completion form and its chat form.
func (e *Engine) tokenize(w http.ResponseWriter, r *http.Request, set Settings) {
	body, ok := readBody(w, r, writeError)
	if !ok {
		return
	}
	rd := &reader{body: body}
	t := tokenizer{*set.MaxTokenBytes}
	ids, texts := []uint32{}, []string{}
	add := func(token string) {
		ids = append(ids, tokenID(token))
		texts = append(texts, token)
	}
	if !body.get("messages").absent() {
		if c := rd.chat(); rd.err == nil {
			c.each(t, add)
		}
	} else if p := body.get("prompt"); p.isString() {
		t.each(p.str(), add)
	} else {
		rd.fail("prompt", "prompt: Input should be a valid string")
	}
	if m := rd.text("model"); m != "" && len(set.Models) > 0 && !slices.Contains(set.Models, m) {
		rd.err = &apiError{http.StatusNotFound, "model", fmt.Sprintf("The model `%s` does not exist.", m)}
	}
	if rd.err != nil {
		writeError(w, rd.err)
		return
	}
	answer := map[string]any{"count": len(ids), "max_model_len": set.MaxModelLen, "tokens": ids, "token_strs": nil}
	if rd.boolean(body, "return_token_strs") {
		answer["token_strs"] = texts
	}
	writeJSON(w, http.StatusOK, answer)
}

// metrics serves Prometheus text under vLLM's names.
func (e *Engine) metrics(w http.ResponseWriter) {
	s, set := e.Stats(), e.Settings()
	labels := fmt.Sprintf(`engine="0",model_name="%s"`, labelEscaper.Replace(set.defaultModel()))
	var b strings.Builder
	one := func(name, kind, help, more string, v any) {
		if help != "" {
			fmt.Fprintf(&b, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", name, help, name, kind)
		}
		fmt.Fprintf(&b, "vllm:%s{%s%s} %v\n", name, labels, more, v)
	}
	one("num_requests_running", "gauge", "Number of requests in model execution batches.", "", s.Running)
	one("num_requests_waiting", "gauge", "Number of requests waiting to be processed.", "", s.Waiting)
	one("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", "", float64(s.BlocksPinned)/float64(s.Blocks))
	one("prefix_cache_queries_total", "counter", "Prefix cache queries, in terms of number of queried tokens.", "", s.PrefixQueries)
	one("prefix_cache_hits_total", "counter", "Prefix cache hits, in terms of number of cached tokens.", "", s.PrefixHits)
	one("external_prefix_cache_hits_total", "counter", "Tokens loaded from other engines.", "", s.TransferredTokens)
	one("prompt_tokens_total", "counter", "Number of prefill tokens processed.", "", s.PromptTokens)
	one("generation_tokens_total", "counter", "Number of generation tokens processed.", "", s.GenerationTokens)
	one("num_preemptions_total", "counter", "Cumulative number of preemption from the engine.", "", s.Preemptions)
	help := "Count of successfully processed requests."
	for _, reason := range []string{"stop", "length", "abort"} {
		n := s.Finished[reason]
		if reason == "stop" {
			n += s.Finished["tool_calls"]
		}
		one("request_success_total", "counter", help, fmt.Sprintf(`,finished_reason="%s"`, reason), n)
		help = ""
	}
	one("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", fmt.Sprintf(
		`,block_size="%d",num_gpu_blocks="%d",enable_prefix_caching="True"`, set.BlockSize, set.NumGPUBlocks), 1)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(b.String())) // fails only if the client has left
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

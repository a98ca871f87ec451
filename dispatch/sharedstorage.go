package dispatch

// sharedStorage is for engines that keep their KV blocks in one store below both
// pods: LMCache, vLLM's ExampleConnector and their like. The prefill leg fills
// the store, the decode pod finds the prompt's blocks there by itself; bodies
// carry nothing but the limit of one token. Nothing has to be given back.
//
// Left out is llm-d's form for it, in which the decode pod is asked first and
// says by cache_hit_threshold that too little is cached.
type sharedStorage struct{ plain }

package scrape

import (
	"errors"
	"strings"
	"testing"
)

func TestCacheTokens(t *testing.T) {
	const vllm = `vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="27000",enable_prefix_caching="True"} 1.0`
	const other = "# HELP vllm:num_requests_running Number.\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} 3.0\n"
	for name, c := range map[string]struct {
		text string
		want int64
	}{
		"vLLM":                  {other + "# TYPE vllm:cache_config_info gauge\n" + vllm + "\n" + other, 432000},
		"without a last line":   {vllm, 432000},
		"two ranks":             {vllm + "\n" + strings.Replace(vllm, `"0"`, `"1"`, 1) + "\n", 864000},
		"SGLang":                {`sglang:cache_config_info{page_size="64",num_pages="100",model_name="a\"b}"} 1` + "\n", 6400},
		"nothing":               {"", 0},
		"others":                {other, 0},
		"not yet laid out":      {strings.Replace(vllm, "27000", "None", 1), 0},
		"a label less":          {`vllm:cache_config_info{block_size="16"} 1`, 0},
		"negative":              {strings.Replace(vllm, "27000", "-1", 1), 0},
		"a name that is longer": {strings.Replace(vllm, "info", "info_more", 1), 0},
	} {
		got, err := CacheTokens(strings.NewReader(c.text))
		if got != c.want || (err == nil) != (c.want > 0) || err != nil && !errors.Is(err, ErrNoCache) {
			t.Errorf("%s: %d, %v, want %d", name, got, err, c.want)
		}
	}
	for name, text := range map[string]string{
		"a broken line": "vllm:cache_config_info{block_size=16} 1\n",
		"a long line":   strings.Repeat("x", 2*maxLine),
	} {
		if got, err := CacheTokens(strings.NewReader(text)); err == nil || errors.Is(err, ErrNoCache) || got != 0 {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}

func FuzzCacheTokens(f *testing.F) {
	f.Add(`vllm:cache_config_info{block_size="16",num_gpu_blocks="27000"} 1`)
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := CacheTokens(strings.NewReader(text)); n < 0 || (n == 0) != (err != nil) {
			t.Errorf("%d, %v", n, err)
		}
	})
}

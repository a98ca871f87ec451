// Package scrape reads from the metrics of engines what a balancer wants to know
// of them: how large the cache is.
package scrape

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ErrNoCache is metrics that do not say how large the cache is.
var ErrNoCache = errors.New("no metric cache_config_info with the number and the size of the cache's blocks")

// infos are the metrics that say it, by labels: one sample for each engine that
// runs behind the port (data parallel ranks).
var infos = []struct{ name, blocks, size string }{
	{"vllm:cache_config_info", "num_gpu_blocks", "block_size"},
	{"sglang:cache_config_info", "num_pages", "page_size"},
}

// maxLine bounds a line of metrics; longer ones are an error.
const maxLine = 1 << 20

// CacheTokens returns how many tokens the cache of an engine holds, that of all
// engines behind its port together, from metrics in Prometheus's text format. Of
// these only the few lines are parsed that say so.
func CacheTokens(text io.Reader) (int64, error) {
	lines := bufio.NewScanner(text)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	total := 0.0
	for lines.Scan() {
		for _, info := range infos {
			if !bytes.HasPrefix(lines.Bytes(), []byte(info.name)) {
				continue
			}
			parser := expfmt.NewTextParser(model.LegacyValidation)
			families, err := parser.TextToMetricFamilies(strings.NewReader(lines.Text() + "\n"))
			if err != nil {
				return 0, fmt.Errorf("metric %s: %w", info.name, err)
			}
			for _, m := range families[info.name].GetMetric() {
				total += number(m, info.blocks) * number(m, info.size)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	if total < 1 || total > math.MaxInt64/2 {
		return 0, ErrNoCache
	}
	return int64(total), nil
}

// number returns a label's value, 0 if it is none: an engine that has not yet
// laid out its cache says None.
func number(m *dto.Metric, label string) float64 {
	for _, l := range m.GetLabel() {
		if l.GetName() == label {
			if n, err := strconv.ParseUint(l.GetValue(), 10, 32); err == nil {
				return float64(n)
			}
		}
	}
	return 0
}

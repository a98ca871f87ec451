package replay

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// mooncakeTokens is the size of a block in Mooncake's traces.
const mooncakeTokens = 512

// maxLine bounds a line of a trace, and maxTokens a prompt or an answer.
const (
	maxLine   = 16 << 20
	maxTokens = 1 << 26
)

// mooncakeLine is a line of a trace.
type mooncakeLine struct {
	Timestamp float64 `json:"timestamp"`
	Input     int     `json:"input_length"`
	Output    int     `json:"output_length"`
	IDs       []int64 `json:"hash_ids"`
}

// logLine is one of an access log, in which the former is a field, or of another
// log.
type logLine struct {
	mooncakeLine
	Message *string       `json:"msg"`
	Trace   *mooncakeLine `json:"calinix_trace"`
}

// errNoTrace is a log that was not written to be a trace.
var errNoTrace = errors.New("no line of the log has the field calinix_trace: set log_trace in the balancer's configuration, and log requests as JSON")

// ReadMooncake reads a trace in the format of Mooncake: a JSON object a line,
//
//	{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48]}
//
// or a log of Caddy's in which the lines of requests have that object as the field
// calinix_trace; the other lines are left out. The timestamp is in ms, lengths are
// in tokens, and there is one id for each block of 512 tokens of the prompt, where
// equal ids are equal prefixes. Timestamps that were rounded to a second or more, as
// some recorders do, are spread over that time, by the seed.
func ReadMooncake(src io.Reader, seed uint64) (*Trace, error) {
	t := &Trace{BlockTokens: mooncakeTokens}
	number := map[int64]int32{} // ids may be of any size
	skipped := false
	lines := bufio.NewScanner(src)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var l logLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if l.Trace != nil {
			l.mooncakeLine = *l.Trace
		} else if l.Message != nil && l.IDs == nil {
			skipped = true // of somebody else, or of a request without a prompt
			continue
		}
		switch {
		case len(l.IDs) == 0:
			return nil, fmt.Errorf("line %d: no hash_ids, want one id for each block of the prompt", n)
		case l.Input < 1 || l.Input > maxTokens:
			return nil, fmt.Errorf("line %d: input_length %d, want 1 to %d", n, l.Input, maxTokens)
		case l.Output < 0 || l.Output > maxTokens:
			return nil, fmt.Errorf("line %d: output_length %d, want 0 to %d", n, l.Output, maxTokens)
		case l.Timestamp < 0:
			return nil, fmt.Errorf("line %d: timestamp %v, want 0 or more", n, l.Timestamp)
		}
		r := Request{At: l.Timestamp, Input: l.Input, Output: max(1, l.Output), Blocks: make([]int32, len(l.IDs))}
		for i, id := range l.IDs {
			b, ok := number[id]
			if !ok {
				b = int32(len(number))
				number[id] = b
			}
			r.Blocks[i] = b
		}
		t.Requests = append(t.Requests, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the trace: %w", err)
	}
	if len(t.Requests) == 0 && skipped {
		return nil, errNoTrace
	}
	if len(t.Requests) == 0 {
		return nil, fmt.Errorf("the trace is empty, want a JSON object a line")
	}
	t.sort()
	for i, first := 0, t.Requests[0].At; i < len(t.Requests); i++ {
		t.Requests[i].At -= first
	}
	t.spread(seed)
	t.sort()
	t.finish()
	return t, nil
}

// sort orders the requests by their times, equals as they are.
func (t *Trace) sort() {
	slices.SortStableFunc(t.Requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
}

// coarse is the least distance in ms between timestamps that are taken for
// rounded if several requests share each of them.
const coarse = 1000

// spread takes the coarseness out of timestamps: requests with the same one come
// at times drawn within the usual distance to the next.
func (t *Trace) spread(seed uint64) {
	var gaps []float64
	for i := 1; i < len(t.Requests); i++ {
		if gap := t.Requests[i].At - t.Requests[i-1].At; gap > 0 {
			gaps = append(gaps, gap)
		}
	}
	slices.Sort(gaps)
	if len(gaps) == 0 || 2*len(gaps) > len(t.Requests) || gaps[len(gaps)/2] < coarse {
		return
	}
	step := gaps[len(gaps)/2]
	r := random{seed}
	for i := 0; i < len(t.Requests); {
		j := i
		for ; j < len(t.Requests) && t.Requests[j].At == t.Requests[i].At; j++ {
		}
		late := make([]float64, j-i)
		for k := range late {
			late[k] = r.share() * step
		}
		slices.Sort(late)
		for k := range late {
			t.Requests[i+k].At += late[k]
		}
		i = j
	}
}

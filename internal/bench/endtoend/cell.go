package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// cell is one set-up of the load.
type cell struct {
	bytes       int // of a request's body
	concurrency int // requests at one time
}

func (c cell) String() string {
	return strings.ReplaceAll(humanize.IBytes(uint64(c.bytes)), " ", "") + "@" + strconv.Itoa(c.concurrency)
}

// parseCells reads cells such as 8KiB@32, separated by commas.
func parseCells(s string) ([]cell, error) {
	var cells []cell
	for _, part := range strings.Split(s, ",") {
		size, at, ok := strings.Cut(strings.TrimSpace(part), "@")
		bytes, err := humanize.ParseBytes(size)
		concurrency, err2 := strconv.Atoi(at)
		if !ok || err != nil || err2 != nil || bytes < 512 || bytes > 8<<20 || concurrency < 1 || concurrency > 4096 {
			return nil, fmt.Errorf("cell %q: want a body size of 512 B to 8 MiB and a concurrency, such as 8KiB@32", part)
		}
		cells = append(cells, cell{int(bytes), concurrency})
	}
	return cells, nil
}

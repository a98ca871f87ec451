//go:build !linux

package main

import (
	"errors"
	"time"
)

func (c *caddy) cpu() (time.Duration, error) {
	return 0, errors.New("the processor time of a running process can be read on Linux only")
}

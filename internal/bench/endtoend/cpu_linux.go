package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpu is the processor time that the process has used, user and system, to the
// nanosecond (see clock_getcpuclockid(3): the clock of a process is named by its
// id).
func (c *caddy) cpu() (time.Duration, error) {
	const cpuClockSched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^c.cmd.Process.Pid<<3|cpuClockSched), &ts); err != nil {
		return 0, fmt.Errorf("reading the process's clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

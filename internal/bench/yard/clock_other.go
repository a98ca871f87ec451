//go:build !linux

package yard

import "time"

var start = time.Now()

// Without a clock of the process's own, other work on the machine counts too.
func processTime() time.Duration { return time.Since(start) }
func threadTime() time.Duration  { return time.Since(start) }

package yard

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime is how long all threads of the process have been on a core.
func processTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// threadTime is how long the calling thread has been on a core.
func threadTime() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(err) // these clocks are always there
	}
	return time.Duration(t.Nano())
}

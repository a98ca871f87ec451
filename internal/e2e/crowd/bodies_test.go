package crowd

import (
	"fmt"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestLargestBodies: 200 bodies of the largest size at once, with room for twelve.
// As many are taken as there is room for, the others are refused and told to come
// again, and the process does not take much more memory than it is allowed for
// bodies: that much again is what the collector lets lie.
func TestLargestBodies(t *testing.T) {
	const (
		count  = 200
		size   = 4 << 20
		memory = 12 * size
		factor = 3.5
	)
	for _, tc := range []struct {
		kind string
		room int // for how many there is room
	}{{announced, 12}, {chunked, 11}, {legs, 6}} {
		t.Run(tc.kind, func(t *testing.T) {
			singles := fakepod.NewPods(t, fakepod.Options{Keep: 1}, "a")
			prefill := fakepod.NewPods(t, fakepod.Options{Keep: 1}, "p")
			decode := fakepod.NewPods(t, fakepod.Options{Keep: 1}, "d")
			p := start(t, fmt.Sprintf("body_memory_bytes %d\nmax_body_bytes %d\nsingle {\n%s}\ndispatch {\nconnector plain\nprefill {\n%s}\ndecode {\n%s}\n}\n",
				memory, size, list(singles, ""), list(prefill, ""), list(decode, "")))
			p.servesOthers(t, 1000)
			before := p.settled(t)
			hold := make(chan struct{})
			first := singles[0]
			if tc.kind == legs {
				first = prefill[0]
			}
			first.Set(fakepod.Reply{Hold: hold})
			c := gather(t, tc.kind, p.address, count, size)
			// all but those that are held have been answered
			var taken int
			p.wait(t, "every body to be held or refused", func(m testcaddy.Metrics) bool {
				taken = int(m.Sum("calinix_pod_inflight", "pod", first.Name))
				return taken+int(m.Sum("calinix_requests_total", "code", "503", "pod", "")) == count
			})
			close(hold)
			c.ready(t)
			grown := p.PeakMemory() - before
			t.Logf("%d taken, %d refused, peak growth %d MiB, %.1f times the memory for bodies", taken, c.refused, grown>>20, float64(grown)/memory)
			if taken > tc.room || taken < tc.room/2 {
				t.Errorf("%d bodies are taken, there is room for %d", taken, tc.room)
			}
			if c.errors > 0 || c.served != taken || c.refused != count-taken {
				t.Errorf("%d are served, %d refused, %d fail", c.served, c.refused, c.errors)
			}
			if float64(grown) > factor*memory {
				t.Errorf("the process grew by %d bytes, more than %v times what bodies may take", grown, factor)
			}
			p.await(t, 0, "calinix_body_bytes")
			p.servesOthers(t, size)
		})
	}
}

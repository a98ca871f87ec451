package calinix_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// BenchmarkExtraHop is what the prefill leg costs a request beside the engines' own
// time: the same request in single mode and through both legs, to pods that answer
// at once, one after the other in turn. It reports the lowest decile of each.
func BenchmarkExtraHop(b *testing.B) {
	for _, tokens := range []int{100, 8000} {
		for _, connector := range []string{"nixl", "sglang"} {
			b.Run(fmt.Sprintf("%s/%d", connector, tokens), func(b *testing.B) {
				ps, pre, dec := fakepod.NewPods(b, fakepod.Options{}, "s1"), fakepod.NewPods(b, fakepod.Options{}, "p1"), fakepod.NewPods(b, fakepod.Options{}, "d1")
				s := serve(b, single(ps)+dispatch(pre, dec, "connector "+connector), testcaddy.Plain(), testcaddy.LogLevel("ERROR"))
				cl := s.Client(b, testcaddy.H1)
				body := chat(words("hop", tokens/2))
				took := map[string][]time.Duration{}
				for b.Loop() {
					for _, mode := range []string{"single", "dispatch"} {
						begun := time.Now()
						if a := cl.Post(b, chatPath, body, "x-calinix-mode", mode); a.Status != 200 {
							b.Fatal(a)
						}
						took[mode] = append(took[mode], time.Since(begun))
					}
				}
				for mode, all := range took {
					slices.Sort(all)
					b.ReportMetric(float64(all[len(all)/10].Microseconds()), mode+"-p10-us")
				}
			})
		}
	}
}

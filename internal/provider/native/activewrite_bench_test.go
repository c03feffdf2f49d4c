package native

import (
	"fmt"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// BenchmarkActiveWrite dispatches a batch of 4 KiB files over the ones of before,
// and says besides how long the workload stood still for it.
func BenchmarkActiveWrite(b *testing.B) {
	for _, driver := range []string{"runsc", "runc"} {
		for _, files := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", driver, files), func(b *testing.B) {
				p := newProvider(b, driver)
				id := activated(b, p, writeMounts()...)
				var paused time.Time
				var still time.Duration
				p.opt.Step = func(step string) {
					switch step {
					case "write: paused":
						paused = time.Now()
					case "write: resumed":
						still += time.Since(paused)
					}
				}
				targets := make([]string, files)
				for n := range targets {
					targets[n] = fmt.Sprint(rw, "/d", n/100, "/f", n)
				}
				body := make([]byte, 4096)
				for b.Loop() {
					b.StopTimer()
					w, err := p.BeginActiveWrite(b.Context(), id, targets)
					for _, path := range targets {
						if err == nil {
							err = w.Stage(b.Context(), sandbox.FileWrite{Path: path, Content: body})
						}
					}
					b.StartTimer()
					if err == nil {
						err = w.Dispatch(b.Context(), func() {})
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(still.Microseconds())/1000/float64(b.N), "ms-paused/op")
			})
		}
	}
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/checkfu/checkfu/conformance"
	conformant "github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suite/oracle"
)

// conformanceRuns times the suite itself on the memory oracle, as a person
// runs it: two passes.
func conformanceRuns(ctx context.Context, w *world) error {
	for _, c := range []struct {
		what   string
		suites []conformant.Suite
		bound  float64
	}{
		{"the nine conformance cases on memory, two passes", []conformant.Suite{conformant.Nine}, 2000},
		{"every suite on memory, 1 GiB through one process", conformant.Suites(), 0},
	} {
		var took samples
		for i := range w.n {
			target, _ := oracle.New(fmt.Sprint("bench", i))
			began := time.Now()
			rep := conformance.Run(ctx, target, conformance.Options{Suites: c.suites})
			took = append(took, float64(time.Since(began))/float64(time.Millisecond))
			if rep.ExitCode != conformant.ExitConformant && c.bound > 0 {
				return fmt.Errorf("%s: %s", rep.Verdict, rep.Reason)
			}
			if c.bound == 0 && i == 2 {
				break
			}
		}
		w.rep.add(line{what: c.what, unit: "ms", ours: took, bound: c.bound})
	}
	return nil
}

package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/suitecheck"
)

// suiteCheckDocument is suite-check --json.
type suiteCheckDocument struct {
	Schema    string   `json:"schema"`
	Saboteurs int64    `json:"saboteurs"`
	Killed    int64    `json:"killed"`
	Checks    int64    `json:"checks"`
	Needed    int64    `json:"needed"`
	Benign    int64    `json:"benign"`
	Baselines int64    `json:"baselines"`
	Pending   int64    `json:"pending"`
	Faults    []string `json:"faults"`
	SameAs    bool     `json:"same_as_published"`
	Ms        int64    `json:"ms"`
}

func (a *app) suiteCheckCommand() *cobra.Command {
	asJSON, list, workers := false, false, ""
	cmd := &cobra.Command{
		Use: "suite-check", Short: "Test the suite itself: every wrong provider must be caught", Args: noArguments,
		Long: `Run every saboteur (a provider that is wrong in exactly one way) and want it
killed by the check that it names; switch every check off, one at a time, and
want a saboteur to live; and run providers that are odd but right, and some
that do not even try. Ends with 0 if all of that holds and the result is what
this program publishes in its evidence, else with 1.`,
		Example: "  checkfu sandbox suite-check\n  checkfu sandbox suite-check --list > matrix",
		RunE: func(cmd *cobra.Command, _ []string) error {
			const most = 64
			n, err := argument.Count("--workers", workers)
			if err != nil || n > most {
				return argument.Unexpected("--workers", "a whole number from 1 to 64", workers)
			}
			if asJSON && list {
				return argument.Wrong("--list: expected no --json beside it")
			}
			bar := a.progress(asJSON)
			m := suitecheck.Check(cmd.Context(), suitecheck.Options{Workers: int(n), Progress: func(done, total int) {
				bar.show("checking the suite", int64(done), int64(total), false)
			}})
			bar.end()
			doc := describe(&m)
			if len(doc.Faults) > 0 || !doc.SameAs {
				a.code = report.ExitFail
			}
			switch {
			case asJSON:
				return a.printJSON(doc)
			case list:
				_, err := fmt.Fprint(a.stdout, m.Golden())
				return err
			}
			return a.printSuiteCheck(doc, &m)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print canonical JSON")
	cmd.Flags().BoolVar(&list, "list", false, "print the whole matrix, a line for each saboteur and each check")
	cmd.Flags().StringVar(&workers, "workers", "2", "how many run at once")
	return cmd
}

func describe(m *suitecheck.Matrix) suiteCheckDocument {
	doc := suiteCheckDocument{
		Schema: "checkfu.sandbox-suite-check.v1", Saboteurs: int64(len(m.Saboteurs)), Checks: int64(len(m.Reverse)),
		Benign: int64(len(m.Benign)), Baselines: int64(len(m.Baselines)), Pending: int64(len(m.Pending)),
		Faults: m.Faults(), SameAs: m.Agrees(conformance.MatrixText()), Ms: m.Took.Milliseconds(),
	}
	for _, r := range m.Saboteurs {
		if r.Outcome == suitecheck.Killed {
			doc.Killed++
		}
	}
	for _, s := range m.Reverse {
		if s.Needed != "" {
			doc.Needed++
		}
	}
	return doc
}

func (a *app) printSuiteCheck(doc suiteCheckDocument, m *suitecheck.Matrix) error {
	outcomes := map[suitecheck.Outcome]int{}
	for _, r := range m.Saboteurs {
		outcomes[r.Outcome]++
	}
	survivors := outcomes[suitecheck.Survived] + outcomes[suitecheck.Elsewhere] + outcomes[suitecheck.Broken]
	green, refused := 0, 0
	for _, r := range m.Benign {
		if r.Outcome == suitecheck.Survived {
			green++
		}
	}
	for _, r := range m.Baselines {
		if r.Exit != report.ExitConformant {
			refused++
		}
	}
	for _, fault := range doc.Faults {
		fmt.Fprintln(a.stdout, fault)
	}
	fmt.Fprintf(a.stdout, "saboteurs  %d, killed by the check they name %d, not so %d, inert %d\n", doc.Saboteurs, doc.Killed, survivors, outcomes[suitecheck.Inert])
	fmt.Fprintf(a.stdout, "checks     %d, each needed by a saboteur %d\n", doc.Checks, doc.Needed)
	fmt.Fprintf(a.stdout, "benign     %d, %d stay green; baselines %d, %d do not reach exit 0\n", doc.Benign, green, doc.Baselines, refused)
	fmt.Fprintf(a.stdout, "pending    %d faults wait for their member:\n", doc.Pending)
	for _, p := range m.Pending {
		fmt.Fprintf(a.stdout, "  %-4s %s: %s\n", p.ID, p.Fault, p.Reason)
	}
	if !doc.SameAs {
		fmt.Fprintln(a.stdout, "the matrix differs from the one that this program publishes")
	}
	_, err := fmt.Fprintf(a.stdout, "took %v\n", m.Took.Round(100*time.Millisecond))
	return err
}

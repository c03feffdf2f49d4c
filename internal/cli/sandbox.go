package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/cli/argument"
)

// sandboxCommand is what a provider engineer works with.
func (a *app) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sandbox", Short: "Test a sandbox provider against the contract",
		Long: `For who brings a sandbox of their own: what it really does, in minutes, alone.
See also: checkfu help conformance`,
		Example: `  checkfu sandbox init acme --lang python --name acme
  checkfu sandbox test builtin:memory
  checkfu sandbox test builtin:native --suite all --out evidence
  checkfu sandbox report evidence
  checkfu sandbox suite-check`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return argument.Unexpected("sandbox", "one of init, test, report, suite-check", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.initCommand(), a.conformanceCommand(), a.reportCommand(), a.suiteCheckCommand())
	return cmd
}

// ConformanceExitCodes is the text of "checkfu help conformance".
const ConformanceExitCodes = `checkfu sandbox test ends with

  0  conformant: all passed, or was skipped for what the envelope does not
     claim; with --expect-fail, also if every failure is on that list (the
     verdict stays "nonconformant")
  1  a case failed, the envelope claims what is not served, or an entry of
     --expect-fail is stale: it passes now, or its date is past
  2  the command line is wrong; nothing ran
  3  incomplete: a token withheld, a case blocked or filtered, nothing applied
  4  not judged: a live control did not fire, the target is not there or hung,
     or what was found could not be written
  5  something of this run was left behind
  6  (checkfu sandbox report) the evidence is not valid

Of several the first of 2, 4, 5, 1, 3 is taken. A run that is interrupted tears
down what it made and ends with 3. checkfu sandbox suite-check ends with 0 or 1.

A status of a case is one of
  pass       it holds
  fail       it does not
  overclaim  the envelope advertises it and it is not served
  skip       the target does not have what the case needs: its envelope does not
             claim it, or it is not reached over a wire
  withheld   the envelope claims it and --withhold hides it
  blocked    it was not reached
  error      it could not be judged
`

func conformanceTopic() *cobra.Command {
	return &cobra.Command{Use: "conformance", Short: "Statuses and exit codes of checkfu sandbox test", Long: ConformanceExitCodes}
}

// reportCommand reads what a run has written.
func (a *app) reportCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "report DIR", Short: "Check the evidence of a run and show it", Args: oneArgument("DIR"),
		Long: `Read what "checkfu sandbox test --out DIR" has written: that it is well formed,
that verdict and exit code follow from its rows, and that the transcript is the
one it names, line by line. Ends with 6 if not, else with the exit code of the
run. The evidence is not signed: it is as good as who hands it over.`,
		Example: "  checkfu sandbox report evidence",
		RunE: func(_ *cobra.Command, args []string) error {
			rep, err := report.ReadDir(args[0])
			if errors.As(err, new(*report.InvalidError)) {
				a.complain(err)
				a.code = report.ExitEvidence
				return nil
			}
			if err != nil {
				return argument.Wrong("DIR: expected a directory that checkfu sandbox test --out has written, got %q (%v)", args[0], err)
			}
			a.code = int(rep.ExitCode)
			return a.showReport(rep, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the evidence as canonical JSON")
	return cmd
}

// showReport prints a report for a person, or for a program.
func (a *app) showReport(rep report.Report, asJSON bool) error {
	if asJSON {
		data, err := report.Encode(rep)
		if err != nil {
			return err
		}
		return a.print(append(data, '\n'))
	}
	var text bytes.Buffer
	if err := report.Table(&text, rep, a.colors()); err != nil {
		return err
	}
	return a.print(text.Bytes())
}

// print writes to standard output. Who stops reading has seen enough.
func (a *app) print(data []byte) error {
	_, err := a.stdout.Write(data)
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// colors reports whether standard output is a terminal that wants them.
func (a *app) colors() bool {
	file, ok := a.stdout.(*os.File)
	_, unwanted := os.LookupEnv("NO_COLOR")
	return ok && !unwanted && term.IsTerminal(int(file.Fd()))
}

// explain says what a case or a check is; a pattern lists what it matches.
func (a *app) explain(id string) error {
	row, ok := conformance.Explain(id)
	if !ok {
		return a.list(id)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%s)\n  %s\n  clause %s, %s, from %s\n", row.ID, row.Suite, row.Title, row.Clause, row.Level, row.Source)
	if len(row.Requires) > 0 {
		tokens := make([]string, len(row.Requires))
		for i, k := range row.Requires {
			tokens[i] = string(k)
		}
		fmt.Fprintf(&text, "  needs %s\n", strings.Join(tokens, ", "))
	}
	for line := range strings.Lines(conformance.MatrixText()) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if fields[0] == "saboteur" && len(fields) == 5 && (fields[3] == id || strings.HasPrefix(fields[3], id+"/")) {
			fmt.Fprintf(&text, "  catches %s: %s\n", fields[1], fields[2])
		}
	}
	return a.print([]byte(text.String()))
}

// list names everything that a pattern matches.
func (a *app) list(pattern string) error {
	var text strings.Builder
	for _, row := range conformance.List() {
		if ok, _ := path.Match(pattern, row.ID); ok {
			fmt.Fprintf(&text, "%-28s %-9s %s\n", row.ID, row.Suite, row.Title)
		}
	}
	if text.Len() == 0 {
		return argument.Unexpected("--explain", "the id of a case, a probe or a standing check, or a pattern ('*' lists all)", pattern)
	}
	return a.print([]byte(text.String()))
}

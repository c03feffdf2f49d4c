package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/cli/argument"
)

// conformanceFlags are what a person says about a run.
type conformanceFlags struct {
	suites     []string
	run        []string
	withhold   []string
	plan       bool
	expectFail string
	seed       string
	repeat     int
	budget     string
	patience   string
	stream     string
	out        string
	junit      string
	asJSON     bool
	explain    string
	census     string
	image      string
	runner     bool
}

func (a *app) conformanceCommand() *cobra.Command {
	f := &conformanceFlags{}
	cmd := &cobra.Command{
		Use: "test TARGET", Short: "Run the nine cases and deeper suites against a provider",
		Long: `Test a provider: builtin:memory, builtin:native (builtin:native:runsc) or
builtin:native:runc.

The nine cases that define a conforming provider always have their rows. What a
case needs follows from the envelope that the provider advertises; a case that
needs something else is skipped by name. Every answer of every call is checked
besides. Ids, names and contents are random, the order is shuffled, and all of
it runs twice under different Sessions. Only what the run itself allocated is
destroyed.

The evidence is diagnostic: a run that you make yourself raises no grade.
Exit codes: checkfu help conformance`,
		Example: `  checkfu sandbox test builtin:memory --suite all
  checkfu sandbox test builtin:native --plan
  checkfu sandbox test builtin:native --run 'execute.*' --seed 7f3a
  checkfu sandbox test builtin:native --suite all --out evidence --expect-fail known.txt
  checkfu sandbox test --explain none-egress`,
		Args: func(_ *cobra.Command, args []string) error {
			if f.explain != "" && len(args) == 0 {
				return nil
			}
			return oneArgument("TARGET")(nil, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.explain != "" {
				return a.explain(f.explain)
			}
			return a.testProvider(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.suites, "suite", []string{"nine", "contract"}, "suites to run: nine, contract, faults, process, files, egress, all")
	flags.StringSliceVar(&f.run, "run", nil, "run only what matches these ids or patterns (the run is then incomplete)")
	flags.StringSliceVar(&f.withhold, "withhold", nil, "tokens to hide although the envelope gives them")
	flags.BoolVar(&f.plan, "plan", false, "say what would run and what would be skipped; allocates nothing")
	flags.StringVar(&f.expectFail, "expect-fail", "", "file of known failures, a line each: ID LINK YYYY-MM-DD")
	flags.StringVar(&f.seed, "seed", "", "draw the same ids, names and order as the run that printed it")
	flags.IntVar(&f.repeat, "repeat", 2, "passes over everything, each in another order and Session")
	flags.StringVar(&f.budget, "budget", "15m", "longest time for the whole run; what is left is blocked")
	flags.StringVar(&f.patience, "patience", "1m", "longest wait for one answer")
	flags.StringVar(&f.stream, "stream", "1GiB", "how much the process suite sends through one process")
	flags.StringVar(&f.out, "out", "", "directory for evidence.json, transcript.ndjson, junit.xml and report.md")
	flags.StringVar(&f.junit, "junit", "", "file for the JUnit report alone")
	flags.BoolVar(&f.asJSON, "json", false, "print the evidence as canonical JSON")
	flags.StringVar(&f.explain, "explain", "", "say what a case or check proves, from where, and which faults it catches")
	flags.StringVar(&f.census, "census", "", "shell command that lists what the provider has on its host, a line each")
	flags.StringVar(&f.image, "image", "", "image of the machines (default as in checkfu run)")
	flags.BoolVar(&f.runner, "through-runner", false, "put the Runner's own checks between the suite and the provider")
	return cmd
}

// options turns the flags into options of the suite.
// Errors: *argument.Error.
func (f *conformanceFlags) options() (conformance.Options, error) {
	o := conformance.Options{Only: f.run, Seed: f.seed, Passes: f.repeat}
	for _, s := range f.suites {
		if s == "all" {
			o.Suites = report.Suites()
			break
		}
		if !slices.Contains(report.Suites(), report.Suite(s)) {
			return o, argument.Unexpected("--suite", "nine, contract, faults, process, files, egress or all", s)
		}
		o.Suites = append(o.Suites, report.Suite(s))
	}
	for _, k := range f.withhold {
		if !slices.Contains(report.CaseTokens(), report.Token(k)) {
			return o, argument.Unexpected("--withhold", fmt.Sprintf("one of %v", report.CaseTokens()), k)
		}
	}
	if f.repeat < 1 {
		return o, argument.Unexpected("--repeat", "1 to 1000", fmt.Sprint(f.repeat))
	}
	var err error
	if o.Budget, err = argument.Duration("--budget", f.budget); err != nil {
		return o, err
	}
	if o.Patience, err = argument.Duration("--patience", f.patience); err != nil {
		return o, err
	}
	if o.StreamBytes, err = argument.Size("--stream", f.stream); err != nil {
		return o, err
	}
	if err := o.Check(); err != nil {
		return o, argument.Wrong("--%v", err)
	}
	return o, nil
}

func (a *app) testProvider(ctx context.Context, name string, f *conformanceFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	ratchet, err := readRatchet(f.expectFail)
	if err != nil {
		return err
	}
	if f.junit != "" {
		if err := checkSink("--junit", f.junit); err != nil {
			return err
		}
	}
	if f.out != "" {
		if err := checkOutDir(f.out); err != nil {
			return err
		}
		o.Transcript = &report.Transcript{}
	}
	// A run that is interrupted tears down what it made and says how far it
	// came.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	target, closeTarget, err := a.openTarget(ctx, name, f)
	if err != nil {
		return err
	}
	defer closeTarget()
	if f.plan {
		return a.plan(ctx, target, o, f)
	}
	o.Progress = a.conformanceProgress(f.asJSON)
	rep := conformance.Run(ctx, target, o)
	if ratchet != nil {
		ratchet.Apply(&rep, time.Now())
	}
	rep.Suite.BinaryDigest = binaryDigest()
	a.code = int(rep.ExitCode)
	if err := f.write(&rep, o.Transcript); err != nil {
		// The run was made; what it found is shown although it is not kept.
		a.complain(err)
		a.code = report.ExitError
	}
	return a.showReport(rep, f.asJSON)
}

func (f *conformanceFlags) write(rep *report.Report, t *report.Transcript) error {
	if f.junit != "" {
		data, err := report.JUnit(*rep)
		if err != nil {
			return err
		}
		s := &sink{path: f.junit}
		if _, err := s.Write(data); err != nil {
			s.discard()
			return err
		}
		if err := s.commit(); err != nil {
			return err
		}
	}
	if f.out != "" {
		return report.WriteDir(f.out, rep, t)
	}
	return nil
}

// plan prints what would run, from the envelope alone.
func (a *app) plan(ctx context.Context, target conformance.Target, o conformance.Options, f *conformanceFlags) error {
	rows, err := conformance.Plan(ctx, target, o)
	if err != nil {
		a.complain(err)
		a.code = report.ExitError
		return nil
	}
	for i := range rows {
		if rows[i].Status == "" {
			rows[i].Status, rows[i].Reason = report.Pass, ""
		}
	}
	if f.asJSON {
		return a.printJSON(planDocument{Schema: "checkfu.sandbox-plan.v1", Rows: rowsOf(rows)})
	}
	runs, skips := 0, 0
	for _, row := range rows {
		what := "run"
		if row.Status != report.Pass {
			what = string(row.Status)
			skips++
		} else {
			runs++
		}
		if row.Suite == report.Nine || row.Status != report.Pass {
			fmt.Fprintf(a.stdout, "%-28s %-9s %s\n", row.ID, what, row.Reason)
		}
	}
	fmt.Fprintf(a.stdout, "%d would run, %d would not; nothing was allocated\n", runs, skips)
	return nil
}

// planDocument is --plan --json.
type planDocument struct {
	Schema string    `json:"schema"`
	Rows   []planRow `json:"rows"`
}

type planRow struct {
	ID     string       `json:"id"`
	Suite  report.Suite `json:"suite"`
	Plan   string       `json:"plan"` // run, skip or withheld
	Reason string       `json:"reason,omitzero"`
}

func rowsOf(rows []report.Row) []planRow {
	out := []planRow{}
	for _, row := range rows {
		what := "run"
		if row.Status != report.Pass {
			what = string(row.Status)
		}
		out = append(out, planRow{row.ID, row.Suite, what, row.Reason})
	}
	return out
}

// conformanceProgress prints a line for each case as it ends. Of the deeper
// suites only what did not pass is worth one, unless somebody watches.
func (a *app) conformanceProgress(quiet bool) func(report.Row) {
	if quiet {
		return nil
	}
	var mu sync.Mutex
	watched := a.progress(false).to != nil
	return func(row report.Row) {
		if !watched && row.Suite != report.Nine && (row.Status == report.Pass || row.Status == report.Skip) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(a.stderr, report.Progress(row))
	}
}

func readRatchet(path string) (report.Ratchet, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, argument.Unexpected("--expect-fail", "a file that can be read", path)
	}
	defer file.Close()
	list, err := report.ParseRatchet(file)
	if err != nil {
		return nil, argument.Wrong("--expect-fail %s: %v", path, err)
	}
	if list == nil {
		list = report.Ratchet{}
	}
	return list, nil
}

// censusCommand runs a person's own census.
func censusCommand(script string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
		cmd.WaitDelay = time.Second
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		const most = 16 << 20 // a census is a list, not a dump
		data, readErr := io.ReadAll(io.LimitReader(out, most))
		if err := cmd.Wait(); err != nil {
			return nil, fmt.Errorf("the census command: %w", err)
		}
		return strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' }), readErr
	}
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	repeat     string
	budget     string
	patience   string
	stream     string
	out        string
	junit      string
	asJSON     bool
	explain    string
	census     string
	image      string
	listed     string
	unlisted   string
	runner     bool
	tokenFile  string
	pin        string
	cert, key  string
	args       []string // of the program of exec:
}

func (a *app) conformanceCommand() *cobra.Command {
	f := &conformanceFlags{}
	cmd := &cobra.Command{
		Use: "test TARGET [-- ARG...]", Short: "Run the nine cases and deeper suites against a provider",
		Long: `Test a provider. TARGET is one of
  builtin:memory, builtin:native (builtin:native:runsc), builtin:native:runc
  unix:PATH, http://127.0.0.1:PORT     a provider that is served on this machine
  https://HOST[:PORT][/PATH]           one that is served anywhere
  exec:PROGRAM [-- ARG...]             one that is started for the test: it
                                       listens at $CHECKFU_LISTEN (unix:PATH) for
                                       callers with the token in $CHECKFU_TOKEN,
                                       keeps what must outlive it in the
                                       directory $CHECKFU_STATE, and ends at
                                       SIGTERM

The nine cases that define a conforming provider always have their rows. What a
case needs follows from the envelope that the provider advertises; a case that
needs something else is skipped by name. Every answer of every call is checked
besides. Ids, names and contents are random, the order is shuffled, and all of
it, save some costly probes, runs twice under different Sessions. By id only what
the run itself allocated is destroyed. But the contract's cleanup is not scoped,
and the suite calls it: on an account that others use it can sweep their orphans,
their expired machines and their snapshots. Test with an account of its own. A
target of builtin: has a part of the state directory of its own, where no run and
no session is.

The evidence is diagnostic: a run that you make yourself raises no grade.
Exit codes: checkfu help conformance`,
		Example: `  checkfu sandbox test builtin:memory --suite all
  checkfu sandbox test builtin:native --plan
  checkfu sandbox test builtin:native --run 'execute.*' --seed 7f3a
  checkfu sandbox test builtin:native --suite all --out evidence --expect-fail known.txt
  checkfu sandbox test exec:./run --suite all
  checkfu sandbox test https://acme.example/checkfu --token-file token --tls-pin sha256:…
  checkfu sandbox test --explain none-egress`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.explain != "" {
				return explainAlone(cmd, args)
			}
			if len(args) == 0 || len(args) > 1 && !strings.HasPrefix(args[0], "exec:") {
				return argument.Unexpected("TARGET", "exactly one of "+targets, strings.Join(args, " "))
			}
			f.args = args[1:]
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.explain != "" {
				return a.explain(f.explain)
			}
			return a.testProvider(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.suites, "suite", nil, "suites to run, with commas or repeated: nine, contract, faults, process, files, wire, egress, all (default nine,contract)")
	flags.StringArrayVar(&f.run, "run", nil, "run only what matches these ids or patterns (the run is then incomplete)")
	flags.StringArrayVar(&f.withhold, "withhold", nil, "tokens to hide although the envelope gives them")
	flags.BoolVar(&f.plan, "plan", false, "say what would run and what would be skipped; allocates nothing and needs no image")
	flags.StringVar(&f.expectFail, "expect-fail", "", "file of known failures, a line each: ID LINK YYYY-MM-DD")
	flags.StringVar(&f.seed, "seed", "", "draw the same ids, names and order as the run that printed it (1 to 64 letters, digits, - and _)")
	flags.StringVar(&f.repeat, "repeat", "2", "passes over everything, each in another order and Session")
	flags.StringVar(&f.budget, "budget", "15m", "longest time for the whole run; what is left is blocked")
	flags.StringVar(&f.patience, "patience", "1m", "longest wait for one answer")
	flags.StringVar(&f.stream, "stream", "1GiB", "how much the process suite sends through one process")
	flags.StringVar(&f.out, "out", "", "directory for evidence.json, transcript.ndjson, junit.xml and report.md")
	flags.StringVar(&f.junit, "junit", "", "file for the JUnit report alone, - for standard output")
	flags.BoolVar(&f.asJSON, "json", false, "print the evidence as canonical JSON")
	flags.StringVar(&f.explain, "explain", "", "say what a case or check proves, from where, and which faults it catches; a pattern such as 'execute.*' lists")
	flags.StringVar(&f.census, "census", "", "shell command that lists what the provider has on its host, a line each")
	flags.StringVar(&f.image, "image", "", "image of the machines (default as in checkfu run; over a wire the first fixed image of the envelope, else a reference without bytes)")
	flags.BoolVar(&f.runner, "through-runner", false, "put the Runner's own checks between the suite and the provider")
	flags.StringVar(&f.listed, "listed", "", "HOST:PORT that answers, here and to the provider's guard, for allowlist-egress of a provider over a wire; an allowlist will name it")
	flags.StringVar(&f.unlisted, "unlisted", "", "another, of another host, which no allowlist will name")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the bearer token of a unix:, http: or https: target")
	flags.StringVar(&f.pin, "tls-pin", "", "sha256:… of the public key of an https: target; it alone then says who that is")
	flags.StringVar(&f.cert, "client-cert", "", "certificate in PEM with which to call an https: target")
	flags.StringVar(&f.key, "client-key", "", "its private key in PEM")
	return cmd
}

// options turns the flags into options of the suite.
// Errors: *argument.Error.
func (f *conformanceFlags) options() (conformance.Options, error) {
	o := conformance.Options{Seed: f.seed}
	for s := range split(f.suites) {
		if s == "all" {
			o.Suites = report.Suites()
			continue
		}
		if !slices.Contains(report.Suites(), report.Suite(s)) {
			return o, argument.Unexpected("--suite", "nine, contract, faults, process, files, wire, egress or all", s)
		}
		if !slices.Contains(o.Suites, report.Suite(s)) {
			o.Suites = append(o.Suites, report.Suite(s))
		}
	}
	o.Only = slices.Collect(split(f.run))
	tokens := report.CaseTokens()
	for k := range split(f.withhold) {
		if !slices.Contains(tokens, report.Token(k)) {
			words := make([]string, len(tokens))
			for i, t := range tokens {
				words[i] = string(t)
			}
			return o, argument.Unexpected("--withhold", "one of "+strings.Join(words, ", "), k)
		}
	}
	passes, err := argument.Count("--repeat", f.repeat)
	if err != nil {
		return o, err
	}
	o.Passes = int(min(passes, 1<<30)) // Check knows the bound
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
	return o, f.contradictions()
}

// split takes a flag that may be repeated and may hold several words. An empty
// one stays, to be refused: it is an unset variable of somebody.
func split(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, value := range values {
			for word := range strings.SplitSeq(value, ",") {
				if !yield(word) {
					return
				}
			}
		}
	}
}

// contradictions refuses flags that say nothing together.
func (f *conformanceFlags) contradictions() error {
	switch {
	case f.junit == "-" && f.asJSON:
		return argument.Unexpected("--junit", "another place than --json has", f.junit)
	case f.plan && f.out != "":
		return argument.Wrong("--out: expected no --plan beside it, which runs nothing")
	case f.plan && f.junit != "":
		return argument.Wrong("--junit: expected no --plan beside it, which runs nothing")
	case f.plan && f.expectFail != "":
		return argument.Wrong("--expect-fail: expected no --plan beside it, which runs nothing")
	}
	return nil
}

// explainAlone refuses what --explain would not look at.
func explainAlone(cmd *cobra.Command, args []string) (err error) {
	if len(args) > 0 {
		return argument.Unexpected("--explain", "no TARGET beside it", args[0])
	}
	cmd.Flags().Visit(func(other *pflag.Flag) {
		if other.Name != "explain" && other.Name != "state" {
			err = argument.Unexpected("--explain", "no other flag beside it", "--"+other.Name)
		}
	})
	return err
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
	if f.junit != "" && f.junit != "-" {
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
	w := a.watch(f.asJSON)
	defer w.end()
	ctx, stop := interruptible(ctx, w.note)
	defer stop()
	target, closeTarget, err := a.openTarget(ctx, name, f)
	if err != nil && ctx.Err() != nil {
		a.complain(context.Cause(ctx)) // before anything was made
		a.code = report.ExitIncomplete
		return nil
	}
	if err != nil {
		return a.unjudged(err)
	}
	defer closeTarget()
	if f.plan {
		return a.plan(ctx, target, o, f)
	}
	if f.out != "" {
		// Better now than after the work.
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return argument.Wrong("--out: expected a directory that can be written, or made, got %q (%v)", f.out, err)
		}
	}
	o.Started, o.Progress = w.started, w.row
	rep := conformance.Run(ctx, target, o)
	w.end()
	if ratchet != nil {
		ratchet.Apply(&rep, time.Now())
	}
	rep.Suite.BinaryDigest = binaryDigest()
	a.code = int(rep.ExitCode)
	// What was found is shown also where it could not be kept.
	kept := f.write(&rep, o.Transcript)
	shown := a.showRun(rep, f)
	if err := errors.Join(kept, shown); err != nil {
		a.complain(fmt.Errorf("%w; the run itself ended with exit code %d", err, rep.ExitCode))
		a.code = report.ExitError
	}
	return nil
}

// unjudged is an error that keeps a target from being judged: a mistake of who
// typed stays one, everything else is the exit code for a target that is not
// there.
func (a *app) unjudged(err error) error {
	if _, mistake := errors.AsType[*argument.Error](err); mistake {
		return err
	}
	a.complain(err)
	a.code = report.ExitError
	return nil
}

// write writes the files that were asked for.
func (f *conformanceFlags) write(rep *report.Report, t *report.Transcript) error {
	if f.out != "" {
		if err := report.WriteDir(f.out, rep, t); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	if f.junit == "" || f.junit == "-" {
		return nil
	}
	data, err := report.JUnit(*rep)
	if err != nil {
		return err
	}
	s := &sink{path: f.junit}
	defer s.discard()
	if _, err = s.Write(data); err == nil {
		err = s.commit()
	}
	if err != nil {
		return fmt.Errorf("--junit: %w", err)
	}
	return nil
}

// showRun prints what a run found; a JUnit report on standard output has that
// for itself.
func (a *app) showRun(rep report.Report, f *conformanceFlags) error {
	if f.junit != "-" {
		return a.showReport(rep, f.asJSON)
	}
	data, err := report.JUnit(rep)
	if err != nil {
		return err
	}
	return errors.Join(a.print(data), report.Table(a.stderr, rep, false))
}

// plan prints what would run, from the envelope alone.
func (a *app) plan(ctx context.Context, target conformance.Target, o conformance.Options, f *conformanceFlags) error {
	rows, err := conformance.Plan(ctx, target, o)
	if err != nil {
		return a.unjudged(err)
	}
	doc := planDocument{Schema: "checkfu.sandbox-plan.v1", Rows: []planRow{}}
	counts := map[string]int{}
	for _, row := range rows {
		p := planRow{row.ID, row.Suite, cmp.Or(string(row.Status), "run"), row.Reason}
		counts[p.Plan]++
		doc.Rows = append(doc.Rows, p)
	}
	if f.asJSON {
		return a.printJSON(doc)
	}
	var text strings.Builder
	for _, p := range doc.Rows {
		fmt.Fprintln(&text, strings.TrimRight(fmt.Sprintf("%-28s %-9s %s", p.ID, p.Plan, p.Reason), " "))
	}
	fmt.Fprintf(&text, "%d would run, %d would be skipped, %d withheld; nothing was allocated\n",
		counts["run"], counts[string(report.Skip)], counts[string(report.Withheld)])
	return a.print([]byte(text.String()))
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

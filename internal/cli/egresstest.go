package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/matrix"
	"github.com/checkfu/checkfu/internal/provider/all"
)

// egressFlags are what a person says about a run of the matrix.
type egressFlags struct {
	topologies, configurations, cases, providers []string
	noMutants, list, asJSON                      bool
	junit, receipt, key                          string

	names []string // of providers, in full
}

func (a *app) testEgressCommand() *cobra.Command {
	f := &egressFlags{}
	cmd := &cobra.Command{
		Use: "test", Short: "Attack the egress guard and judge it from all other sides", Args: noArguments,
		Long: `Run the hostile cases of egress against the guard of this build, in a small
internet of network namespaces on this machine. Nothing leaves the machine, and
nothing is left behind; it needs root.

A case is judged by five things together: the guard's answer, which address
accepted a connection, every packet that arrived, the questions to the resolver,
and the guard's own decision line. A refusal counts only where the address that
was refused was reached directly in the same run. Everything runs on three
topologies (socket-file, inside-listener, veth) and in three configurations: the
guard alone, the kernel's gate alone, and both. Then guards with one fault each
run against the case that must catch it. Who holds what is judged during real
Runs too, of machines of the native provider, whose workload is this program.

With --receipt a run that showed all five facts is sealed by a key of yours, about
one provider (native unless --provider says otherwise). One that did not says
which facts are missing, and nothing is written. Either way the report is
diagnostic: a run that you make yourself raises no grade.

Ends with 0 where every case passed and every fault was caught, with 1 where a
case failed, with 3 where the run is incomplete (what was not asked for, or had to
be skipped here), with 4 where something could not be judged or a fault was
not caught, with 2 for a wrong flag, and with 125 where there is no root.`,
		Example: `  sudo checkfu egress test
  sudo checkfu egress test --topology socket-file --case P --junit egress.xml
  sudo checkfu egress test --case E42 --case D16 --json
  sudo checkfu egress test --topology socket-file --receipt receipt.json --key receipt.key
  checkfu egress test --list`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.testEgress(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.topologies, "topology", nil, "topologies, with commas or repeated: socket-file, inside-listener, veth (default all)")
	flags.StringArrayVar(&f.configurations, "configuration", nil, "configurations: guard, kernel, both (default all)")
	flags.StringArrayVar(&f.cases, "case", nil, "cases by id, or a letter for all of a fact: E, P, R, D, A (the run is then incomplete)")
	flags.StringArrayVar(&f.providers, "provider", nil, "providers of the real machines, with commas or repeated: native (gVisor), native:runc (default both)")
	flags.BoolVar(&f.noMutants, "no-mutants", false, "run no guards with faults (the run is then incomplete)")
	flags.BoolVar(&f.list, "list", false, "list the cases and run nothing")
	flags.BoolVar(&f.asJSON, "json", false, "print the report as canonical JSON")
	flags.StringVar(&f.receipt, "receipt", "", "new file for a receipt, with its signature in FILE.sig, where all five facts were shown")
	flags.StringVar(&f.key, "key", "", "file with the key that signs it (see checkfu egress receipt keygen)")
	flags.StringVar(&f.junit, "junit", "", "file for a JUnit report, - for standard output")
	return cmd
}

// options turns the flags into options of the matrix.
// Errors: *argument.Error.
func (f *egressFlags) options() (matrix.Options, error) {
	o := matrix.Options{NoMutants: f.noMutants, Cases: slices.Collect(split(f.cases))}
	for word := range split(f.topologies) {
		if !slices.Contains(lab.Topologies(), lab.Topology(word)) {
			return o, argument.Unexpected("--topology", "socket-file, inside-listener or veth", word)
		}
		if !slices.Contains(o.Topologies, lab.Topology(word)) {
			o.Topologies = append(o.Topologies, lab.Topology(word))
		}
	}
	for word := range split(f.configurations) {
		if !slices.Contains(matrix.Configurations(), matrix.Configuration(word)) {
			return o, argument.Unexpected("--configuration", "guard, kernel or both", word)
		}
		if !slices.Contains(o.Configurations, matrix.Configuration(word)) {
			o.Configurations = append(o.Configurations, matrix.Configuration(word))
		}
	}
	if _, err := o.Rows(); err != nil {
		return o, argument.Wrong("--%v", err)
	}
	switch {
	case len(f.providers) > 0:
	case f.receipt != "":
		f.names = []string{all.NativeRunsc} // a receipt is about one
	default:
		f.names = egressProviders
	}
	for word := range split(f.providers) {
		name, err := all.Canonical(word)
		if err != nil || !slices.Contains(egressProviders, name) {
			return o, argument.Unexpected("--provider", "native or native:runc", word)
		}
		if !slices.Contains(f.names, name) {
			f.names = append(f.names, name)
		}
	}
	if f.junit == "-" && f.asJSON {
		return o, argument.Unexpected("--junit", "another place than --json has", f.junit)
	}
	if f.junit != "" && f.junit != "-" {
		return o, checkSink("--junit", f.junit)
	}
	return o, nil
}

// egressProviders are those of this host that the matrix can be run against: it needs
// root, and so has no machines of an ordinary user.
var egressProviders = []string{all.NativeRunsc, all.NativeRunc}

func (a *app) testEgress(ctx context.Context, f *egressFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	if f.list {
		return a.listEgress(o)
	}
	sealing, err := f.sealing(o)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("egress test: expected root, which makes network namespaces: run it with sudo")
	}
	total, _ := o.Rows() // it was asked before
	bar, done := a.progress(f.asJSON), 0
	ctx, stop := interruptible(ctx, func(note string) { fmt.Fprintln(a.stderr, note) })
	defer stop()
	if o.Real() {
		var done func() error
		o.Providers, done = a.providersForMatrix(ctx, f.names, bar)
		defer func() {
			if err := done(); err != nil {
				a.complain(err)
			}
		}()
	}
	o.Progress = func(row report.Row) {
		done++
		bar.show("egress cases", int64(min(done, total)), int64(total), false)
	}
	r, err := matrix.Run(ctx, o)
	bar.end()
	if r == nil {
		return err
	}
	a.code = int(r.ExitCode)
	if f.junit != "" {
		data, junit := r.JUnit()
		if junit == nil {
			junit = a.writeDocument(f.junit, data)
		}
		err = errors.Join(err, junit)
	}
	switch {
	case f.asJSON:
		data, encode := r.JSON()
		if encode == nil {
			_, encode = fmt.Fprintf(a.stdout, "%s\n", data)
		}
		err = errors.Join(err, encode)
	case f.junit != "-":
		err = errors.Join(err, r.Table(a.stdout))
	}
	if sealing == nil || err != nil {
		return err
	}
	if err := sealing.seal(a, r); err != nil {
		if r.ExitCode == report.ExitConformant {
			return err
		}
		a.complain(err) // the run's own code says it already
	}
	return nil
}

// listEgress prints the cases that were asked for.
func (a *app) listEgress(o matrix.Options) error {
	for _, c := range matrix.Cases() {
		if len(o.Cases) == 0 || slices.Contains(o.Cases, c.ID) || slices.Contains(o.Cases, c.ID[:1]) {
			var facts []string
			for _, fact := range c.Facts {
				facts = append(facts, string(fact))
			}
			if _, err := fmt.Fprintf(a.stdout, "%s  %-3s %s\n", c.ID, strings.Join(facts, ""), c.Title); err != nil {
				return err
			}
		}
	}
	return nil
}

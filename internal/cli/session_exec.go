package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

func (a *app) sessionExecCommand() *cobra.Command {
	var f runFlags
	var d detachFlags
	cmd := &cobra.Command{
		Use: "exec SESSION [flags] -- COMMAND [ARGUMENT...]", Short: "Run a command in the machine of a session",
		Long: `Run a command in the machine of a session. Output streams as it comes, standard
input is passed on, and checkfu ends with the command's own exit code (see
checkfu help exit-codes). Ctrl-C is passed on to the command; a second one ends
it. The machine stays.

With --detach, in a session that was started with --live, the command goes on by
itself: standard output has its process id in the machine, both its streams are
appended to --output, and its standard input is empty. It lasts until it ends, is
killed (checkfu session exec $id -- kill PID), or its machine ends; a pause with
--live keeps it.

What the guard of an --allow session refused meanwhile is summed up at the end.

One command runs at a time. One whose caller was killed ends after ten seconds.`,
		Example: `  checkfu session exec $id -- make test
  checkfu session exec $id --timeout 1h --env API_KEY -- ./agent --fix
  checkfu session exec $id --detach --output server.log -- ./server
  tar c data | checkfu session exec $id -- tar x`,
		Args: func(cmd *cobra.Command, args []string) error {
			// The command's own flags are told from ours by the -- alone.
			if len(args) < 2 || args[0] == "" || args[1] == "" || cmd.ArgsLenAtDash() != 1 {
				return argument.Wrong("exec: expected one session, and a command after --, as in: checkfu session exec ID -- make test")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.sessionExec(cmd, f, d, args[0], args[1:]) },
	}
	flags := cmd.Flags()
	f.commandFlags(flags)
	flags.BoolVarP(&d.detach, "detach", "d", false, "let the command go on by itself, and print its process id in the machine")
	flags.StringVar(&d.output, "output", "", "with --detach: file in the machine that takes both its streams (default none does)")
	flags.StringVar(&f.json, "json", "", "file that takes the record, - for standard output")
	return cmd
}

// detachFlags are for a command that is to go on by itself.
type detachFlags struct {
	detach bool
	output string
}

func (a *app) sessionExec(cmd *cobra.Command, f runFlags, d detachFlags, id string, command []string) error {
	var spec runner.Spec
	if d.output != "" && !d.detach {
		return argument.Wrong("--output: expected --detach beside it; the streams of any other command are passed on")
	}
	if err := f.command(&spec, command); err != nil {
		return err
	}
	if err := f.checkTargets(nil); err != nil {
		return err
	}
	dir, err := a.usableState()
	if err != nil {
		return err
	}
	s, err := keeper.Open(cmd.Context(), dir, id)
	if err != nil {
		return sessionError(id, err)
	}
	if s.Record.Model != "" {
		if err := checkModelEnv(spec.Environment); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	if d.detach {
		started, err := detachedCommand(s.Record, cmp.Or(d.output, os.DevNull), command)
		if err == nil {
			err = f.command(&spec, started)
		}
		if err != nil {
			return errors.Join(err, s.Close())
		}
	}
	in := *s.Record.Instance
	spec.Image, spec.Packages = in.RootImage, in.Profile.Packages
	spec.Network, spec.Resources = in.Profile.NetworkPolicy, in.Profile.ResourceLimits
	if spec.WorkingDirectory == "" {
		spec.WorkingDirectory = workingDirectory(&in)
	}
	bar := a.progress(false)
	signals := interruptions(func() { bar.note("checkfu: interrupting the command; Ctrl-C again ends it at once") })
	defer signals.end()
	spec.Stop = signals.c
	a.streams(&spec, f, bar)
	f.quiet = true // the command's streams are its own: no summary
	decided, done, err := a.decidedMeanwhile(cmd.Context(), dir, s.Record)
	defer done()
	if err != nil {
		return errors.Join(err, s.Close())
	}
	noted := a.noting(dir, s.Record, &spec, command)
	record, err := whileKept(cmd.Context(), s, func(ctx context.Context) (*runner.Record, error) {
		r := a.sessionRunner(s, in.Target)
		r.Egress = decided
		return r.Execute(ctx, spec, in)
	})
	noted(record)
	if keeper.Dead.Is(err) {
		return fmt.Errorf("session %s %s, and the command ended with it", id, became(dir, id))
	}
	defer s.Close()
	err = a.finish(f, record, nil, execError(dir, id, err))
	sayRefused(a.stderr, id, record.Egress)
	return err
}

// execError is err in words for who waits for a command.
func execError(dir, id string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.LifecycleConflict && e.Actual == sandbox.ActualProcessAlreadyOpen {
		return fmt.Errorf("session %s: another command runs in it, and there is room for one at a time", id)
	}
	if fell := (&sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireNetworkPolicy}); errors.Is(err, fell) {
		return fmt.Errorf("session %s: the host's rules around its network were taken away, so its link was cut, and nothing is begun in it any more; checkfu cp brings out what lies in its mounts and outputs, and one with --keep has a new network once it was paused and resumed: %w", id, err)
	}
	if l, found := keeper.Find(dir, id); found == nil && l.Keeping() {
		if l.Leaving != "" {
			return fmt.Errorf("session %s is kept, and nothing can be done in it: its machine could not be removed; checkfu session pause %s tries again: %w", id, id, err)
		}
		return err
	}
	return fmt.Errorf("session %s %s: %w", id, became(dir, id), err)
}

// became is what a session is whose machine was there a moment ago.
func became(dir, id string) string {
	if l, err := keeper.Find(dir, id); err == nil && l.State == keeper.StatePaused {
		return "was paused"
	}
	return "has ended"
}

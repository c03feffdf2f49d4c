package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/runner"
)

func (a *app) shellCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "shell SESSION [flags] [-- COMMAND [ARGUMENT...]]", Short: "Work in the machine of a session, on a terminal",
		Long: `Work in the machine of a session: a shell there, or COMMAND, on a terminal of the
machine's own. It follows the size of yours, every key goes to it, Ctrl-C too, and
checkfu ends with its exit code (see checkfu help exit-codes). The machine stays.

It is the one command that runs in the machine while it lasts. The shell is bash
where the image has one, else sh; TERM is passed on. When your terminal goes away
the one in the machine is hung up, and with the shell ends all that it started.

What comes out of the machine reaches your terminal as it is, as with ssh: who you
do not trust in there can draw what he likes, and ask your terminal things that it
answers as if you had typed. Where that matters, use checkfu session exec, and
look at what it gave.`,
		Example: `  checkfu shell $id
  checkfu shell $id --workdir /tmp -- vi notes.txt
  checkfu shell $id -- sh -c 'make 2>&1 | less'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || args[0] == "" || len(args) > 1 && (args[1] == "" || cmd.ArgsLenAtDash() != 1) {
				return argument.Wrong("shell: expected one session, and a command, if any, after --, as in: checkfu shell ID -- vi notes.txt")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.shell(cmd.Context(), f, args[0], args[1:]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.workdir, "workdir", "", "working directory inside (default /workspace/repo where there is a repository, else the home)")
	flags.StringArrayVar(&f.env, "env", nil, "KEY=VALUE, or KEY to pass on your own value, which then is in no process list either; may be repeated")
	return cmd
}

func (a *app) shell(ctx context.Context, f runFlags, id string, command []string) error {
	t := a.terminalOf()
	if t == nil {
		return argument.Wrong("shell: expected a terminal on standard input and output; without one use: checkfu session exec %s -- COMMAND", id)
	}
	f.quiet, f.timeout = true, "720h" // its time is the session's
	var spec runner.Spec
	if err := f.command(&spec, guest.PtyCommand(machine.InitPath, t.size(), command)); err != nil {
		return err
	}
	passTerm(spec.Environment, os.Getenv("TERM"))
	dir, err := a.usableState()
	if err != nil {
		return err
	}
	s, err := keeper.Open(ctx, dir, id)
	if err != nil {
		return sessionError(id, err)
	}
	if s.Record.Provider == all.Memory {
		return errors.Join(argument.Unexpected("SESSION", "one with a machine", id+", a simulation"), s.Close())
	}
	if s.Record.Model != "" {
		if err := checkModelEnv(spec.Environment); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	in := *s.Record.Instance
	spec.Image, spec.Packages = in.RootImage, in.Profile.Packages
	spec.Network, spec.Resources = in.Profile.NetworkPolicy, in.Profile.ResourceLimits
	if spec.WorkingDirectory == "" {
		spec.WorkingDirectory = workingDirectory(&in)
	}
	decided, done, err := a.decidedMeanwhile(ctx, dir, s.Record)
	defer done()
	if err != nil {
		return errors.Join(err, s.Close())
	}

	noted := a.noting(dir, s.Record, &spec, command)
	record, said, err := a.onTerminal(ctx, t, spec, func(spec runner.Spec) (*runner.Record, error) {
		return whileKept(ctx, s, func(ctx context.Context) (*runner.Record, error) {
			r := a.sessionRunner(s, in.Target)
			r.Egress = decided
			return r.Execute(ctx, spec, in)
		})
	})
	noted(record)
	if keeper.Dead.Is(err) {
		return fmt.Errorf("session %s has ended, and the shell with it", id)
	}
	if said != "" {
		a.complain(errors.New(said))
	}
	defer s.Close()
	if record == nil {
		return err
	}
	err = a.finish(f, record, nil, execError(dir, id, err))
	sayRefused(a.stderr, id, record.Egress)
	return err
}

// onTerminal lends the terminal to a command that execute runs. It also gives what
// the command said beside its terminal, which is why it could not start.
func (a *app) onTerminal(ctx context.Context, t *terminal, spec runner.Spec, execute func(runner.Spec) (*runner.Record, error)) (*runner.Record, string, error) {
	frames, keys := io.Pipe()
	keyboard := guest.NewKeyboard(keys)
	signals := interruptions(func() {})
	defer signals.end()
	if err := t.lend(func(s guest.TerminalSize) { _ = keyboard.Resize(s) }); err != nil {
		return nil, "", err
	}
	defer t.restore()
	defer frames.Close() // first: whoever types is let go of
	go func() {
		_ = keyboard.Resize(t.size()) // it may have changed since
		t.typed(keyboard)
		_ = keys.Close() // the terminal is gone: so is the other
	}()
	said := &start{}
	spec.Stop, spec.Input, spec.Output, spec.Errors = signals.c, frames, t.out, said
	record, err := execute(spec)
	return record, strings.TrimSpace(said.text), err
}

// start keeps the first of what is written to it.
type start struct{ text string }

func (s *start) Write(p []byte) (int, error) {
	const most = 1 << 10
	s.text += string(p[:min(len(p), most-len(s.text))])
	return len(p), nil
}

// passTerm tells programs in the machine what the terminal understands, unless
// that was said or is no name of a terminal.
func passTerm(env map[string]string, name string) {
	if _, said := env["TERM"]; said || name == "" || len(name) > 64 {
		return
	}
	for _, r := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-._", r) {
			return
		}
	}
	env["TERM"] = name
}

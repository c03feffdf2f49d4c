package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

func (a *app) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "session", Short: "Keep a machine from one command to the next",
		Long: `A session is a machine that stays after the command that made it has ended:
what one command writes, the next one finds. No daemon keeps it. Each session
has one process of its own, its keeper, which is this program: it owns the
machine, lets in whoever may read its token below the state directory, ends the
machine when the session expires, and ends with it.

A keeper ends with the host, with SIGTERM (in order) and with SIGKILL (its
machine goes too; checkfu session rm or checkfu sweep removes what is left).`,
		Example: `  id=$(checkfu session start . --quiet)      # a machine with a copy of this repository
  checkfu session exec $id -- make test      # as often as you like
  checkfu session ls
  checkfu session rm $id`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return argument.Unexpected("session", "start, ls, exec or rm", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.sessionStartCommand(), a.sessionListCommand(), a.sessionExecCommand(), a.sessionRemoveCommand())
	return cmd
}

// sessionLine is one session as the documents of these commands show it.
type sessionLine struct {
	SessionID  string `json:"session_id"`
	State      string `json:"state"`
	Provider   string `json:"provider,omitzero"`
	KeeperPID  int64  `json:"keeper_pid,omitzero"`
	InstanceID string `json:"instance_id,omitzero"`
	RootImage  string `json:"root_image,omitzero"`
	Socket     string `json:"socket,omitzero"`
	CreatedAt  string `json:"created_at"`
	ExpiresAt  string `json:"expires_at,omitzero"`
	// Egress is what the guard decided in all, of a session that has ended.
	Egress *runner.Egress `json:"egress,omitzero"`
	// Model is what was used of the model route in all, likewise.
	Model *runner.Model `json:"model,omitzero"`
}

func lineOf(r keeper.Record) sessionLine {
	l := sessionLine{
		SessionID: r.SessionID, State: string(r.State), Provider: r.Provider, KeeperPID: r.PID, Socket: r.Socket,
		CreatedAt: string(r.CreatedAt), ExpiresAt: string(r.ExpiresAt),
	}
	if r.Instance != nil {
		l.InstanceID, l.RootImage = string(r.Instance.InstanceID), r.Instance.RootImage
	}
	return l
}

type sessionsDocument struct {
	Schema   string        `json:"schema"`
	Sessions []sessionLine `json:"sessions"`
}

const sessionsSchema = "checkfu.sessions.v1"

func (a *app) sessionListCommand() *cobra.Command {
	asJSON, quiet := false, false
	cmd := &cobra.Command{
		Use: "ls", Short: "List the sessions on this host", Args: noArguments,
		Long:    "List the sessions of this state directory. The keeper of a lost one is gone, and\nits machine with it; checkfu session rm removes what is left. That of a damaged\none lives, but its record cannot be read, mostly since another version of checkfu\nwrote it: use, and remove, it with that one.",
		Example: "  checkfu session ls\n  checkfu session ls --quiet | xargs checkfu session rm",
		RunE: func(*cobra.Command, []string) error {
			dir, err := a.usableState()
			if err != nil {
				return err
			}
			list, err := keeper.List(dir)
			if err != nil {
				return err
			}
			doc := sessionsDocument{Schema: sessionsSchema}
			for _, l := range list {
				doc.Sessions = append(doc.Sessions, lineOf(l.Record))
			}
			switch {
			case asJSON:
				return a.printJSON(doc)
			case quiet:
				return a.printIDs(doc.Sessions)
			}
			w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "SESSION\tSTATE\tPROVIDER\tKEEPER\tCREATED\tEXPIRES\tIMAGE")
			for _, s := range doc.Sessions {
				fmt.Fprintf(w, "%s\t%s\t%s\tpid %d\t%s\t%s\t%s\n", s.SessionID, s.State, s.Provider, s.KeeperPID, s.CreatedAt, s.ExpiresAt, argument.Printable(s.RootImage))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print canonical JSON")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the ids alone")
	return cmd
}

func (a *app) printIDs(sessions []sessionLine) error {
	for _, s := range sessions {
		if _, err := fmt.Fprintln(a.stdout, s.SessionID); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) sessionRemoveCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "rm SESSION...", Short: "End sessions, with all that is in them",
		Long: `End sessions: their machines, and every trace of them. A keeper is asked to end
and has 90 seconds; then it is killed and what it left is swept, as it is where
the keeper is gone already. One that cannot be ended does not keep the others.

What the guard of an --allow session let through and refused in all is summed up;
with --json it stands in the document, which is the last that is kept of it. So is
what a --model session used, by its gateway's count.`,
		Example: "  checkfu session rm ses_0123456789abcdef01234567",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return argument.Wrong("SESSION: expected at least one (see checkfu session ls)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context(), a.progress(false).note)
			defer stop()
			dir, err := a.usableState()
			if err != nil {
				return err
			}
			var failures []error
			ended := sessionsDocument{Schema: sessionsSchema, Sessions: []sessionLine{}}
			for _, id := range args {
				line, err := a.decidedInAll(ctx, dir, id)
				if err != nil { // no reason to keep it
					a.complain(fmt.Errorf("session %s: what its guard decided cannot be told: %w", id, err))
				}
				used := a.modelInAll(dir, id)
				if err := keeper.End(ctx, dir, id, keeper.Ending{Reclaim: a.reclaim(dir)}); err != nil {
					failures = append(failures, sessionError(id, err))
					continue
				}
				if line == nil {
					line = &sessionLine{SessionID: id}
				}
				line.State, line.KeeperPID, line.Socket = "ended", 0, ""
				if line.Egress != nil {
					sayEgress(a.stderr, "session "+id, line.Egress)
				}
				if line.Model, err = used(ctx); err != nil {
					a.complain(fmt.Errorf("session %s: %w", id, err))
				} else if line.Model != nil {
					sayModel(a.stderr, "session "+id, line.Model)
				}
				ended.Sessions = append(ended.Sessions, *line)
				if asJSON {
					continue
				}
				if _, err := fmt.Fprintln(a.stdout, id); err != nil {
					failures = append(failures, err)
				}
			}
			if asJSON {
				failures = append(failures, a.printJSON(ended))
			}
			return errors.Join(failures...)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what has ended as canonical JSON instead of the ids")
	return cmd
}

// reclaim ends what a keeper left that is gone: its provider's own sweep.
func (a *app) reclaim(dir string) func(context.Context, keeper.Listed) error {
	return func(ctx context.Context, l keeper.Listed) error {
		names := []string{l.Provider}
		if l.Damaged != nil {
			names = all.Hosts() // it could be any's
		} else if l.Provider == all.Memory {
			return nil // it went with the keeper
		}
		for _, name := range names {
			o, err := all.Open(name, all.Options{Dir: dir})
			if err != nil {
				return err
			}
			if err := errors.Join(sweepSession(ctx, o, l.SessionID), o.Close()); err != nil {
				return err
			}
		}
		return nil
	}
}

// sweepSession sweeps a host. What else of it cannot be swept is not the
// session's business.
func sweepSession(ctx context.Context, o *all.Opened, id string) error {
	_, swept := sweepHost(ctx, o)
	list, err := o.Host.List(ctx)
	for _, m := range list {
		if m.SessionID == id && !m.Owned {
			err = errors.Join(err, fmt.Errorf("machine %s is still there", m.InstanceID), swept)
		}
	}
	return err
}

// sessionError is err in the words of who typed id.
func sessionError(id string, err error) error {
	var invalid *sandbox.Invalid
	switch {
	case keeper.NotFound.Is(err), errors.As(err, &invalid) && invalid.Field == "session_id":
		return argument.Unexpected("SESSION", "a session (see checkfu session ls)", id)
	case keeper.Dead.Is(err):
		return fmt.Errorf("%w; checkfu session rm %s removes what is left", err, id)
	}
	return err
}

// workingDirectory is where commands begin in a machine, unless they say
// otherwise.
func workingDirectory(in *sandbox.Instance) string {
	for _, m := range in.Mounts {
		if m.MountPath == runner.RepoPath {
			return runner.RepoPath
		}
	}
	return sandbox.HomePath
}

// whileKept does what needs the keeper of s, and does not wait for it once that
// is gone: nothing can be torn down any more that has not gone with it.
func whileKept[T any](ctx context.Context, s *keeper.Session, do func(context.Context) (T, error)) (T, error) {
	kept, cancel := s.While(ctx)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := do(kept)
		done <- answer{value, err}
	}()
	stopped := make(chan struct{})
	stop := context.AfterFunc(kept, func() {
		if keeper.Dead.Is(context.Cause(kept)) {
			close(stopped)
		}
	})
	defer stop()
	select {
	case a := <-done:
		return a.value, a.err
	case <-stopped:
		var none T
		return none, context.Cause(kept)
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

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
machine goes too; checkfu session rm or checkfu sweep removes what is left).

A session that was started with --keep can be paused: its files stay on this host's
disk, and nothing of it runs. It is paused by itself where it expires or its keeper
is terminated, and can be resumed and forked until what is kept expires.`,
		Example: `  id=$(checkfu session start . --keep --quiet)  # a machine with a copy of this repository
  checkfu session exec $id -- make test         # as often as you like
  checkfu session pause $id                     # no process and no memory stays
  checkfu session fork $id                      # another one, with the same files
  checkfu session resume $id
  checkfu session ls
  checkfu session rm $id`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return argument.Unexpected("session", "start, exec, pause, resume, fork, ls or rm", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.sessionStartCommand(), a.sessionListCommand(), a.sessionExecCommand(), a.sessionRemoveCommand(),
		a.sessionPauseCommand(), a.sessionResumeCommand(), a.sessionForkCommand())
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
	// ExpiresAt is the end of the machine, or of what is kept where there is none.
	ExpiresAt  string `json:"expires_at,omitzero"`
	KeepMillis int64  `json:"keep_ms,omitzero"`     // how long a pause keeps it; 0 is not at all
	SnapshotID string `json:"snapshot_id,omitzero"` // what it is, or falls back to
	Live       bool   `json:"live,omitzero"`        // of one that is paused: its processes are kept too
	DiskBytes  int64  `json:"disk_bytes,omitzero"`  // of what is kept, and of a durable machine's files
	// Egress is what the guard decided in all, of a session that has ended.
	Egress *runner.Egress `json:"egress,omitzero"`
	// Model is what was used of the model route in all, likewise.
	Model *runner.Model `json:"model,omitzero"`
}

func lineOf(r keeper.Listed) sessionLine {
	l := sessionLine{
		SessionID: r.SessionID, State: string(r.State), Provider: r.Provider, KeeperPID: r.PID, Socket: r.Socket,
		CreatedAt: string(r.CreatedAt), ExpiresAt: string(r.ExpiresAt), KeepMillis: r.KeepMillis,
	}
	if r.Instance != nil {
		l.InstanceID, l.RootImage = string(r.Instance.InstanceID), r.Instance.RootImage
	}
	if r.Snapshot != nil {
		l.SnapshotID = string(r.Snapshot.SnapshotID)
	}
	if r.State == keeper.StatePaused {
		l.KeeperPID, l.Socket, l.InstanceID, l.ExpiresAt = 0, "", "", string(r.Snapshot.ExpiresAt)
	}
	return l
}

type sessionsDocument struct {
	Schema   string        `json:"schema"`
	Sessions []sessionLine `json:"sessions"`
}

const sessionsSchema = "checkfu.sessions.v1"

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
		Long: `End sessions: their machines, what is kept of them, and every trace of them. A
keeper is asked to end and has 90 seconds; then it is killed and what it left is
swept, as it is where the keeper is gone already. One that cannot be ended does not
keep the others. Forks are sessions of their own, and stay.

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

// reclaim ends what a keeper left that is gone: its machine, by its provider's own
// sweep, and whatever is kept of it.
func (a *app) reclaim(dir string) func(context.Context, keeper.Listed) error {
	return func(ctx context.Context, l keeper.Listed) error {
		names := []string{l.Provider}
		if l.Damaged != nil {
			names = all.Hosts() // it could be any's
		} else if l.Provider == all.Memory {
			return nil // it went with the keeper
		}
		for _, name := range names {
			s, err := openSnapshots(ctx, dir, name)
			if err != nil {
				return err
			}
			// Also of one that is paused: where its keeper was killed, its record can say
			// so with a machine beside it.
			err = sweepSession(ctx, s.opened, l.SessionID)
			if err := errors.Join(err, s.destroy(ctx, l.SessionID, ""), s.close()); err != nil {
				return err
			}
		}
		return nil
	}
}

// sweepSession ends what machines there are of a session whose keeper is gone. What
// else of the host cannot be swept is not the session's business.
//
// Blocks: until its owner has ended, which a process that was killed does not at once,
// or leftBound.
func sweepSession(ctx context.Context, o *all.Opened, id string) error {
	ctx, cancel := context.WithTimeout(ctx, leftBound)
	defer cancel()
	for {
		_, owned, err := machinesOf(ctx, o, id)
		if err != nil {
			return err
		}
		if owned == 0 {
			break
		}
		select {
		case <-time.After(poll): // another process's end has no event
		case <-ctx.Done():
			return fmt.Errorf("the owner of its machine does not end: %w", context.Cause(ctx))
		}
	}
	_, swept := sweepHost(ctx, o)
	orphans, _, err := machinesOf(ctx, o, id)
	if len(orphans) > 0 {
		err = errors.Join(err, fmt.Errorf("machines %q are still there", orphans), swept)
	}
	return err
}

// machinesOf are the machines of a session that nobody owns, and how many have an owner.
func machinesOf(ctx context.Context, o *all.Opened, id string) (orphans []sandbox.InstanceID, owned int, err error) {
	list, err := o.Host.List(ctx)
	for _, m := range list {
		switch {
		case m.SessionID != id:
		case m.Owned:
			owned++
		default:
			orphans = append(orphans, m.InstanceID)
		}
	}
	return orphans, owned, err
}

// poll is how often another process's end is looked for.
const poll = 20 * time.Millisecond

// sessionError is err in the words of who typed id.
func sessionError(id string, err error) error {
	var invalid *sandbox.Invalid
	switch {
	case keeper.NotFound.Is(err), errors.As(err, &invalid) && invalid.Field == "session_id":
		return argument.Unexpected("SESSION", "a session (see checkfu session ls)", id)
	case keeper.Paused.Is(err):
		return fmt.Errorf("%w; checkfu session resume %s makes a machine of it again", err, id)
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

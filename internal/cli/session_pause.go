package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

func (a *app) sessionPauseCommand() *cobra.Command {
	expires, keep, live := "", time.Duration(0), false
	return a.eachSession(&cobra.Command{
		Use: "pause SESSION...", Short: "Keep what is in the machine of a session, and end the machine",
		Long: `Keep what is in the machine of a session that was started with --keep, and end
the machine: no process of it stays, and no memory. checkfu session resume goes on
from there.

Kept are the files of /workspace, of the home directory and of the outputs, exactly.
Not kept are processes, which get SIGTERM and five seconds, and /tmp. A session that
cannot be kept, as on a full disk, goes on as it was. One that is kept and whose
machine cannot be removed does nothing any more: pause it again.

With --live, of a session that was started with --live, what was detached in it (see
checkfu session exec --help) is kept in the middle of its work, with its memory, its
open files and /tmp, and goes on when the session, or a fork of it, is resumed. While
a command runs that somebody waits for, or a connection is forwarded, it is refused,
and everything goes on. The memory lies on this host's disk then.

What is kept lies on this host's disk, and expires: after --expires, else after what
--keep said. A session that is paused again is kept anew.`,
		Example: "  checkfu session pause $id\n  checkfu session pause $id --expires 720h",
	}, "print the paused sessions as canonical JSON instead of the ids", func(cmd *cobra.Command) {
		cmd.Flags().BoolVar(&live, "live", false, "keep the processes too")
		cmd.Flags().StringVar(&expires, "expires", "", "how long it is kept (default what --keep said)")
		cmd.PreRunE = func(*cobra.Command, []string) (err error) {
			if expires != "" {
				keep, err = keepFor("--expires", expires)
			}
			return err
		}
	}, func(ctx context.Context, dir, id string, say func(string)) (sessionLine, error) {
		return a.sessionPause(ctx, dir, id, keep, live, say)
	})
}

func (a *app) sessionResumeCommand() *cobra.Command {
	expires, lasts, cold := "1h", time.Duration(0), false
	return a.eachSession(&cobra.Command{
		Use: "resume SESSION...", Short: "Make a machine again of what was kept of a session",
		Long: `Make a machine again of what was kept of a session. It is a new one, with the
files, limits, network and image of the old one, and without its processes, but for
those that a pause with --live kept: they go on, unless --cold says otherwise. Only
the very checkfu and processor that kept them lets them go on; any other refuses, and
resumes the files with --cold. What was kept stays until the session is paused again, so a session whose keeper is killed,
or whose host goes down, can be resumed from there; checkfu session ls calls it lost
until then, for what came after is.`,
		Example: "  checkfu session resume $id\n  checkfu session fork $id --count 5 | xargs checkfu session resume",
	}, "print the resumed sessions as canonical JSON instead of the ids", func(cmd *cobra.Command) {
		cmd.Flags().BoolVar(&cold, "cold", false, "files alone, also where processes were kept")
		cmd.Flags().StringVar(&expires, "expires", expires, "how long the machine lasts at most; the session is paused then")
		cmd.PreRunE = func(*cobra.Command, []string) (err error) {
			lasts, err = argument.Duration("--expires", expires)
			return err
		}
	}, func(ctx context.Context, dir, id string, say func(string)) (sessionLine, error) {
		return a.sessionResume(ctx, dir, id, lasts, cold, say)
	})
}

// eachSession makes a command of cmd that does the same to every session it is
// given, and says which are done. One that fails does not keep the others.
func (a *app) eachSession(cmd *cobra.Command, asJSONHelp string, flags func(*cobra.Command), do func(ctx context.Context, dir, id string, say func(string)) (sessionLine, error)) *cobra.Command {
	asJSON, quiet := false, false
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return argument.Wrong("SESSION: expected at least one (see checkfu session ls)")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		bar := a.progress(quiet)
		defer bar.end()
		ctx, stop := interruptible(cmd.Context(), bar.note)
		defer stop()
		dir, err := a.usableState()
		if err != nil {
			return err
		}
		doc := sessionsDocument{Schema: sessionsSchema, Sessions: []sessionLine{}}
		var failures []error
		for _, id := range args {
			line, err := do(ctx, dir, id, a.saying(quiet))
			if err != nil {
				failures = append(failures, sessionError(id, err))
				continue
			}
			doc.Sessions = append(doc.Sessions, line)
			if !asJSON {
				failures = append(failures, a.printIDs(doc.Sessions[len(doc.Sessions)-1:]))
			}
		}
		if asJSON {
			failures = append(failures, a.printJSON(doc))
		}
		return errors.Join(failures...)
	}
	flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, asJSONHelp)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the ids alone")
	return cmd
}

// saying tells a person what there is to know, unless ids alone were asked for.
func (a *app) saying(quiet bool) func(string) {
	return func(line string) {
		if !quiet {
			fmt.Fprintln(a.stderr, line)
		}
	}
}

// sessionPause keeps a session for so long; 0 is what it was started with.
func (a *app) sessionPause(ctx context.Context, dir, id string, keep time.Duration, live bool, say func(string)) (sessionLine, error) {
	s, err := keeper.Open(ctx, dir, id)
	if keeper.Paused.Is(err) {
		return sessionLine{}, fmt.Errorf("session %s: it is paused already", id)
	}
	if err != nil {
		return sessionLine{}, err
	}
	if !s.Record.Keeps() {
		_ = s.Close()
		return sessionLine{}, argument.Wrong("session %s: expected one that was started with --keep; the machine of this one leaves nothing", id)
	}
	line, err := a.decidedInAll(ctx, dir, id)
	if err != nil { // no reason to keep it going
		a.complain(fmt.Errorf("session %s: what its guard decided cannot be told: %w", id, err))
	}
	used := a.modelInAll(dir, id)
	until := s.Record.PauseUntil(time.Now())
	switch {
	case keep > 0 && s.Record.Leaving != "": // what is taken is taken
		say(fmt.Sprintf("checkfu: session %s: it was kept by a pause before, until %s; --expires changes nothing", id, until))
	case keep > 0:
		until = sandbox.At(time.Now().Add(keep))
	}
	in := *s.Record.Instance
	if live {
		err = pauseLive(ctx, s, until)
	} else {
		_, err = whileKept(ctx, s, func(ctx context.Context) (sandbox.Snapshot, error) {
			return a.sessionRunner(s, in.Target).Settle(ctx, in, until)
		})
	}
	closed(s, err)
	if err != nil {
		return sessionLine{}, a.notPaused(dir, id, err)
	}
	l, err := left(ctx, dir, id)
	if err != nil {
		return sessionLine{}, err
	}
	done := lineOf(l)
	if line != nil && line.Egress != nil {
		done.Egress = line.Egress
		sayEgress(a.stderr, "session "+id, line.Egress)
	}
	if done.Model, err = used(ctx); err != nil {
		a.complain(fmt.Errorf("session %s: %w", id, err))
	} else if done.Model != nil {
		sayModel(a.stderr, "session "+id, done.Model)
	}
	return done, nil
}

// closed ends the calls of a session, but for one whose keeper is gone: a client waits
// for what that will not answer any more.
func closed(s *keeper.Session, err error) {
	if !keeper.Dead.Is(err) {
		_ = s.Close()
	}
}

// notPaused is why a session could not be paused, by what became of it.
func (a *app) notPaused(dir, id string, err error) error {
	l, found := keeper.Find(dir, id)
	switch {
	case keeper.NotLive.Is(err) && found == nil && l.State == keeper.StateActive && l.Leaving == "":
		return fmt.Errorf("%w (%s says more)", err, keeper.LogPath(dir, id))
	case found != nil:
		return errors.Join(err, found)
	case l.State == keeper.StatePaused: // another command was faster, or the answer was lost
		return fmt.Errorf("session %s: it is paused already", id)
	case l.Leaving != "" && l.State == keeper.StateActive:
		return fmt.Errorf("session %s is kept until %s, and its machine, which does nothing any more, could not be removed: checkfu session pause %s tries again: %w (%s says more)", id, l.Leaving, id, err, keeper.LogPath(dir, id))
	case l.State == keeper.StateLost:
		return fmt.Errorf("session %s: its keeper ended while it was paused: checkfu session resume %s goes back to what was kept last: %w", id, id, err)
	}
	return fmt.Errorf("session %s goes on: %w (%s says more)", id, err, keeper.LogPath(dir, id))
}

// leftBound is how long a keeper that has said that it is done has to end.
const leftBound = time.Minute

// left waits until the keeper of a session that is paused is gone, so that who is
// told of it can resume it.
func left(ctx context.Context, dir, id string) (keeper.Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, leftBound)
	defer cancel()
	for {
		h, err := keeper.Hold(ctx, dir, id)
		if err == nil {
			if err = h.Close(); err == nil {
				return keeper.Find(dir, id)
			}
		}
		if !keeper.Busy.Is(err) || ctx.Err() != nil {
			return keeper.Listed{}, err
		}
	}
}

// sessionResume makes a machine that lasts so long.
func (a *app) sessionResume(ctx context.Context, dir, id string, lasts time.Duration, cold bool, note func(string)) (sessionLine, error) {
	l, err := a.paused(ctx, dir, id, note)
	if err != nil {
		return sessionLine{}, err
	}
	if l.State != keeper.StatePaused {
		return sessionLine{}, fmt.Errorf("session %s: it is %s, and not paused", id, l.State)
	}
	s, err := keeper.Start(ctx, keeper.Options{
		Dir: dir, SessionID: id, Provider: l.Provider, ExpiresAt: sandbox.At(time.Now().Add(lasts)), Model: l.Model,
		Registries: l.Registries, Keep: time.Duration(l.KeepMillis) * time.Millisecond, Live: l.Live, Cold: cold, Resume: true,
	})
	if err != nil {
		return sessionLine{}, err
	}
	r := s.Record
	_, err = whileKept(ctx, s.Session, func(ctx context.Context) (sandbox.Instance, error) {
		return a.sessionRunner(s.Session, r.Instance.Target).Resume(ctx, *r.Instance, *r.Snapshot, runner.Holder{SessionID: id, LeaseID: r.LeaseID, ExpiresAt: r.ExpiresAt})
	})
	if keeper.Dead.Is(err) {
		return sessionLine{}, fmt.Errorf("session %s is paused as before: its keeper was killed; checkfu sweep removes what is left of its machine", id)
	}
	if err != nil {
		err = fmt.Errorf("session %s is paused as before: %w", id, err)
	}
	kept, err := a.begun(ctx, s, err)
	if err != nil {
		return sessionLine{}, err
	}
	return lineOf(keeper.Listed{Record: kept}), nil
}

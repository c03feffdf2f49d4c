package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// mostForks bounds what one command makes.
const mostForks = 100

func (a *app) sessionForkCommand() *cobra.Command {
	count, asJSON, quiet := 1, false, false
	cmd := &cobra.Command{
		Use: "fork SESSION", Short: "Make sessions of their own out of what is in one",
		Long: `Make sessions of their own out of what is in one. Each is paused, and has a copy
of the files, with the limits, the network and the image of its source; none sees
what is written in another, and each lives on when the others are removed. Where
the filesystem shares blocks, a copy costs what changes in it.

The source may be active, and goes on: who writes in it waits while its files are
copied. Its processes are copied where they were kept: fork a session that was paused
with --live, and each fork goes on with them when it is resumed. Forks of a paused session expire when it does; pause one to keep it longer.`,
		Example: `  checkfu session fork $id
  for fork in $(checkfu session fork $id --count 5); do checkfu session resume $fork; done`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return argument.Wrong("SESSION: expected one (see checkfu session ls)")
			}
			if count < 1 || count > mostForks {
				return argument.Unexpected("--count", "1 to "+strconv.Itoa(mostForks), strconv.Itoa(count))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			bar := a.progress(quiet)
			defer bar.end()
			ctx, stop := interruptible(cmd.Context(), bar.note)
			defer stop()
			dir, err := a.usableState()
			if err != nil {
				return err
			}
			doc := sessionsDocument{Schema: sessionsSchema, Sessions: []sessionLine{}}
			err = a.sessionFork(ctx, dir, args[0], count, a.saying(quiet), func(l keeper.Record) error {
				line := lineOf(keeper.Listed{Record: l})
				doc.Sessions = append(doc.Sessions, line)
				if asJSON {
					return nil
				}
				return a.printIDs([]sessionLine{line})
			})
			if asJSON {
				err = errors.Join(err, a.printJSON(doc))
			}
			return sessionError(args[0], err)
		},
	}
	flags := cmd.Flags()
	flags.IntVarP(&count, "count", "n", 1, "how many")
	flags.BoolVar(&asJSON, "json", false, "print the forks as canonical JSON instead of their ids")
	flags.BoolVarP(&quiet, "quiet", "q", false, "print the ids alone")
	return cmd
}

// sessionFork makes forks of a session, and tells of each when it is on the disk.
func (a *app) sessionFork(ctx context.Context, dir, id string, count int, note func(string), made func(keeper.Record) error) (err error) {
	l, err := a.paused(ctx, dir, id, note)
	if err != nil {
		return err
	}
	var from keeper.Record
	if l.State == keeper.StatePaused {
		h, err := keeper.Hold(ctx, dir, id) // nobody removes it meanwhile
		if err != nil {
			return err
		}
		defer h.Close()
		if from = h.Record; from.Snapshot == nil {
			return &keeper.Error{Kind: keeper.Busy, SessionID: id}
		}
	} else {
		var done func(context.Context) error
		if from, done, err = a.captured(ctx, dir, id); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done(ctx)) }()
	}
	s, err := openSnapshots(ctx, dir, from.Provider)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	runtime, err := s.runtime(ctx)
	if err != nil {
		return err
	}
	for range count {
		if err := fork(ctx, runtime, dir, from, made); err != nil {
			return err
		}
	}
	return nil
}

// captured is an active session with a snapshot of this moment, marked as in use; done
// takes both away.
func (a *app) captured(ctx context.Context, dir, id string) (from keeper.Record, done func(context.Context) error, err error) {
	s, err := keeper.Open(ctx, dir, id)
	if err != nil {
		return from, nil, err
	}
	if from = s.Record; !from.Keeps() {
		_ = s.Close()
		return from, nil, argument.Wrong("session %s: expected one that was started with --keep; of the machine of this one nothing can be kept", id)
	}
	// What an earlier one left that was cut off goes before another comes.
	if err := sweepForksOf(ctx, dir, keeper.Listed{Record: from}); err != nil {
		a.complain(fmt.Errorf("session %s: %w", id, err))
	}
	until := from.KeepUntil(time.Now())
	mark, err := keeper.BeginFork(dir, id, until)
	if err != nil {
		_ = s.Close()
		return from, nil, err
	}
	in := *from.Instance
	taken, err := whileKept(ctx, s, func(ctx context.Context) (sandbox.Snapshot, error) {
		return a.sessionRunner(s, in.Target).Capture(ctx, in, until)
	})
	closed(s, err)
	if err != nil {
		return from, nil, errors.Join(fmt.Errorf("session %s: %w", id, err), mark.Close())
	}
	from.Snapshot = &taken
	done = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonBound)
		defer cancel()
		o, err := openSnapshots(ctx, dir, from.Provider)
		if err == nil {
			err = errors.Join(o.opened.Provider.DestroySnapshot(ctx, taken.SnapshotID), o.close())
		}
		if err != nil {
			return errors.Join(err, mark.Leave())
		}
		return mark.Close()
	}
	if err := mark.From(taken.SnapshotID); err != nil {
		return from, nil, errors.Join(err, done(ctx))
	}
	return from, done, nil
}

// sweepForks takes away what the forks of active sessions were copies of, where they
// were cut off. What there is of any other session, who has it in hand takes away.
func sweepForks(ctx context.Context, dir string) error {
	list, err := keeper.List(dir)
	for _, l := range list {
		if l.State == keeper.StateActive && l.Keeps() {
			if one := sweepForksOf(ctx, dir, l); one != nil {
				err = errors.Join(err, fmt.Errorf("session %s: %w", l.SessionID, one))
			}
		}
	}
	return err
}

func sweepForksOf(ctx context.Context, dir string, l keeper.Listed) (err error) {
	forks, err := keeper.TakeForks(dir, l.SessionID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, forks.Close()) }()
	if len(forks.CutOff) > 0 {
		// Once more, with the marks in hand: it may have been lost meanwhile, and made
		// what one of them names.
		if l, err = keeper.Find(dir, l.SessionID); err != nil || l.Damaged != nil {
			return err
		}
		s, err := openSnapshots(ctx, dir, l.Provider)
		if err != nil {
			return err
		}
		waits := false
		for _, cut := range forks.CutOff {
			id := cut.From
			if id == "" {
				id = s.expiring(l.SessionID, cut.Until)
				// What it asked for may be in the making still, with nobody to tell.
				waits = waits || id == "" && time.Since(cut.Since) < captureBound
			}
			if id != "" && (l.Snapshot == nil || l.Snapshot.SnapshotID != id) {
				err = errors.Join(err, s.opened.Provider.DestroySnapshot(ctx, id))
			}
		}
		if err := errors.Join(err, s.close()); err != nil || waits {
			return err
		}
	}
	return forks.Remove()
}

// captureBound is longer than a capture takes that nobody waits for.
const captureBound = 10 * time.Minute

// forkOf is a new session whose machines are made as those of from.
func forkOf(from keeper.Record) keeper.Record {
	return keeper.Record{
		SessionID: keeper.NewID(), Provider: from.Provider, ExpiresAt: from.ExpiresAt, KeepMillis: from.KeepMillis, Model: from.Model, Live: from.Live,
		Registries: from.Registries,
	}
}

// fork makes one session out of from. It is reserved first, so that a sweep finds
// whatever a killed one has made; and one that nobody could be told of does not stay.
func fork(ctx context.Context, runtime *sandboxruntime.Runtime, dir string, from keeper.Record, made func(keeper.Record) error) (err error) {
	h, err := keeper.Reserve(dir, forkOf(from))
	if err != nil {
		return err
	}
	id := h.Record.SessionID
	clone, err := runtime.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: *from.Snapshot, TargetSessionID: id})
	if err != nil {
		return errors.Join(err, h.Discard())
	}
	in := *from.Instance
	in.SessionID = id
	if err = h.Pause(in, clone); err == nil {
		err = made(h.Record)
	}
	if err == nil {
		return h.Close()
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonBound)
	defer cancel()
	if left := runtime.DestroySnapshot(undo, clone.SnapshotID); left != nil {
		return errors.Join(err, left, h.Close()) // its record leads to it
	}
	return errors.Join(err, h.Discard())
}

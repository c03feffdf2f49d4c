package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// keepDefault is how long what is in a machine is kept where --keep says no time.
const keepDefault = "168h"

// keepHelp is the text of the flag, which two commands have.
const keepHelp = "when the machine ends, keep what is in it for this long, to be resumed"

// store is what a provider on this host has kept, by session.
type store struct {
	opened    *all.Opened
	snapshots map[string][]native.KeptSnapshot
}

// openSnapshots opens the store of a provider. close gives it back.
func openSnapshots(ctx context.Context, dir, provider string) (s *store, err error) {
	o, err := all.Open(provider, all.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	s = &store{opened: o, snapshots: map[string][]native.KeptSnapshot{}}
	if o.Host == nil {
		return s, nil
	}
	list, err := o.Host.Snapshots(ctx)
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	for _, k := range list {
		s.snapshots[k.Snapshot.SessionID] = append(s.snapshots[k.Snapshot.SessionID], k)
	}
	return s, nil
}

func (s *store) close() error { return s.opened.Close() }

// runtime is the provider behind the checks that every answer passes.
func (s *store) runtime(ctx context.Context) (*sandboxruntime.Runtime, error) {
	selector := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: s.opened.Provider}}}
	return selector.Attach(ctx, s.opened.Envelope.Target())
}

// newest is the last snapshot of a session that has not expired; nil is none.
func (s *store) newest(id string) *sandbox.Snapshot {
	var last *sandbox.Snapshot
	now := sandbox.At(time.Now())
	for _, k := range s.snapshots[id] {
		if now.Before(k.Snapshot.ExpiresAt) && (last == nil || last.CreatedAt.Before(k.Snapshot.CreatedAt)) {
			last = &k.Snapshot
		}
	}
	return last
}

// has is whether a session has this very snapshot, and it has not expired.
func (s *store) has(id string, want sandbox.SnapshotID) bool {
	now := sandbox.At(time.Now())
	for _, k := range s.snapshots[id] {
		if k.Snapshot.SnapshotID == want {
			return now.Before(k.Snapshot.ExpiresAt)
		}
	}
	return false
}

// expiring is the snapshot of a session that expires at this very millisecond; "" is
// none.
func (s *store) expiring(id string, at sandbox.Timestamp) sandbox.SnapshotID {
	for _, k := range s.snapshots[id] {
		if k.Snapshot.ExpiresAt == at {
			return k.Snapshot.SnapshotID
		}
	}
	return ""
}

// bytes is what the disk gives the snapshots of a session.
func (s *store) bytes(id string) (n int64) {
	for _, k := range s.snapshots[id] {
		n += k.Bytes
	}
	return n
}

// destroy takes away every snapshot of a session but one, also those that nobody was
// told of: a pause or a fork that was cut off has made them.
func (s *store) destroy(ctx context.Context, id string, but sandbox.SnapshotID) error {
	var err error
	for _, k := range s.snapshots[id] {
		if k.Snapshot.SnapshotID != but {
			err = errors.Join(err, s.opened.Provider.DestroySnapshot(ctx, k.Snapshot.SnapshotID))
		}
	}
	return err
}

// tidy is destroy while the session and its marks are in hand. Where a fork is under way
// that began before the session was paused, it takes nothing: the next one will.
func (s *store) tidy(ctx context.Context, id string, but sandbox.SnapshotID, forks *keeper.Forks) error {
	if forks.Running {
		return nil
	}
	if err := s.destroy(ctx, id, but); err != nil {
		return err
	}
	return forks.Remove()
}

// hostsOf are the providers that can have kept something of a session.
func hostsOf(l keeper.Listed) []string {
	switch {
	case l.Damaged != nil:
		return all.Hosts() // it could be any's
	case l.Keeps():
		return []string{l.Provider}
	}
	return nil
}

// kept tells a sweep whether something of a session whose keeper is gone is still
// to be had. Of one that is paused it takes away whatever it does not consist of; the
// sweep has it in hand.
func (a *app) kept(dir string) func(context.Context, keeper.Listed) (bool, error) {
	return func(ctx context.Context, l keeper.Listed) (bool, error) {
		return stillKept(ctx, dir, l, func(s *store) error {
			if l.State != keeper.StatePaused || !s.has(l.SessionID, l.Snapshot.SnapshotID) {
				return nil
			}
			forks, err := keeper.TakeForks(dir, l.SessionID)
			if err != nil {
				return err
			}
			return errors.Join(s.tidy(ctx, l.SessionID, l.Snapshot.SnapshotID, forks), forks.Close())
		})
	}
}

// stillKept is whether something of a session whose keeper is gone is to be had, and
// calls do with each store that is looked at. Of one whose starter died nothing is:
// nobody was told of it. Something may be where there is an error.
func stillKept(ctx context.Context, dir string, l keeper.Listed, do func(*store) error) (bool, error) {
	if l.Unborn {
		return false, nil
	}
	for _, name := range hostsOf(l) {
		s, err := openSnapshots(ctx, dir, name)
		if err != nil {
			return true, err
		}
		found := s.newest(l.SessionID) != nil
		if err := errors.Join(do(s), s.close()); found || err != nil {
			return true, err
		}
	}
	return false, nil
}

// recover makes a session that was lost, or whose resumption was cut off, what was kept
// of it last: paused, with nothing that runs. That is its last pause, or what a pause or
// fork had kept when it was cut off.
func (a *app) recover(ctx context.Context, dir, id string) (since sandbox.Timestamp, err error) {
	h, err := keeper.Hold(ctx, dir, id)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if h.Record.State == keeper.StatePaused { // another command was faster
		return h.Record.Snapshot.CreatedAt, nil
	}
	nothing := fmt.Errorf("session %s: its machine is gone, and nothing of it was kept; checkfu session rm %s removes what is left", id, id)
	if !h.Record.Keeps() || h.Record.Instance == nil {
		return "", nothing
	}
	forks, err := keeper.TakeForks(dir, id)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, forks.Close()) }()
	if forks.Running && h.Record.State == keeper.StateActive {
		// What was kept last may be what that fork copies, and will destroy.
		return "", fmt.Errorf("session %s: it is being forked: try again when that has ended", id)
	}
	s, err := openSnapshots(ctx, dir, h.Record.Provider)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	// Before anything is resumed: its old machine would go on beside the new one.
	if err := sweepSession(ctx, s.opened, id); err != nil {
		return "", fmt.Errorf("session %s: what its keeper left cannot be ended: %w", id, err)
	}
	last := s.newest(id)
	if h.Record.State == keeper.StateStarting {
		last = h.Record.Snapshot // a resumption changes nothing before it is kept
	}
	if last == nil {
		return "", nothing
	}
	in := *h.Record.Instance
	in.SessionID = id
	if err := h.Pause(in, *last); err != nil {
		return "", err
	}
	return last.CreatedAt, s.tidy(ctx, id, last.SnapshotID, forks)
}

// paused finds a session that is paused, or was lost and can be taken up from what
// was kept of it last; then note is told so. What else of it ran has ended then.
func (a *app) paused(ctx context.Context, dir, id string, note func(string)) (keeper.Listed, error) {
	l, err := keeper.Find(dir, id)
	if err == nil && l.Damaged != nil {
		err = &keeper.Error{Kind: keeper.Damaged, SessionID: id, Err: l.Damaged}
	}
	if err == nil && l.State == keeper.StatePaused && !sandbox.At(time.Now()).Before(l.Snapshot.ExpiresAt) {
		err = fmt.Errorf("session %s: what was kept of it expired at %s; checkfu session rm %s removes what is left", id, l.Snapshot.ExpiresAt, id)
	}
	if err != nil || l.State != keeper.StateLost && !l.CutOff {
		return l, err
	}
	since, err := a.recover(ctx, dir, id)
	if err != nil {
		return l, err
	}
	if l.CutOff { // it is what it was
		return keeper.Find(dir, id)
	}
	note(fmt.Sprintf("checkfu: session %s: its keeper was killed; it is what it was at %s", id, since))
	return keeper.Find(dir, id)
}

// canKeep refuses to keep what a provider cannot, before anything is made.
func (f runFlags) canKeep(spec runner.Spec) error {
	if spec.Keep > 0 && f.provider == all.Memory {
		return argument.Unexpected("--keep", "a provider whose machines lie on this host (native or native:runc)", all.Memory)
	}
	return nil
}

// keepFor is the time of --keep or --expires of a pause.
func keepFor(flag, s string) (time.Duration, error) {
	d, err := argument.Duration(flag, s)
	if err == nil && d > keeper.MaxKeep {
		return 0, argument.Unexpected(flag, "at most "+keeper.MaxKeep.String(), s)
	}
	return d, err
}

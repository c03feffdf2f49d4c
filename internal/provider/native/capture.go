package native

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/sandbox"
)

// restBound is how long a machine may take to come to rest.
const restBound = 10 * time.Second

// turn waits for the end of whoever else has the one token that there is room for,
// and of what they began.
// Errors: ctx's.
func turn(ctx context.Context, token chan struct{}) (leave func(), err error) {
	if err := ctx.Err(); err != nil { // a select would choose
		return nil, err
	}
	select {
	case token <- struct{}{}:
		return func() { <-token }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// capturing is how a snapshot is taken.
type capturing struct {
	last bool // the machine is not to go on
	live bool // with its processes
}

// capture takes a snapshot of an active instance, which stands still until its home
// was copied: its machine is paused, and who writes into it from the host waits.
// Where it is the last of the instance all that stays so, if there is a snapshot, and
// the caller ends it: nothing could be told to be written that the snapshot has not.
// A removal cuts it short and waits for it. The caller has capturing's token.
func (in *instance) capture(ctx context.Context, op sandbox.Operation, expires sandbox.Timestamp, how capturing) (ref sandbox.Snapshot, err error) {
	ctx, done, err := in.move(ctx, op)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer done()
	defer func() {
		if err != nil && in.isEnding() { // that is what cut it short
			err = sandbox.NoInstance(op, in.id)
		}
	}()
	if err := in.gate.close(ctx); err != nil {
		return sandbox.Snapshot{}, err
	}
	resume, err := in.rest(ctx)
	if err != nil {
		in.gate.open()
		return sandbox.Snapshot{}, err
	}
	goOn := sync.OnceValue(func() error {
		defer in.gate.open()
		return resume()
	})
	var live *snapshot.LiveSource
	if how.live {
		if live, err = in.writeDown(ctx, op); err != nil {
			return sandbox.Snapshot{}, errors.Join(err, goOn())
		}
	}
	ref, err = in.copyHome(ctx, expires, live, func() error {
		if how.last {
			return nil
		}
		return goOn()
	})
	if err != nil {
		if live != nil { // the store may have taken it over
			err = errors.Join(err, os.RemoveAll(live.Dir))
		}
		return ref, errors.Join(err, goOn())
	}
	return ref, nil
}

// rest pauses the machine. What is in the middle of a write, and waits there for
// what may never come, holds up a freeze of the filesystem for ever: this takes it
// out of that write. Of a machine that is gone nothing writes any more.
func (in *instance) rest(ctx context.Context) (resume func() error, err error) {
	in.mu.Lock()
	m := in.machine
	in.mu.Unlock()
	if in.p.twinHome.restless {
		return func() error { return nil }, nil
	}
	ctx, cancel := context.WithTimeout(ctx, restBound)
	defer cancel()
	resume, err = m.Pause(ctx)
	if err != nil && m.Alive() != nil {
		return func() error { return nil }, nil
	}
	return resume, err
}

// copyHome copies a home that nobody writes to into a new snapshot. taken is called
// once that needs it no more; where it fails there is no snapshot.
func (in *instance) copyHome(ctx context.Context, expires sandbox.Timestamp, live *snapshot.LiveSource, taken func() error) (sandbox.Snapshot, error) {
	frozen, err := in.volume.Freeze(ctx)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	in.p.opt.Step("frozen")
	whole, thawed := false, error(nil)
	r := in.request
	ref, err := in.p.snapshots.Capture(ctx, sandbox.Snapshot{
		Provider: r.Target.Provider, Placement: r.Target.Placement, SourceInstanceID: in.id, WorkspaceID: r.WorkspaceID,
		SessionID: r.SessionID, ProfileID: r.Profile.ProfileID, ProfileVersion: r.Profile.ProfileVersion,
		ProfileDigest: in.digest, ExpiresAt: expires,
	}, slices.Clone(r.Mounts), snapshot.Source{
		Form: snapshot.FormImage, Path: in.at.image(), Live: live,
		Taken: func() {
			whole, thawed = frozen.Thaw()
			thawed = errors.Join(thawed, taken())
		},
	})
	if err != nil {
		_, thawed = frozen.Thaw()
		return ref, errors.Join(err, thawed)
	}
	if !whole {
		// A sweep of another process found the instance past its expiry and let its
		// writers go on: what was copied is more than one moment's.
		thawed = errors.Join(errors.New("the home did not stay frozen"), thawed)
	}
	if thawed != nil {
		return ref, errors.Join(thawed, in.p.snapshots.Destroy(context.WithoutCancel(ctx), ref.SnapshotID))
	}
	in.p.opt.Step("captured")
	return ref, nil
}

// move begins something that a removal cuts short and waits for, of an active
// instance. One at a time: the caller has capturing's token.
func (in *instance) move(ctx context.Context, op sandbox.Operation) (context.Context, func(), error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ending {
		return nil, nil, sandbox.NoInstance(op, in.id)
	}
	if in.state != sandbox.StateActive {
		return nil, nil, sandbox.Conflict(op, string(sandbox.StateActive), string(in.state))
	}
	ctx, cancel := context.WithCancel(ctx)
	moving := &activation{cancel: cancel, done: make(chan struct{})}
	in.moving = moving
	return ctx, func() {
		in.mu.Lock()
		in.moving = nil
		in.mu.Unlock()
		cancel()
		close(moving.done)
	}, nil
}

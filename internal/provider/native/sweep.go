package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/snapshot/volume"
	"github.com/checkfu/checkfu/sandbox"
)

// dismantle removes everything an instance can have left on the host, from
// what is on disk alone. The record goes last but one and the directory last,
// so that a crash in the middle is found again.
func (p *Provider) dismantle(ctx context.Context, id sandbox.InstanceID, at place) error {
	// A capture that died in its middle left the home frozen; a process that writes
	// there could not even be killed.
	if _, err := volume.Thaw(at.home()); err != nil {
		return err
	}
	if err := p.opt.Driver.Reap(ctx, string(id), at.machine()); err != nil {
		return fmt.Errorf("end the machine: %w", err)
	}
	// And a freeze that waited for one of them is there only now that it is gone.
	if _, err := volume.Thaw(at.home()); err != nil {
		return err
	}
	owner := 0
	r, readErr := readRecord(at)
	if readErr == nil && !p.rootless() { // whose owner has another number here
		owner = int(r.OwnerPID)
	}
	if err := p.removeUplink(id, r, readErr); err != nil {
		return err
	}
	for _, log := range []string{at.decisions(), at.requests()} {
		if err := endHolders(ctx, log, owner); err != nil {
			return err
		}
	}
	p.opt.Step("reaped")
	// The overlay first: a twin's upper layer lies in the home.
	if err := errors.Join(unmount(ctx, at.root()), unmount(ctx, at.home())); err != nil {
		return err
	}
	p.opt.Step("unmounted")
	root, err := contain.Open(p.instancesDir(), contain.Options{})
	if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.Base(at.dir)
	for _, part := range []string{"root", "home", "home.image", "skeleton", "machine", "egress", "decisions", "requests", "record.json", ""} {
		if err := root.RemoveAll(ctx, strings.TrimSuffix(name+"/"+part, "/")); err != nil {
			return err
		}
	}
	p.opt.Step("removed")
	return nil
}

// removeFromDisk removes an instance that this process does not hold. One that
// another living process owns is its business: the caller may not pull it away
// from under it, and gets an error that says so.
func (p *Provider) removeFromDisk(ctx context.Context, id sandbox.InstanceID) error {
	if !validID(id) {
		return nil // names nothing that this provider ever made
	}
	at := p.place(id)
	if real, err := at.real(); !real {
		return err
	}
	if r, err := readRecord(at); err == nil && r.Driver != p.opt.Driver.Name() {
		return fmt.Errorf("instance %s: of driver %s, not %s", id, r.Driver, p.opt.Driver.Name())
	}
	lock, err := seize(at)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("instance %s: %w", id, err)
	}
	defer lock.Close()
	return p.dismantle(ctx, id, at)
}

// Cleanup sweeps what is orphaned: an instance past its own expiry, and one
// whose owner is gone and that is older than the cutoff. An owned, unexpired
// instance is never touched. Of snapshots see snapshot.Store.Sweep.
// Source: contract "Cleanup and pinning".
func (p *Provider) Cleanup(ctx context.Context, r sandbox.CleanupRequest) (sandbox.Swept, error) {
	if err := r.Validate(); err != nil {
		return nothingSwept(), sandbox.Failed(sandbox.OpCleanup, sandbox.ReasonInvalidRequest, err)
	}
	return p.sweep(ctx, r, r.OrphanedBefore, false)
}

// Reclaim is Cleanup for who has no list of what is pinned: it takes every instance
// that has no owner any more, or is past its expiry, and of snapshots only those
// that are past theirs.
// Errors: those of Cleanup; what was taken is told with one, too.
// Source: contract "Cleanup and pinning"; design 3, point 15.
func (p *Provider) Reclaim(ctx context.Context, now sandbox.Timestamp) (sandbox.Swept, error) {
	return p.sweep(ctx, sandbox.CleanupRequest{Now: now, OrphanedBefore: now}, sandbox.At(time.Unix(0, 0)), true)
}

func nothingSwept() sandbox.Swept {
	return sandbox.Swept{InstanceIDs: []sandbox.InstanceID{}, SnapshotIDs: []sandbox.SnapshotID{}}
}

// sweep sweeps by r, of snapshots what was not used since cutoff. What waited to be
// claimed was nobody's instance, and is named only where unclaimed is set.
func (p *Provider) sweep(ctx context.Context, r sandbox.CleanupRequest, cutoff sandbox.Timestamp, unclaimed bool) (sandbox.Swept, error) {
	swept := nothingSwept()
	entries, err := os.ReadDir(p.instancesDir())
	if err != nil {
		return swept, sandbox.Failed(sandbox.OpCleanup, sandbox.ReasonProviderError, err)
	}
	var failures []error
	for _, e := range entries {
		id, gone, err := p.sweepOne(ctx, e.Name(), r, unclaimed)
		if err != nil { // one that cannot be removed does not keep the others
			failures = append(failures, fmt.Errorf("%s: %w", e.Name(), err))
		} else if gone {
			swept.InstanceIDs = append(swept.InstanceIDs, id)
		}
	}
	if p.opt.Builder != nil { // its machines are no instances of the Runner's
		if err := p.opt.Builder.Sweep(ctx, r.Now, r.OrphanedBefore); err != nil {
			failures = append(failures, err)
		}
	}
	if p.snapshots != nil {
		var err error
		if swept.SnapshotIDs, err = p.snapshots.Sweep(ctx, r.Now, cutoff, r.PinnedSnapshots); err != nil {
			failures = append(failures, err)
		}
	}
	if p.storeFault != nil { // not one of them could be looked at
		failures = append(failures, p.storeFault)
	}
	if len(failures) > 0 {
		return swept, sandbox.Failed(sandbox.OpCleanup, sandbox.ReasonProviderError, errors.Join(failures...))
	}
	return swept, nil
}

// sweepOne decides about one directory of instances.
func (p *Provider) sweepOne(ctx context.Context, name string, r sandbox.CleanupRequest, unclaimed bool) (sandbox.InstanceID, bool, error) {
	unborn := strings.HasPrefix(name, unbornPrefix)
	id := sandbox.InstanceID(strings.TrimPrefix(name, unbornPrefix))
	if !validID(id) {
		return "", false, nil // not ours: leave it
	}
	at := place{filepath.Join(p.instancesDir(), name)}
	if real, err := at.real(); !real {
		return "", false, err // a file or a link: nothing that this provider makes
	}
	rec, readErr := readRecord(at)
	if readErr == nil && rec.Driver != p.opt.Driver.Name() {
		return "", false, nil // only its own driver can end its machine
	}
	if readErr == nil && !unborn && !r.Now.Before(rec.ExpiresAt) && !p.outOfReach(id, at) {
		gone, err := p.expire(ctx, id, at, r.Now)
		return id, gone && (unclaimed || !rec.Waits), err
	}
	since := rec.CreatedAt
	if readErr != nil { // crashed before its record, or damaged: its directory tells its age
		info, err := os.Stat(at.dir)
		if err != nil {
			return "", false, ignoreMissing(err)
		}
		since = sandbox.At(info.ModTime())
	}
	if !since.Before(r.OrphanedBefore) {
		return "", false, nil
	}
	lock, err := seize(at)
	switch {
	case errors.Is(err, errOwned):
		return "", false, nil
	case errors.Is(err, os.ErrNotExist):
		// No lock yet: either it died in its first moment or it is being made
		// right now. A minute is longer than that moment can be.
		info, statErr := os.Stat(at.dir)
		if statErr != nil || time.Since(info.ModTime()) < time.Minute {
			return "", false, ignoreMissing(statErr)
		}
	case err != nil:
		return "", false, err
	default:
		defer lock.Close()
	}
	return id, unclaimed || !rec.Waits, p.dismantle(ctx, id, at)
}

// expire removes an instance past its deadline, whoever owns it: its own
// process in the ordinary way, any other by ending the machine under it. It reports
// false of one that waited when its record was read, and that somebody has by now, and
// of one that this process is starting to wait, which it ends itself.
func (p *Provider) expire(ctx context.Context, id sandbox.InstanceID, at place, now sandbox.Timestamp) (bool, error) {
	p.mu.Lock()
	p.pool.pull(id) // of what waits; nothing else can be claimed any more
	in := p.instances[id]
	claimed := in != nil && now.Before(in.request.ExpiresAt)
	made := p.pool.makes(id)
	p.mu.Unlock()
	switch {
	case claimed, made:
		return false, nil
	case in != nil:
		return true, p.Destroy(ctx, id)
	}
	return true, p.dismantle(ctx, id, at)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Running is one instance as the disk knows it.
type Running struct {
	InstanceID sandbox.InstanceID
	Driver     string
	OwnerPID   int64
	Owned      bool // its owner lives
	Waits      bool // it is nobody's yet, see Warm
	SessionID  string
	RunID      string
	RootImage  string
	CreatedAt  sandbox.Timestamp
	ExpiresAt  sandbox.Timestamp
}

// List names every instance on this host, of any process.
func (p *Provider) List(context.Context) ([]Running, error) {
	entries, err := os.ReadDir(p.instancesDir())
	if err != nil {
		return nil, err
	}
	var all []Running
	for _, e := range entries {
		at := place{filepath.Join(p.instancesDir(), e.Name())}
		r, err := readRecord(at)
		if err != nil || !e.IsDir() {
			continue // being made, being removed, or damaged: the sweep's business
		}
		lock, err := seize(at)
		if err == nil {
			lock.Close()
		}
		all = append(all, Running{
			InstanceID: sandbox.InstanceID(r.InstanceID), Driver: r.Driver, OwnerPID: r.OwnerPID, Owned: errors.Is(err, errOwned), Waits: r.Waits,
			SessionID: r.SessionID, RunID: r.RunID, RootImage: r.RootImage, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt,
		})
	}
	return all, nil
}

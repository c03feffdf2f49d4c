package snapshot

import (
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/lock"
	"github.com/checkfu/checkfu/sandbox"
)

// Destroy removes a snapshot. It may be called again, by anybody: an id that
// names nothing is success, and what an earlier call did not finish is finished.
// A holder goes on reading what it opened.
// Errors: host errors.
func (s *Store) Destroy(ctx context.Context, id sandbox.SnapshotID) error {
	if !validID(id) {
		return nil // names nothing that was ever made here
	}
	if err := ctx.Err(); err != nil {
		return within("destroy", string(id), err)
	}
	_, err := s.unpublish(id)
	if err == nil {
		err = s.discard(id)
	}
	return within("destroy", string(id), err)
}

// unpublish takes a snapshot away in one step, and reports whether it was there.
func (s *Store) unpublish(id sandbox.SnapshotID) (bool, error) {
	err := os.Rename(s.path("snapshots", string(id)), s.path("trash", string(id)))
	was := err == nil
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if was {
		s.opt.Step("destroy: renamed")
	}
	// Also where another call took it away: that one may have failed just here, and
	// a power cut would bring the snapshot back.
	return was, s.syncNames()
}

// discard removes the bytes of one that is no longer there.
func (s *Store) discard(id sandbox.SnapshotID) error {
	if err := os.Remove(s.path("trash", string(id), "content")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.opt.Step("destroy: content removed")
	if err := os.RemoveAll(s.path("trash", string(id))); err != nil {
		return err
	}
	s.opt.Step("destroy: removed")
	return nil
}

// Sweep removes every snapshot past its own expiry, pinned or not; and every one
// that is not pinned and was neither made, cloned nor restored since before the
// cutoff. It returns their ids in ascending order.
//
// More pins than sandbox.MaxPinnedSnapshots are no list of pins: nothing is swept
// by cutoff then, because whoever had to shorten theirs would lose what they
// pinned. One that is held is not swept by cutoff. A damaged manifest says no
// expiry, so its snapshot goes by the cutoff.
//
// One that cannot be removed does not keep the others; the ids are of those that
// are gone, with an error too.
// Source: contract "Cleanup and pinning"; design 3, point 15.
func (s *Store) Sweep(ctx context.Context, now, cutoff sandbox.Timestamp, pinned []sandbox.SnapshotID) ([]sandbox.SnapshotID, error) {
	failures := s.clean(ctx)
	gone := []sandbox.SnapshotID{}
	entries, err := os.ReadDir(s.path("snapshots")) // in order of names
	failures = joined(failures, err)
	byCutoff := len(pinned) <= sandbox.MaxPinnedSnapshots
	for _, e := range entries {
		id := sandbox.SnapshotID(e.Name())
		if !validID(id) {
			continue // not ours
		}
		if err := ctx.Err(); err != nil {
			failures = joined(failures, err)
			break
		}
		swept, err := s.sweepOne(id, now, cutoff, byCutoff && !slices.Contains(pinned, id))
		if swept {
			gone = append(gone, id)
		}
		failures = joined(failures, within("sweep", string(id), err))
	}
	return gone, within("sweep", "", failures)
}

func (s *Store) sweepOne(id sandbox.SnapshotID, now, cutoff sandbox.Timestamp, byCutoff bool) (bool, error) {
	dir, err := s.openSnapshot(id)
	if errors.Is(err, ErrNotFound) {
		return false, nil // another sweep was faster
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	m, err := readManifest(dir, id)
	expired := err == nil && !now.Before(m.Snapshot.ExpiresAt)
	if !expired {
		if !byCutoff {
			return false, nil
		}
		// Locked, so that nobody begins to use it between the look and the end.
		got, err := lock.Try(dir, lock.Exclusive)
		if !got {
			return false, err
		}
		info, err := dir.Stat()
		if err != nil {
			return false, err
		}
		if !sandbox.At(info.ModTime()).Before(cutoff) {
			return false, nil
		}
	}
	was, err := s.unpublish(id)
	if err != nil || !was {
		return was, err // gone is gone, also if that is not on the disk yet
	}
	return true, s.discard(id)
}

// clean removes what crashed processes left: stages that nobody has locked, and
// trash.
func (s *Store) clean(ctx context.Context) error {
	dead, err := s.abandoned(ctx)
	for _, f := range dead {
		err = joined(err, joined(os.RemoveAll(f.Name()), f.Close()))
	}
	left, readErr := os.ReadDir(s.path("trash"))
	err = joined(err, readErr)
	if len(left) > 0 { // as unpublish does, before their bytes go
		if syncErr := s.syncNames(); syncErr != nil {
			return joined(err, syncErr)
		}
	}
	for _, e := range left {
		err = joined(err, os.RemoveAll(s.path("trash", e.Name())))
	}
	return err
}

// abandoned locks every stage that nobody works in, so that two sweeps do not
// meet, and returns them.
func (s *Store) abandoned(ctx context.Context) ([]*os.File, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	names, err := os.ReadDir(s.path("staging"))
	if err != nil {
		return nil, err
	}
	var dead []*os.File
	for _, n := range names {
		f, err := os.Open(s.path("staging", n.Name()))
		if err != nil {
			continue // published or removed meanwhile
		}
		if got, _ := lock.Try(f, lock.Exclusive); got {
			dead = append(dead, f)
		} else {
			f.Close()
		}
	}
	return dead, nil
}

// Kept is one snapshot as the disk knows it.
type Kept struct {
	ID       sandbox.SnapshotID
	Manifest Manifest          // zero if it cannot be read
	UsedAt   sandbox.Timestamp // when it was made, cloned or restored last
	Bytes    int64             // that the disk gives it, shared ones counted
	Err      error             // why the manifest cannot be read
}

// List names every snapshot in ascending order of ids, damaged ones too.
func (s *Store) List(ctx context.Context) ([]Kept, error) {
	entries, err := os.ReadDir(s.path("snapshots"))
	if err != nil {
		return nil, within("list", "", err)
	}
	var all []Kept
	for _, e := range entries {
		id := sandbox.SnapshotID(e.Name())
		if err := ctx.Err(); err != nil {
			return nil, within("list", "", err)
		}
		dir, err := s.openSnapshot(id)
		if err != nil {
			continue // not ours, or gone meanwhile
		}
		k := Kept{ID: id}
		k.Manifest, k.Err = readManifest(dir, id)
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), "content", &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			k.Bytes = st.Blocks*512 + liveBytes(dir, k.Manifest.Live)
		}
		if info, err := dir.Stat(); err == nil {
			k.UsedAt = sandbox.At(info.ModTime())
		}
		dir.Close()
		all = append(all, k)
	}
	return all, nil
}

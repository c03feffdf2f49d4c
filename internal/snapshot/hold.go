package snapshot

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/lock"
	"github.com/checkfu/checkfu/sandbox"
)

// Hold is an open snapshot. While it is held no sweep takes it by cutoff, and
// what it reads stays readable also when it is destroyed.
type Hold struct {
	// Manifest is what was kept, its seal verified.
	Manifest Manifest

	s       *Store
	dir     *os.File // locked, shared
	content *os.File
}

// Close gives the snapshot back. It may be called once.
func (h *Hold) Close() error { return joined(h.content.Close(), h.dir.Close()) }

// Hold opens the snapshot that ref names, and notes that it was used.
// Errors: ErrNotFound; ErrExpired; ErrMismatch with the field on which ref
// disagrees; ErrDamaged with what differs; ErrUnsupported.
func (s *Store) Hold(ctx context.Context, ref sandbox.Snapshot) (*Hold, error) {
	h, err := s.hold(ctx, ref)
	return h, within("hold", string(ref.SnapshotID), err)
}

func (s *Store) hold(ctx context.Context, ref sandbox.Snapshot) (_ *Hold, err error) {
	dir, err := s.openSnapshot(ref.SnapshotID)
	if err != nil {
		return nil, err
	}
	h := &Hold{s: s, dir: dir}
	defer func() {
		if err != nil {
			// What a destroy that was faster has already taken away is no damage.
			if errors.Is(err, ErrDamaged) && !s.published(dir, ref.SnapshotID) {
				err = &Error{Kind: ErrNotFound}
			}
			dir.Close()
		}
	}()
	if err := lock.Wait(ctx, dir, lock.Shared); err != nil {
		return nil, err
	}
	h.Manifest, err = readManifest(dir, ref.SnapshotID)
	if err != nil {
		return nil, err
	}
	kept := h.Manifest.Snapshot
	if now := s.now(); !now.Before(kept.ExpiresAt) {
		return nil, &Error{Kind: ErrExpired, Field: "expires_at", Expected: "after " + string(now), Got: string(kept.ExpiresAt)}
	}
	if err := disagree(kept, ref); err != nil {
		return nil, err
	}
	if h.content, err = openIn(dir, "content"); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = damaged("content", strconv.FormatInt(h.Manifest.ContentBytes, 10)+" bytes", "no file")
		}
		return nil, err
	}
	info, err := h.content.Stat()
	if err == nil && info.Size() != h.Manifest.ContentBytes {
		err = damaged("content_bytes", strconv.FormatInt(h.Manifest.ContentBytes, 10), strconv.FormatInt(info.Size(), 10))
	}
	if err == nil {
		err = touch(dir, s.opt.Now())
	}
	if err != nil {
		return nil, joined(err, h.content.Close())
	}
	return h, nil
}

// openSnapshot opens the directory of an id.
func (s *Store) openSnapshot(id sandbox.SnapshotID) (*os.File, error) {
	if !validID(id) {
		return nil, &Error{Kind: ErrNotFound}
	}
	f, err := os.OpenFile(s.path("snapshots", string(id)), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		err = &Error{Kind: ErrNotFound}
	}
	return f, err
}

// published reports whether dir is still what lies under the id's name.
func (s *Store) published(dir *os.File, id sandbox.SnapshotID) bool {
	a, err := dir.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(s.path("snapshots", string(id)))
	return err == nil && os.SameFile(a, b)
}

// openIn opens a regular file of a snapshot's directory.
func openIn(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = damaged(name, "a regular file", info.Mode().Type().String())
	}
	if err != nil {
		return nil, joined(err, f.Close())
	}
	return f, nil
}

func readManifest(dir *os.File, id sandbox.SnapshotID) (Manifest, error) {
	f, err := openIn(dir, "manifest.json")
	if errors.Is(err, os.ErrNotExist) {
		err = damaged("manifest", "a file", "none")
	}
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return Manifest{}, err
	}
	if len(body) > maxManifest {
		return Manifest{}, damaged("manifest", "at most "+strconv.Itoa(maxManifest)+" bytes", "more")
	}
	m, err := ParseManifest(body)
	if err == nil && m.Snapshot.SnapshotID != id {
		err = damaged("snapshot.snapshot_id", string(id), string(m.Snapshot.SnapshotID))
	}
	return m, err
}

// touch notes in the time of a snapshot's directory that it was used.
func touch(dir *os.File, now time.Time) error {
	at := unix.NsecToTimespec(now.UnixNano())
	err := unix.UtimesNanoAt(int(dir.Fd()), ".", []unix.Timespec{at, at}, 0)
	return os.NewSyscallError("utimensat", err)
}

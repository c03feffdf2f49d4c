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
	"github.com/checkfu/checkfu/internal/snapshot/tree"
	"github.com/checkfu/checkfu/internal/snapshot/volume"
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
			dir.Close()
		}
	}()
	if err := lock.Wait(ctx, dir, lock.Shared); err != nil {
		return nil, err
	}
	h.Manifest, err = readManifest(dir, ref.SnapshotID)
	if err != nil {
		if !s.published(dir, ref.SnapshotID) { // a destroy was faster
			err = &Error{Kind: ErrNotFound}
		}
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

// Verify compares every byte of the content with the manifest.
// Errors: ErrDamaged with the bytes that differ; host errors.
func (h *Hold) Verify(ctx context.Context) error {
	got, err := pass{from: h.content, size: h.Manifest.ContentBytes}.run(ctx)
	if err == nil {
		err = h.Manifest.compare(got)
	}
	return within("restore", string(h.Manifest.Snapshot.SnapshotID), err)
}

// Restore makes what was captured anew: an image as a new file at path, a tree
// in the empty directory at path. Not one byte of a damaged snapshot stays
// there. The snapshot stays as it was. The space of an image is reserved, as far as
// the filesystem can (volume.Reserve), and what was open without a name when it was
// captured is removed from it (volume.Check).
//
// The result is not forced to the disk: a running session does not outlive its
// host. Errors: ErrDamaged with the bytes that differ; host errors. An image
// that failed is removed; of a tree the caller removes what there is.
func (h *Hold) Restore(ctx context.Context, path string) error {
	var err error
	if h.Manifest.Form == FormImage {
		err = h.restoreImage(ctx, path, nil)
	} else {
		err = h.restoreTree(ctx, path)
	}
	return within("restore", string(h.Manifest.Snapshot.SnapshotID), err)
}

// Mount makes an image anew as Restore does, and mounts it at a directory. It does not
// wait until the host's disk has all of it, which Restore and volume.Mount do.
// Errors: those of Restore and volume.Mount; ErrUnsupported (a tree). Of an image that
// failed nothing is left.
func (h *Hold) Mount(ctx context.Context, path, at string) (*volume.Volume, error) {
	v, err := h.mount(ctx, path, at)
	return v, within("restore", string(h.Manifest.Snapshot.SnapshotID), err)
}

func (h *Hold) mount(ctx context.Context, path, at string) (v *volume.Volume, err error) {
	if h.Manifest.Form != FormImage {
		return nil, &Error{Kind: ErrUnsupported, Field: "form", Expected: string(FormImage), Got: string(h.Manifest.Form)}
	}
	attach := func() (err error) {
		v, err = volume.Attach(path)
		return err
	}
	err = h.restoreImage(ctx, path, attach)
	if err == nil {
		if err = v.Mount(at); err != nil {
			err = joined(err, os.Remove(path))
		}
	}
	if err != nil && v != nil {
		return nil, joined(err, v.Close())
	}
	return v, err
}

// restoreImage makes an image. If attach is not nil it is called when the image has
// its size and, where the bytes are copied, none of them yet.
func (h *Hold) restoreImage(ctx context.Context, path string, attach func() error) (err error) {
	to, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = joined(err, to.Close())
		if err != nil {
			err = joined(err, os.Remove(path))
		}
	}()
	h.s.opt.Step("restore: made")
	size := h.Manifest.ContentBytes
	shared, err := share(h.content, to)
	if err != nil {
		return err
	}
	into := to
	if shared {
		into, err = nil, volume.Room(to, size)
	} else if err = to.Truncate(size); err == nil {
		err = volume.Reserve(to, size)
	}
	if err != nil {
		return err
	}
	attached := make(chan error, 1)
	switch {
	case attach == nil:
		attached <- nil
	case shared: // the bytes are there: what the device waits for, we need not
		go func() { attached <- attach() }()
	default:
		if err := attach(); err != nil {
			return err
		}
		attached <- nil
	}
	got, err := pass{from: h.content, size: size, to: into}.run(ctx)
	if err = joined(err, <-attached); err != nil {
		return err
	}
	h.s.opt.Step("restore: copied")
	if err := h.Manifest.compare(got); err != nil {
		return err
	}
	if err := volume.Check(ctx, path); err != nil {
		return err
	}
	h.s.opt.Step("restore: checked")
	return nil
}

func (h *Hold) restoreTree(ctx context.Context, path string) error {
	if err := h.Verify(ctx); err != nil {
		return err
	}
	h.s.opt.Step("restore: verified")
	_, err := tree.Extract(ctx, io.NewSectionReader(h.content, 0, h.Manifest.ContentBytes), path)
	h.s.opt.Step("restore: extracted")
	return err
}

package snapshot

import (
	"context"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// Clone keeps a snapshot once more, for another Session, with the same expiry. It
// needs nothing of its source: that may be resumed, destroyed, swept or expire, and
// whatever a machine of either writes, the other does not see.
//
// It has its own manifest, which the digests of all bytes are in, and its bytes by the
// cheapest way that the filesystem has: blocks shared until one side writes; or a name
// of its own for the file, which nobody writes to again once it is published; or, of
// what can have no more names, a copy. Only a copy is read here, and compared: the
// other two are one set of bytes on the disk, so a disk that loses them loses both,
// and Restore says so of both.
//
// Errors: those of Hold; ErrExpired; ErrDamaged where the bytes were read and
// differ; host errors. Nothing is left of a clone that was not acknowledged.
func (s *Store) Clone(ctx context.Context, ref sandbox.Snapshot, session string) (sandbox.Snapshot, error) {
	const op = "clone"
	h, err := s.Hold(ctx, ref)
	if err != nil {
		return sandbox.Snapshot{}, within(op, string(ref.SnapshotID), err)
	}
	defer h.Close()
	m := h.Manifest
	m.Snapshot.SessionID = session
	// Never before its source, also if somebody turned the clock back.
	m.Snapshot.CreatedAt = max(s.now(), ref.CreatedAt)
	if err := alive(m.Snapshot); err != nil {
		return sandbox.Snapshot{}, within(op, string(ref.SnapshotID), err)
	}
	st, err := s.stage(ctx, op)
	if err != nil {
		return sandbox.Snapshot{}, within(op, string(ref.SnapshotID), err)
	}
	m.Snapshot.SnapshotID = st.id
	err = joined(st.clone(ctx, h, &m), st.close())
	if err != nil {
		return sandbox.Snapshot{}, within(op, string(ref.SnapshotID), err)
	}
	return m.Snapshot, nil
}

func (st *stage) clone(ctx context.Context, h *Hold, m *Manifest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := st.cloneLive(ctx, h); err != nil {
		return err
	}
	to, err := st.share(h.content)
	if err != nil {
		return err
	}
	if to == nil {
		linked, err := st.link(h.content)
		if err != nil {
			return err
		}
		if linked { // what is published is on the disk
			return st.publish(nil, m)
		}
		if to, err = h.copied(ctx, st); err != nil {
			return err
		}
	}
	defer to.Close()
	return st.publish(to, m)
}

// share makes a content of the blocks of another one, or nil where the filesystem
// cannot, of which the store asks it once.
func (st *stage) share(from *os.File) (*os.File, error) {
	if st.s.cannotShare.Load() {
		return nil, nil
	}
	to, err := st.content()
	if err != nil {
		return nil, err
	}
	shared, err := share(from, to)
	if err == nil && shared {
		return to, nil
	}
	st.s.cannotShare.Store(err == nil)
	return nil, joined(err, joined(to.Close(), os.Remove(to.Name())))
}

// link gives a published content one more name. It reports false where that cannot be:
// a filesystem without links, or with no more of them for this file, or a source that
// was destroyed since it was opened.
func (st *stage) link(from *os.File) (bool, error) {
	// By its descriptor: this is the very file that was looked at.
	err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(from.Fd())), unix.AT_FDCWD, st.dir+"/content", unix.AT_SYMLINK_FOLLOW)
	switch err {
	case nil:
		st.s.opt.Step(st.op + ": linked")
		return true, nil
	case unix.EMLINK, unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS, unix.EXDEV, unix.ENOENT:
		return false, nil
	}
	return false, os.NewSyscallError("linkat", err)
}

// copied makes a copy of the content, and compares every byte.
func (h *Hold) copied(ctx context.Context, st *stage) (*os.File, error) {
	to, err := st.content()
	if err != nil {
		return nil, err
	}
	got, err := pass{from: h.content, size: h.Manifest.ContentBytes, to: to, soon: true}.run(ctx)
	if err == nil {
		err = h.Manifest.compare(got)
	}
	if err != nil {
		return nil, joined(err, to.Close())
	}
	return to, nil
}

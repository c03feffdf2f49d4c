package image

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// The tree of a derived image begins with hard links to that of its base, where
// that is there: the second image of a base then costs what is new in it. No file
// of a tree is ever written to again, neither by a machine, which has the trees
// read-only, nor by unpacking, which puts a new file in the place of an old one.
// What was written to it all the same, by a disk or by hand, is not passed on.

// shareBase fills an empty tree with what img has in common with its base, and
// returns how many of img's layers that was: 0 where the base's tree cannot serve.
// Errors: ErrDigestMismatch, of the base, where its tree is not as it was unpacked.
func (s *Store) shareBase(ctx context.Context, img *stored, u *unpacker) (int, error) {
	if img.Derivation == nil {
		return 0, nil
	}
	base, err := s.byDigest(img.Derivation.Base)
	if err != nil {
		return 0, ignoring(err, ErrNotFound) // removed since
	}
	n := len(base.manifest.Layers)
	same := func(a, b v1.Descriptor) bool { return a.Digest == b.Digest }
	if n > len(img.manifest.Layers) || !slices.EqualFunc(base.manifest.Layers, img.manifest.Layers[:n], same) {
		return 0, nil
	}
	r, err := s.hold(ctx, base)
	if err != nil {
		return 0, ignoring(err, fs.ErrNotExist) // not unpacked
	}
	defer r.Release()
	rec, err := readRecord(filepath.Dir(r.Path))
	if err != nil {
		return 0, err
	}
	root, err := os.Open(r.Path)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	if err := u.share(ctx, int(root.Fd()), u.tree.root); err != nil {
		return 0, err
	}
	// No layer's digest speaks for what was not unpacked, and the record of the
	// derived tree would call any damage whole.
	if err := s.compare(ctx, r, u.tree.root); err != nil {
		return 0, within("rootfs", img.Derivation.Base, err)
	}
	u.left = rec.leftOut
	return n, nil
}

func ignoring(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// share makes the directory to the same as from, which is another of this store:
// directories anew, all else as a link, and as a copy what has all the names that the
// filesystem gives a file.
func (u *unpacker) share(ctx context.Context, from, to int) error {
	names, err := list(from, ".")
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := u.tree.count(); err != nil {
			return err
		}
		kind, err := kindOf(from, n)
		if err != nil {
			return err
		}
		if kind != unix.S_IFDIR {
			err := u.linkTo(from, to, n)
			if errors.Is(err, unix.EMLINK) { // ext4 gives a file 65,000 names
				err = u.copy(ctx, from, to, n)
			}
			if err != nil {
				return &os.PathError{Op: "link", Path: n, Err: err}
			}
			continue
		}
		if err := u.shareDirectory(ctx, from, to, n); err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	// The last step: what is made in a directory changes its time.
	return u.describeAs(to, ".", &st)
}

// describeAs gives what was just made the attributes of what it is a copy of.
func (u *unpacker) describeAs(at int, name string, st *unix.Stat_t) error {
	base := u.tree.base
	return u.tree.describe(at, name, st.Mode&unix.S_IFMT, attributes{
		uid: int(st.Uid - base), gid: int(st.Gid - base), mode: st.Mode & 0o7777, modified: time.Unix(st.Mtim.Sec, st.Mtim.Nsec),
	})
}

// copy makes a file or a symbolic link anew that can have no more names.
func (u *unpacker) copy(ctx context.Context, from, to int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, err := readlink(from, name)
		if err == nil {
			err = unix.Symlinkat(target, to, name)
		}
		if err == nil {
			err = u.describeAs(to, name, &st)
		}
		return err
	}
	open := func(at, flags int) (*os.File, error) {
		fd, err := ignoringEINTR(func() (int, error) { return unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600) })
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	old, err := open(from, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer old.Close()
	made, err := open(to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	if _, err = io.Copy(&patient{ctx, made}, old); err == nil {
		err = u.describeAs(to, name, &st)
	}
	return errors.Join(err, made.Close())
}

func (u *unpacker) shareDirectory(ctx context.Context, from, to int, name string) error {
	if err := unix.Mkdirat(to, name, 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	open := func(at int) (int, error) {
		return ignoringEINTR(func() (int, error) {
			return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
	}
	old, err := open(from)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(old)
	made, err := open(to)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(made)
	return u.share(ctx, old, made)
}

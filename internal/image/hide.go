package image

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Names that a layer gives to what is not a file of its own.
// Source: OCI image-spec "Image Layer Filesystem Changeset", "Whiteouts".
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh." // AUFS bookkeeping, with one exception:
	whiteoutOpaque = ".wh..wh..opq"
)

// whiteout carries out an entry whose last name begins with whiteoutPrefix. It
// hides what lower layers left and never what its own layer brings, before or
// after it.
func (t *tree) whiteout(parts []string) error {
	last := parts[len(parts)-1]
	d, err := t.walk(parts[:len(parts)-1], false)
	if errors.Is(err, errAbsent) {
		return nil // nothing to hide
	}
	if err != nil {
		return err
	}
	done := place{d.inode, last}
	if t.hidden[done] {
		return nil
	}
	t.hidden[done] = true
	if last == whiteoutOpaque {
		names, err := list(d.fd, ".")
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := t.hide(d, n); err != nil {
				return err
			}
		}
		t.forget()
		return nil
	}
	name := strings.TrimPrefix(last, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return hostile("", "whiteout of "+last, nil)
	}
	err = t.hide(d, name)
	t.forget()
	return err
}

// hide removes a name and all below it, but for what the current layer made.
func (t *tree) hide(d *dir, name string) error {
	kind, err := kindOf(d.fd, name)
	if err != nil || kind == 0 {
		return err
	}
	ours := t.made[place{d.inode, name}]
	if kind != unix.S_IFDIR {
		if ours {
			return nil
		}
		return unlink(d.fd, name, 0)
	}
	fd, err := t.enter(d.fd, name)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	names, err := list(fd, ".")
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := t.hide(&dir{fd: fd, inode: st.Ino}, n); err != nil {
			return err
		}
	}
	if ours {
		return nil
	}
	err = unlink(d.fd, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		return nil // holds something of this layer
	}
	return err
}

// remove takes a name and all below it away. Depth is bounded, because walk
// bounds what can be made.
func remove(at int, name string) error {
	err := unlink(at, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	names, err := list(fd, ".")
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := remove(fd, n); err != nil {
			return err
		}
	}
	return unlink(at, name, unix.AT_REMOVEDIR)
}

func unlink(at int, name string, flags int) error {
	if err := unix.Unlinkat(at, name, flags); err != nil {
		return &os.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

// list names what is in a directory.
func list(at int, name string) ([]string, error) {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return f.Readdirnames(-1)
}

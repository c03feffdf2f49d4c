package image

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A tree's record is one line for each entry, parents before what is in them,
// names of a directory in byte order:
//
//	"usr/bin/env" file 0755 0:0 48536 sha256:HEX
//	"bin" link 0777 0:0 7 "usr/bin"
//	"" dir 0755 0:0 0 -
//
// Paths are Go-quoted, so they may hold any byte and still be one line. Ids are
// guest ids, so that one image has one record wherever its ids are mapped. The
// tree digest is the SHA-256 of the lines. Times, hard links between entries
// and attributes are not in it.

// writeRecord walks the tree below root, writes its lines to w and returns the
// tree digest and the number of entries.
func writeRecord(ctx context.Context, root int, base uint32, w io.Writer) (string, int64, error) {
	sum := sha256.New()
	r := &recorder{ctx: ctx, base: base, out: bufio.NewWriterSize(io.MultiWriter(sum, w), 64<<10), buf: make([]byte, 256<<10)}
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return "", 0, err
	}
	if err := r.line("", "dir", &st, 0, "-"); err != nil {
		return "", 0, err
	}
	if err := r.below(root, ""); err != nil {
		return "", 0, err
	}
	if err := r.out.Flush(); err != nil {
		return "", 0, err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), r.entries, nil
}

type recorder struct {
	ctx     context.Context
	base    uint32
	out     *bufio.Writer
	buf     []byte
	entries int64
}

func (r *recorder) line(name, kind string, st *unix.Stat_t, size int64, content string) error {
	r.entries++
	_, err := fmt.Fprintf(r.out, "%s %s %04o %d:%d %d %s\n", strconv.Quote(name), kind, st.Mode&0o7777,
		int64(st.Uid)-int64(r.base), int64(st.Gid)-int64(r.base), size, content)
	return err
}

func (r *recorder) below(at int, prefix string) error {
	names, err := list(at, ".")
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if err := r.one(at, n, path.Join(prefix, n)); err != nil {
			return err
		}
	}
	return nil
}

func (r *recorder) one(at int, name, full string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "stat", Path: full, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := readlink(at, name)
		if err != nil {
			return &os.PathError{Op: "readlink", Path: full, Err: err}
		}
		return r.line(full, "link", &st, int64(len(target)), strconv.Quote(target))
	case unix.S_IFDIR:
		fd, err := ignoringEINTR(func() (int, error) {
			return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
		if err != nil {
			return &os.PathError{Op: "open", Path: full, Err: err}
		}
		defer unix.Close(fd)
		if err := r.line(full, "dir", &st, 0, "-"); err != nil {
			return err
		}
		return r.below(fd, full)
	case unix.S_IFREG:
		sum, err := r.content(at, name)
		if err != nil {
			return &os.PathError{Op: "read", Path: full, Err: err}
		}
		return r.line(full, "file", &st, st.Size, "sha256:"+sum)
	}
	// No unpacked tree holds one, so it came later: it is the difference.
	return r.line(full, "special", &st, 0, "-")
}

func (r *recorder) content(at int, name string) (string, error) {
	// Not blocking, in case it was exchanged for a FIFO since it was looked at.
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	sum := sha256.New()
	for {
		if err := r.ctx.Err(); err != nil {
			return "", err
		}
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, r.buf) })
		if err != nil {
			return "", err
		}
		if n == 0 {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		sum.Write(r.buf[:n])
	}
}

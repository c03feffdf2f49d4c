package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Difference is what one machine changed in a tree: the upper directory of an
// overlay, which nobody writes to any more.
type Difference struct {
	// Upper is its host path. Ids in it are host ids, IDBase added.
	Upper string
	// Began is when the machine did. What is later takes the time BaseEpoch, so
	// that the hour of a build is not in its image.
	Began time.Time
	// Discard are absolute paths of the tree. What lies at or below one is as if it
	// had not been touched.
	Discard []string
	// MaxBytes bounds what the changed files hold, with their holes; 0 is that of
	// the store's Options.
	MaxBytes int64
}

// The marks of an overlay. A whiteout is a character device 0:0; the attributes
// are those of the kernel, which no machine of ours can set.
// Source: Linux "Overlay Filesystem", "whiteouts and opaque directories".
const (
	opaqueXattr   = "trusted.overlay.opaque"
	redirectXattr = "trusted.overlay.redirect"
	metacopyXattr = "trusted.overlay.metacopy"
)

// clockSlack is how much earlier than Began a file may seem to be that was written
// after it: the kernel takes the times of files from a clock that stands still for
// a tick, and a machine from one of its own.
const clockSlack = time.Second

// delta writes a Difference as one layer: names sorted, parents before what is
// in them, whiteouts in place.
type delta struct {
	ctx     context.Context
	base    int64
	diff    Difference
	out     *tar.Writer
	bytes   int64 // that files may still hold
	entries int64 // that may still come
	links   map[uint64]string
}

// writeDifference writes the layer of d to w.
//
// What it finds was made by a hostile hand: no link is followed, and nothing is
// opened but directories and regular files. Device nodes, FIFOs and sockets are
// left out, and what they stood in the place of with them. Extended attributes
// are left out, as unpacking would.
// Errors: ErrTooLarge; ErrUnsupported for a name or an owner that no layer can
// carry, ErrHostile for a mark that only another kind of overlay leaves.
func (s *Store) writeDifference(ctx context.Context, d Difference, w io.Writer) error {
	root, err := os.OpenFile(d.Upper, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	w = &patient{ctx, w}
	one := &delta{
		ctx: ctx, base: int64(s.opt.IDBase), diff: d, out: tar.NewWriter(w),
		bytes: s.opt.MaxBytes, entries: s.opt.MaxEntries, links: map[uint64]string{},
	}
	if d.MaxBytes > 0 {
		one.bytes = min(one.bytes, d.MaxBytes)
	}
	if err := one.below(int(root.Fd()), "", 0); err != nil {
		return err
	}
	return one.out.Close()
}

// patient ends a long copy with its context.
type patient struct {
	ctx context.Context
	w   io.Writer
}

func (p *patient) Write(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

func (d *delta) below(at int, prefix string, depth int) error {
	if depth > MaxDepth {
		return &Error{Kind: ErrTooLarge, Entry: prefix, Reason: "depth", Expected: fmt.Sprint("at most ", MaxDepth, " directories")}
	}
	names, err := list(at, ".")
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		full := path.Join(prefix, n)
		if slices.Contains(d.diff.Discard, "/"+full) {
			continue
		}
		if err := d.one(at, n, full, depth); err != nil {
			return atEntry(full, err)
		}
	}
	return nil
}

func (d *delta) one(at int, name, full string, depth int) error {
	if d.entries--; d.entries < 0 {
		return &Error{Kind: ErrTooLarge, Reason: "entries"}
	}
	switch {
	case strings.HasPrefix(name, whiteoutPrefix):
		return &Error{Kind: ErrUnsupported, Reason: "a name that means a deletion in a layer", Got: name}
	case len(full) > MaxPathBytes:
		return &Error{Kind: ErrTooLarge, Reason: "path", Expected: fmt.Sprint("at most ", MaxPathBytes, " bytes")}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "stat", Path: full, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return d.directory(at, name, full, depth)
	case unix.S_IFREG:
		return d.file(at, name, full)
	case unix.S_IFLNK:
		target, err := readlink(at, name)
		if err != nil {
			return &os.PathError{Op: "readlink", Path: full, Err: err}
		}
		return d.header(&st, tar.Header{Typeflag: tar.TypeSymlink, Name: full, Linkname: target})
	}
	// A whiteout, or something special, which hides as well as one.
	return d.whiteout(path.Join(path.Dir(full), whiteoutPrefix+name))
}

func (d *delta) directory(at int, name, full string, depth int) error {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return &os.PathError{Op: "open", Path: full, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if hasXattr(fd, redirectXattr) {
		return hostile("", "a directory of another place", nil)
	}
	if err := d.header(&st, tar.Header{Typeflag: tar.TypeDir, Name: full + "/"}); err != nil {
		return err
	}
	if hasXattr(fd, opaqueXattr) {
		if err := d.whiteout(path.Join(full, whiteoutOpaque)); err != nil {
			return err
		}
	}
	return d.below(fd, full, depth+1)
}

func hasXattr(fd int, name string) bool {
	_, err := unix.Fgetxattr(fd, name, nil)
	return err == nil
}

func (d *delta) file(at int, name, full string) error {
	// Not blocking, in case it is a FIFO by now.
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return &os.PathError{Op: "open", Path: full, Err: err}
	}
	f := os.NewFile(uintptr(fd), full)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || hasXattr(fd, metacopyXattr) {
		return hostile("", "a file without its content", nil)
	}
	if st.Nlink > 1 {
		if first, ok := d.links[st.Ino]; ok {
			return d.header(&st, tar.Header{Typeflag: tar.TypeLink, Name: full, Linkname: first})
		}
		d.links[st.Ino] = full
	}
	// A hole costs the machine nothing and the layer its bytes.
	if d.bytes -= st.Size; d.bytes < 0 {
		return &Error{Kind: ErrTooLarge, Reason: "the changed files hold more than the machine's disk"}
	}
	if err := d.header(&st, tar.Header{Typeflag: tar.TypeReg, Name: full, Size: st.Size}); err != nil {
		return err
	}
	_, err = io.CopyN(d.out, f, st.Size)
	return err
}

// header writes h with what of st belongs into a layer.
func (d *delta) header(st *unix.Stat_t, h tar.Header) error {
	uid, gid := int64(st.Uid)-d.base, int64(st.Gid)-d.base
	if uid < 0 || uid >= MaxIDs || gid < 0 || gid >= MaxIDs {
		return &Error{Kind: ErrUnsupported, Reason: "owner", Expected: fmt.Sprint("ids below ", MaxIDs), Got: fmt.Sprint(uid, ":", gid)}
	}
	h.Uid, h.Gid, h.Mode, h.Format = int(uid), int(gid), int64(st.Mode&0o7777), tar.FormatPAX
	h.ModTime = time.Unix(st.Mtim.Sec, 0)
	if time.Unix(st.Mtim.Sec, st.Mtim.Nsec).After(d.diff.Began.Add(-clockSlack)) {
		h.ModTime = BaseEpoch
	}
	return d.out.WriteHeader(&h)
}

// whiteout writes a mark of deletion.
func (d *delta) whiteout(name string) error {
	return d.out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, ModTime: BaseEpoch, Format: tar.FormatPAX})
}

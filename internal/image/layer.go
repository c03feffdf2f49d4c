package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// maxNoted is how many left-out entries a record names; the rest are counted.
const maxNoted = 100

// unpacker applies the layers of one image to one tree.
type unpacker struct {
	tree   *tree
	stream int64 // bytes that layers may still decompress to
	files  int64 // bytes that files may still hold; sparse ones hold more than the stream
	buf    []byte
	left   leftOut
	dated  []dated // directories, whose times the entries below them disturb
	// linkTo gives what lies at name in one directory that name in another, too.
	linkTo func(from, to int, name string) error
}

type dated struct {
	parts []string
	a     attributes
}

// leftOut is what an image describes and we do not make.
type leftOut struct {
	// Specials are device nodes, FIFOs and other types: a machine gets its
	// devices from its runtime, and a reader that opens a FIFO blocks.
	Specials     []string `json:"specials,omitempty"`
	SpecialCount int64    `json:"special_count"`
	// Xattrs counts entries that carried extended attributes. None is kept:
	// security.capability gives nothing under no_new_privs and would be real
	// for a process on the host; overlay attributes would be obeyed by the
	// union mount that a machine's root is; ACLs hold ids that IDBase cannot
	// be added to.
	Xattrs int64 `json:"xattrs"`
}

func newUnpacker(root int, opt Options) *unpacker {
	return &unpacker{
		tree:   newTree(root, opt.IDBase, opt.MaxEntries),
		stream: opt.MaxBytes,
		files:  opt.MaxBytes,
		buf:    make([]byte, 256<<10),
		linkTo: func(from, to int, name string) error { return unix.Linkat(from, name, to, name, 0) },
	}
}

// layer applies one layer, compressed or not, and checks that the tar it holds
// is the one with the digest diffID.
func (u *unpacker) layer(ctx context.Context, r io.Reader, diffID v1.Hash) error {
	z, err := decompress(r)
	if err != nil {
		return malformed("", err)
	}
	defer z.Close()
	u.tree.nextLayer()
	u.dated = u.dated[:0]
	sum := sha256.New()
	in := io.TeeReader(&bounded{z, &u.stream}, sum)
	t := tar.NewReader(in)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return malformed("", err)
		}
		if err := u.entry(ctx, h, t); err != nil {
			return atEntry(h.Name, err)
		}
	}
	// What follows the end mark of the tar belongs to the digest too.
	if _, err := copyContext(ctx, io.Discard, in); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != diffID.Hex {
		return &Error{Kind: ErrDigestMismatch, Reason: "layer is not the one of the configuration's diff_ids", Expected: diffID.String(), Got: "sha256:" + got}
	}
	return u.redate()
}

func atEntry(name string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		named := *e
		named.Entry = name
		return &named
	}
	return &Error{Entry: name, Err: err}
}

// bounded is a reader that fails where a decompression bomb would go on.
type bounded struct {
	r    io.Reader
	left *int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, &Error{Kind: ErrTooLarge, Reason: "layers decompress to more than MaxBytes"}
	}
	return n, err
}

// entry carries out one header.
func (u *unpacker) entry(ctx context.Context, h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if err := u.tree.count(); err != nil {
		return err
	}
	parts, err := split(h.Name)
	if err != nil {
		return err
	}
	if carriesXattrs(h) {
		u.left.Xattrs++
	}
	for i, p := range parts {
		if !strings.HasPrefix(p, whiteoutPrefix) {
			continue
		}
		switch last := i == len(parts)-1; {
		case last && p == whiteoutOpaque:
		case strings.HasPrefix(p, whiteoutMeta):
			return nil
		case !last:
			return hostile("", "a whiteout has something below it", nil)
		}
		return u.tree.whiteout(parts)
	}
	a := attributes{uid: h.Uid, gid: h.Gid, mode: uint32(h.Mode) & 0o7777, modified: h.ModTime}
	if h.Uid < 0 || h.Uid >= MaxIDs || h.Gid < 0 || h.Gid >= MaxIDs {
		return &Error{Kind: ErrUnsupported, Reason: "owner", Expected: fmt.Sprint("ids below ", MaxIDs), Got: fmt.Sprint(h.Uid, ":", h.Gid)}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(parts, a)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(ctx, parts, h.Size, body, a)
	case tar.TypeSymlink:
		return u.symlink(parts, h.Linkname, a)
	case tar.TypeLink:
		return u.link(parts, h.Linkname)
	}
	if u.left.SpecialCount++; len(u.left.Specials) < maxNoted {
		u.left.Specials = append(u.left.Specials, fmt.Sprintf("%c %q", h.Typeflag, h.Name))
	}
	return nil
}

// split takes an entry's name apart. A leading slash means the tree's root, as
// it would for a process in it; ".." is refused, for no honest layer needs it.
func split(name string) ([]string, error) {
	if len(name) > MaxPathBytes {
		return nil, &Error{Kind: ErrTooLarge, Reason: "path", Expected: fmt.Sprint("at most ", MaxPathBytes, " bytes"), Got: fmt.Sprint(len(name))}
	}
	if strings.IndexByte(name, 0) >= 0 {
		return nil, hostile("", "NUL in a path", nil)
	}
	var parts []string
	for p := range strings.SplitSeq(name, "/") {
		switch {
		case p == "" || p == ".":
		case p == "..":
			return nil, hostile("", "path contains ..", nil)
		case len(p) > MaxNameBytes:
			return nil, &Error{Kind: ErrTooLarge, Reason: "name", Expected: fmt.Sprint("at most ", MaxNameBytes, " bytes"), Got: fmt.Sprint(len(p))}
		default:
			parts = append(parts, p)
		}
	}
	return parts, nil
}

func carriesXattrs(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "SCHILY.xattr.") || strings.HasPrefix(k, "LIBARCHIVE.xattr.") {
			return true
		}
	}
	return false
}

// place finds the parent of an entry and clears the way for it: whatever is
// there goes, unless both are directories. It is then this layer's.
func (u *unpacker) place(parts []string, isDir bool) (_ *dir, name string, exists bool, err error) {
	if len(parts) == 0 {
		return nil, "", false, hostile("", "the root is not a directory", nil)
	}
	name = parts[len(parts)-1]
	d, err := u.tree.walk(parts[:len(parts)-1], true)
	if err != nil {
		return nil, "", false, err
	}
	kind, err := kindOf(d.fd, name)
	if err != nil {
		return nil, "", false, err
	}
	if kind != 0 && !(isDir && kind == unix.S_IFDIR) {
		if err := remove(d.fd, name); err != nil {
			return nil, "", false, err
		}
		// What went may have been a part of the path that led here.
		u.tree.distrust()
		kind = 0
	}
	u.tree.made[place{d.inode, name}] = true
	return d, name, kind != 0, nil
}

func (u *unpacker) directory(parts []string, a attributes) error {
	if len(parts) == 0 {
		u.dated = append(u.dated, dated{nil, a})
		return u.tree.describe(u.tree.root, ".", unix.S_IFDIR, a)
	}
	// MaxDepth holds for what lies below, so for the directory itself too.
	d, name, exists, err := u.place(parts, true)
	if err != nil {
		return err
	}
	if !exists {
		if err := unix.Mkdirat(d.fd, name, 0o700); err != nil {
			return &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
	}
	u.dated = append(u.dated, dated{parts, a})
	return u.tree.describe(d.fd, name, unix.S_IFDIR, a)
}

// redate gives directories their times once nothing more goes into them. A
// path that no longer leads to a directory was replaced, and has no claim.
func (u *unpacker) redate() error {
	for _, one := range u.dated {
		d, err := u.tree.find(one.parts, false)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		s := unix.Timespec{Sec: one.a.modified.Unix(), Nsec: int64(one.a.modified.Nanosecond())}
		err = unix.UtimesNanoAt(d.fd, ".", []unix.Timespec{s, s}, 0)
		d.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) file(ctx context.Context, parts []string, size int64, body io.Reader, a attributes) error {
	if size < 0 || size > u.files {
		return &Error{Kind: ErrTooLarge, Reason: "files hold more than MaxBytes", Expected: fmt.Sprint("at most ", u.files, " more bytes"), Got: fmt.Sprint(size)}
	}
	u.files -= size
	d, name, _, err := u.place(parts, false)
	if err != nil {
		return err
	}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(d.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return &os.PathError{Op: "create", Path: name, Err: err}
	}
	err = u.fill(ctx, fd, body)
	if cerr := unix.Close(fd); err == nil && cerr != nil {
		err = &os.PathError{Op: "close", Path: name, Err: cerr}
	}
	if err != nil {
		return err
	}
	return u.tree.describe(d.fd, name, unix.S_IFREG, a)
}

func (u *unpacker) fill(ctx context.Context, fd int, body io.Reader) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, rerr := body.Read(u.buf)
		for out := u.buf[:n]; len(out) > 0; {
			w, err := ignoringEINTR(func() (int, error) { return unix.Write(fd, out) })
			if err != nil {
				return &os.PathError{Op: "write", Path: "", Err: err}
			}
			out = out[w:]
		}
		if rerr == io.EOF {
			return nil
		}
		if rerr != nil {
			return malformed("", rerr)
		}
	}
}

func (u *unpacker) symlink(parts []string, target string, a attributes) error {
	if target == "" || len(target) > MaxPathBytes || strings.IndexByte(target, 0) >= 0 {
		return hostile("", "symbolic link's target", fmt.Errorf("%d bytes", len(target)))
	}
	d, name, _, err := u.place(parts, false)
	if err != nil {
		return err
	}
	// The target is the guest's to follow, inside its own root: any will do.
	if err := unix.Symlinkat(target, d.fd, name); err != nil {
		return &os.PathError{Op: "symlink", Path: name, Err: err}
	}
	return u.tree.describe(d.fd, name, unix.S_IFLNK, a)
}

// link makes a hard link. Its target is found like any entry, so it is inside;
// a link at the end of the path is not followed.
func (u *unpacker) link(parts []string, target string) error {
	from, err := split(target)
	if err != nil || len(from) == 0 {
		return hostile("", "hard link's target", err)
	}
	source, err := u.tree.find(from[:len(from)-1], false)
	if errors.Is(err, errAbsent) {
		return hostile("", "hard link to what is not there", nil)
	}
	if err != nil {
		return err
	}
	defer source.close()
	old := from[len(from)-1]
	d, name, _, err := u.place(parts, false)
	if err != nil {
		return err
	}
	// Looked at after place, which may have removed it.
	kind, err := kindOf(source.fd, old)
	if err != nil {
		return err
	}
	if kind != unix.S_IFREG && kind != unix.S_IFLNK {
		return hostile("", "hard link to what is not a file: "+target, nil)
	}
	if err := unix.Linkat(source.fd, old, d.fd, name, 0); err != nil {
		return &os.PathError{Op: "link", Path: name, Err: err}
	}
	return nil
}

package tree

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strconv"

	"golang.org/x/sys/unix"
)

// Extract makes what r holds beneath dir, an empty directory that nobody else
// writes to, which becomes the tree's root with its mode, owner, time and
// attributes. Sizes are bounded by the filesystem under dir alone: a file may
// claim any, and holes cost nothing.
//
// It needs the rights that the tree needs: root for owners and special files.
// Errors: *Error with ErrMalformed and the place; host errors (a full disk is
// unix.ENOSPC) likewise. What was made until then stays for the caller to
// remove.
func Extract(ctx context.Context, r io.Reader, dir string) (Written, error) {
	fd, err := openRoot(dir)
	if err != nil {
		return Written{}, &Error{Op: "extract", Path: ".", Err: err}
	}
	x := extractor{ctx: ctx, in: decoder{bufio.NewReaderSize(r, 1<<20)}, aliases: -1, buffer: make([]byte, copyBuffer)}
	defer x.way.close()
	if err = x.way.push("", fd); err == nil {
		err = x.tree(fd)
	}
	return x.done, placed("extract", &x.way, err)
}

// extractor is one Extract.
type extractor struct {
	ctx    context.Context
	in     decoder
	way    stack
	metas  []meta // of the directories on the way, set when they are left
	buffer []byte
	done   Written

	// What has more than one name gets a first one in a directory of our own,
	// and each further name is a link from there: no path is walked for it, and
	// no descriptor kept. It is removed in the end.
	aliases int // its descriptor, or -1
	hidden  string
	known   uint64 // aliases so far
}

func (x *extractor) tree(root int) (err error) {
	if err := x.in.magic(); err != nil {
		return err
	}
	first, err := x.in.entry(true)
	if err != nil {
		return err
	}
	x.metas = append(x.metas, first.meta)
	x.done.Entries++
	// The root's own descriptor may be closed and opened again on the way.
	top, err := openBelow(root, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	defer func() { err = errors.Join(err, x.forget(top)) }()
	for len(x.metas) > 0 {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		n, err := x.in.entry(false)
		if err != nil {
			return err
		}
		if err := x.entry(top, n); err != nil {
			return x.at(n, err)
		}
	}
	n, err := x.in.entry(false)
	if err == nil && n.kind != kindEnd {
		err = malformed("kind", "the end", string(rune(n.kind)))
	}
	if err == nil {
		if _, more := x.in.r.ReadByte(); more == nil {
			err = malformed("end", "no bytes after it", "some")
		} else if !errors.Is(more, io.EOF) {
			err = more
		}
	}
	if err != nil {
		return err
	}
	// Not before the directory of aliases is out of it: that changes its time.
	if err := x.forget(top); err != nil {
		return err
	}
	return setAll(top, ".", byHandle(top, "."), first.meta, func(mode uint32) error { return unix.Fchmod(top, mode) })
}

func (x *extractor) at(n entry, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Err: err}
	}
	if e.Path == "" && len(x.way.levels) > 0 {
		e.Path = x.way.path(n.name)
	}
	return e
}

func (x *extractor) entry(top int, n entry) error {
	dir := x.way.fd()
	switch n.kind {
	case kindEnd:
		return malformed("kind", "leave before the end", "the end")
	case kindLeave:
		return x.leave()
	}
	x.done.Entries++
	if n.kind == kindDirectory {
		if err := unix.Mkdirat(dir, n.name, 0o700); err != nil {
			return twice(err)
		}
		fd, err := openBelow(dir, n.name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		x.metas = append(x.metas, n.meta)
		return x.way.push(n.name, fd)
	}
	if n.kind == kindLink {
		if n.alias == 0 || n.alias > x.known {
			return malformed("alias", "one that was given before", strconv.FormatUint(n.alias, 10))
		}
		return twice(unix.Linkat(x.aliases, aliasName(n.alias), dir, n.name, 0))
	}
	if n.alias == 0 {
		return x.make(dir, n.name, n)
	}
	if n.alias != x.known+1 {
		return malformed("alias", strconv.FormatUint(x.known+1, 10), strconv.FormatUint(n.alias, 10))
	}
	if err := x.hide(top); err != nil {
		return err
	}
	x.known++
	if err := x.make(x.aliases, aliasName(n.alias), n); err != nil {
		return err
	}
	return twice(unix.Linkat(x.aliases, aliasName(n.alias), dir, n.name, 0))
}

// leave finishes the current directory: its time is that of the last entry
// until then, and its mode may forbid making any.
func (x *extractor) leave() error {
	last := len(x.metas) - 1
	m := x.metas[last]
	if last > 0 {
		fd := x.way.fd()
		if err := setAll(fd, ".", byHandle(fd, "."), m, func(mode uint32) error { return unix.Fchmod(fd, mode) }); err != nil {
			return err
		}
		if err := x.way.pop(); err != nil {
			return err
		}
	}
	x.metas = x.metas[:last]
	return nil
}

// make makes what is no directory.
func (x *extractor) make(dir int, name string, n entry) error {
	byName := func(mode uint32) error { return unix.Fchmodat(dir, name, mode, 0) }
	switch n.kind {
	case kindFile:
		return x.file(dir, name, n)
	case kindSymlink:
		if err := unix.Symlinkat(n.target, dir, name); err != nil {
			return twice(err)
		}
		byName = func(uint32) error { return nil } // Linux has none of links
	case kindFIFO:
		if err := unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0); err != nil {
			return twice(err)
		}
	case kindSocket:
		if err := unix.Mknodat(dir, name, unix.S_IFSOCK|0o600, 0); err != nil {
			return twice(err)
		}
	}
	return setAll(dir, name, byHandle(dir, name), n.meta, byName)
}

func (x *extractor) file(dir int, name string, n entry) error {
	fd, err := openBelowNew(dir, name)
	if err != nil {
		return twice(err)
	}
	defer unix.Close(fd)
	var at int64
	for {
		offset, length, err := x.in.part(at, n.size)
		if err != nil {
			return err
		}
		if length == 0 {
			break
		}
		if err := x.part(fd, offset, length); err != nil {
			return err
		}
		x.done.Bytes += length
		at = offset + length
	}
	if at < n.size { // a hole to the end
		if err := unix.Ftruncate(fd, n.size); err != nil {
			return err
		}
	}
	return setAll(dir, name, byHandle(dir, name), n.meta, func(mode uint32) error { return unix.Fchmod(fd, mode) })
}

func (x *extractor) part(fd int, offset, length int64) error {
	for length > 0 {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		b := x.buffer[:min(int64(len(x.buffer)), length)]
		if _, err := io.ReadFull(x.in.r, b); err != nil {
			return cut("bytes", err)
		}
		for done := 0; done < len(b); {
			k, err := unix.Pwrite(fd, b[done:], offset+int64(done))
			if err != nil && err != unix.EINTR {
				return err
			}
			done += max(k, 0)
		}
		offset, length = offset+int64(len(b)), length-int64(len(b))
	}
	return nil
}

// setAll gives a thing what it had, in the order in which nothing undoes what
// was before: a change of owner takes special bits and capabilities away.
func setAll(dir int, name, path string, m meta, chmod func(uint32) error) error {
	if err := unix.Fchownat(dir, name, int(m.uid), int(m.gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &Error{Field: "owner", Err: err}
	}
	if err := chmod(m.mode); err != nil {
		return &Error{Field: "mode", Err: err}
	}
	for _, a := range m.attributes {
		if err := unix.Lsetxattr(path, a.name, []byte(a.value), 0); err != nil {
			return &Error{Field: "attribute " + strconv.Quote(a.name), Err: err}
		}
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: m.seconds, Nsec: int64(m.nanos)}}
	if err := unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &Error{Field: "time", Err: err}
	}
	return nil
}

// hide makes the directory of aliases.
func (x *extractor) hide(top int) error {
	if x.aliases >= 0 {
		return nil
	}
	x.hidden = ".checkfu-aliases-" + rand.Text()
	if err := unix.Mkdirat(top, x.hidden, 0o700); err != nil {
		return err
	}
	fd, err := openBelow(top, x.hidden, unix.O_RDONLY|unix.O_DIRECTORY)
	x.aliases = fd
	return err
}

// forget removes the directory of aliases, if there is one.
func (x *extractor) forget(top int) error {
	if x.hidden == "" {
		return nil
	}
	if x.aliases >= 0 {
		for n := uint64(1); n <= x.known; n++ {
			if err := unix.Unlinkat(x.aliases, aliasName(n), 0); err != nil && err != unix.ENOENT {
				return err
			}
		}
		unix.Close(x.aliases)
	}
	name := x.hidden
	x.aliases, x.hidden = -1, ""
	return unix.Unlinkat(top, name, unix.AT_REMOVEDIR)
}

func aliasName(n uint64) string { return strconv.FormatUint(n, 10) }

func openBelowNew(dir int, name string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC, Mode: 0o600, Resolve: strict}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// twice says that a stream gives a name twice: the directory was empty.
func twice(err error) error {
	if err == unix.EEXIST {
		return malformed("name", "each once", "one twice")
	}
	return err
}

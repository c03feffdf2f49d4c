package tree

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// copyBuffer is how much of a file is read at a time.
const copyBuffer = 256 << 10

// Written says what a stream holds.
type Written struct {
	Entries int64 // names, the root among them
	Bytes   int64 // of files, holes left out, each once
}

// Write writes the tree beneath dir. Of the directories at its top that are
// named in emptied nothing but themselves is kept.
//
// Errors: *Error with ErrRefused or ErrChanged and the path; host errors and
// those of w, also in an *Error. What w has by then is no stream.
func Write(ctx context.Context, w io.Writer, dir string, emptied ...string) (Written, error) {
	fd, err := openRoot(dir)
	if err != nil {
		return Written{}, &Error{Op: "write", Path: ".", Err: err}
	}
	t := writer{
		ctx: ctx, out: encoder{w: bufio.NewWriterSize(w, 1<<20)}, emptied: emptied,
		aliases: map[inode]uint64{}, buffer: make([]byte, copyBuffer), list: make([]byte, maxValue),
	}
	defer t.way.close()
	t.out.write([]byte(magic))
	if err = t.way.push("", fd); err == nil {
		err = t.root()
	}
	if err == nil {
		t.out.entry(entry{kind: kindEnd})
		if t.out.err == nil {
			t.out.err = t.out.w.Flush()
		}
		err = t.out.err
	}
	return t.done, placed("write", &t.way, err)
}

// placed names the operation and the place of an error.
func placed(op string, way *stack, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Err: err}
	}
	named := *e
	named.Op = op
	if named.Path == "" {
		named.Path = way.path("")
	}
	return &named
}

type inode struct{ dev, ino uint64 }

// writer is one Write.
type writer struct {
	ctx     context.Context
	out     encoder
	way     stack
	names   [][]string // left to do, one list a level
	emptied []string
	aliases map[inode]uint64
	buffer  []byte
	list    []byte
	done    Written
}

func (t *writer) root() error {
	m, _, err := t.directoryMeta(t.way.fd())
	if err != nil {
		return err
	}
	t.out.entry(entry{kind: kindDirectory, meta: m})
	t.done.Entries++
	if err := t.enter(); err != nil {
		return err
	}
	// Not by recursion: the depth of the tree is the workload's.
	for len(t.names) > 0 {
		top := len(t.names) - 1
		if len(t.names[top]) == 0 {
			t.out.entry(entry{kind: kindLeave})
			t.names = t.names[:top]
			if top > 0 {
				if err := t.way.pop(); err != nil {
					return err
				}
			}
			continue
		}
		name := t.names[top][0]
		t.names[top] = t.names[top][1:]
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if err := t.name(name); err != nil {
			return t.at(name, err)
		}
		if t.out.err != nil {
			return t.out.err
		}
	}
	return nil
}

// at names the path of an error in the current directory, once.
func (t *writer) at(name string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Err: err}
	}
	if e.Path == "" {
		e.Path = t.way.path(name)
	}
	return e
}

// enter lists the current directory. Sorted, so that a tree has one form.
func (t *writer) enter() error {
	fd, err := openBelow(t.way.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		// A damaged filesystem may hold a name with a slash, which the calls
		// below would walk.
		if !plain(n) || len(n) > maxName {
			return &Error{Kind: ErrRefused, Path: t.way.path(n), Field: "name", Expected: "one name of a directory", Got: strconv.Quote(n)}
		}
	}
	slices.Sort(names)
	t.names = append(t.names, names)
	return nil
}

func (t *writer) name(name string) error {
	dir := t.way.fd()
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return gone(err)
	}
	format := st.Mode & unix.S_IFMT
	if format == unix.S_IFDIR {
		return t.directory(name, st)
	}
	t.done.Entries++
	n := entry{name: name}
	if st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		known := t.aliases[key]
		if known > 0 {
			t.out.entry(entry{kind: kindLink, name: name, alias: known})
			return nil
		}
		n.alias = uint64(len(t.aliases)) + 1
		t.aliases[key] = n.alias
	}
	var err error
	switch format {
	case unix.S_IFREG:
		return t.file(n, st)
	case unix.S_IFLNK:
		n.kind = kindSymlink
		n.target, err = readlink(dir, name)
	case unix.S_IFIFO:
		n.kind = kindFIFO
	case unix.S_IFSOCK:
		n.kind = kindSocket
	default:
		return &Error{Kind: ErrRefused, Field: "type", Expected: "a file, directory, link, FIFO or socket", Got: "a device node"}
	}
	if err != nil {
		return err
	}
	n.meta, err = t.meta(st, byHandle(dir, name))
	t.out.entry(n)
	return err
}

func (t *writer) directory(name string, st unix.Stat_t) error {
	fd, err := openBelow(t.way.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return gone(err)
	}
	m, have, err := t.directoryMeta(fd)
	if err == nil && (have.Dev != st.Dev || have.Ino != st.Ino) {
		err = &Error{Kind: ErrChanged, Expected: "the directory that was listed", Got: "another"}
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	t.out.entry(entry{kind: kindDirectory, name: name, meta: m})
	t.done.Entries++
	if len(t.way.levels) == 1 && slices.Contains(t.emptied, name) {
		unix.Close(fd)
		t.out.entry(entry{kind: kindLeave})
		return nil
	}
	if err := t.way.push(name, fd); err != nil {
		return err
	}
	return t.enter()
}

func (t *writer) directoryMeta(fd int) (meta, unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return meta{}, st, err
	}
	m, err := t.meta(st, byHandle(fd, "."))
	return m, st, err
}

func (t *writer) file(n entry, st unix.Stat_t) error {
	fd, err := openBelow(t.way.fd(), n.name, unix.O_RDONLY|unix.O_NOATIME)
	if err != nil {
		return gone(err)
	}
	defer unix.Close(fd)
	var have unix.Stat_t
	if err := unix.Fstat(fd, &have); err != nil {
		return err
	}
	if have.Dev != st.Dev || have.Ino != st.Ino || have.Size != st.Size {
		return &Error{Kind: ErrChanged, Expected: "the file that was listed", Got: "another"}
	}
	n.kind, n.size = kindFile, st.Size
	if n.meta, err = t.meta(st, byHandle(t.way.fd(), n.name)); err != nil {
		return err
	}
	t.out.entry(n)
	if err := t.content(fd, st); err != nil {
		return err
	}
	t.out.part(0, 0)
	return nil
}

// content writes the parts of a file that are no holes.
func (t *writer) content(fd int, st unix.Stat_t) error {
	whole := st.Blocks*512 >= st.Size // no hole: two questions less
	if !whole {
		// A filesystem may know only of what it has written out: ext4 without
		// extents calls the rest holes.
		if err := unix.Fdatasync(fd); err != nil {
			return os.NewSyscallError("fdatasync", err)
		}
	}
	for at, last := int64(0), int64(0); at < st.Size; {
		end := st.Size
		if !whole {
			var err error
			if at, err = unix.Seek(fd, at, unix.SEEK_DATA); err == unix.ENXIO {
				return nil // a hole to the end
			} else if err != nil {
				return err
			}
			if end, err = unix.Seek(fd, at, unix.SEEK_HOLE); err != nil {
				return err
			}
			if end = min(end, st.Size); at >= end {
				return nil
			}
		}
		t.out.part(at-last, end-at)
		t.done.Bytes += end - at
		for at < end {
			if err := t.ctx.Err(); err != nil {
				return err
			}
			b := t.buffer[:min(int64(len(t.buffer)), end-at)]
			k, err := unix.Pread(fd, b, at)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			if k == 0 {
				return &Error{Kind: ErrChanged, Field: "size", Expected: strconv.FormatInt(st.Size, 10), Got: strconv.FormatInt(at, 10)}
			}
			t.out.write(b[:k])
			if t.out.err != nil {
				return t.out.err
			}
			at += int64(k)
		}
		last = at
	}
	return nil
}

// meta is what st says, and the attributes of the thing at path, which is a
// name of an open directory and is not followed.
func (t *writer) meta(st unix.Stat_t, path string) (meta, error) {
	m := meta{mode: st.Mode & maxMode, uid: st.Uid, gid: st.Gid, seconds: st.Mtim.Sec, nanos: uint32(st.Mtim.Nsec)}
	n, err := unix.Llistxattr(path, t.list)
	if err == unix.EOPNOTSUPP || err == nil && n == 0 {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	names := strings.Split(string(bytes.TrimSuffix(t.list[:n], []byte{0})), "\x00")
	slices.Sort(names)
	for _, name := range names {
		value := make([]byte, maxValue)
		k, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return m, &Error{Field: "attribute " + strconv.Quote(name), Err: err}
		}
		m.attributes = append(m.attributes, attribute{name, string(value[:k])})
	}
	return m, nil
}

func readlink(dir int, name string) (string, error) {
	b := make([]byte, maxTarget+1)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil {
		return "", gone(err)
	}
	return string(b[:n]), nil
}

// gone turns what only a change under our hands can answer into that, and
// another mount into what is refused.
func gone(err error) error {
	switch err {
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EINVAL, unix.ENXIO:
		return &Error{Kind: ErrChanged, Err: err}
	case unix.EXDEV:
		return &Error{Kind: ErrRefused, Field: "mount", Expected: "one filesystem", Got: "another one in it"}
	}
	return err
}

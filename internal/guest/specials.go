package guest

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Special is one special file. Type is "fifo", "socket" or "device"; Path
// begins with the root that was walked.
type Special struct {
	Path string
	Type string
}

// LimitError says that there are more special files than the caller allows.
type LimitError struct {
	Root  string
	Limit int
}

func (e *LimitError) Error() string {
	return "specials " + e.Root + ": more than " + strconv.Itoa(e.Limit)
}

// Specials names every entry below the absolute path root, as seen from the
// directory top ("/" of a machine, held open), that is not a regular file, a
// directory or a symbolic link. It walks by descriptor, follows no link, not
// even in root, and stays on root's own file system. An entry that vanishes
// during the walk is left out; a directory that cannot be read is an error,
// because a listing is refused rather than shortened.
// Bounds: at most limit entries, else *LimitError; directories at most maxDepth
// deep, else ENAMETOOLONG. It ends when ctx is done.
func Specials(ctx context.Context, top int, root string, limit int) ([]Special, error) {
	if !strings.HasPrefix(root, "/") {
		return nil, &WireError{Field: "ROOT", Want: "an absolute path", Got: root}
	}
	fd, err := unix.Openat(top, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	walked := ""
	for part := range strings.SplitSeq(root, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			unix.Close(fd)
			return nil, &WireError{Field: "ROOT", Want: "no ..", Got: root}
		}
		walked += "/" + part
		next, err := openDir(fd, part)
		unix.Close(fd)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: walked, Err: err}
		}
		fd = next
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "stat", Path: root, Err: err}
	}
	w := walk{ctx: ctx, root: root, dev: st.Dev, limit: limit}
	if err := w.dir(fd, walked, 1); err != nil {
		return nil, err
	}
	return w.found, nil
}

func openDir(at int, name string) (int, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// maxDepth is how many directories may lie in one another: a descriptor is held
// for each, and a hostile tree must not use up those of the whole process.
const maxDepth = 512

type walk struct {
	ctx   context.Context
	root  string
	dev   uint64
	limit int
	found []Special
}

// dir walks the directory fd, which lies at path, and closes it.
func (w *walk) dir(fd int, path string, depth int) error {
	defer unix.Close(fd)
	if depth > maxDepth {
		return &os.PathError{Op: "walk", Path: path, Err: unix.ENAMETOOLONG}
	}
	buf := make([]byte, 8192)
	for {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "read directory", Path: path, Err: err}
		}
		if n <= 0 {
			return nil
		}
		for rest := buf[:n]; len(rest) > 0; {
			name, kind, size := dirent(rest)
			if size == 0 {
				return &os.PathError{Op: "read directory", Path: path, Err: unix.EIO}
			}
			rest = rest[size:]
			if name == "." || name == ".." {
				continue
			}
			if err := w.entry(fd, path+"/"+name, name, kind, depth); err != nil {
				return err
			}
		}
	}
}

func (w *walk) entry(at int, path, name string, kind byte, depth int) error {
	if kind == unix.DT_REG || kind == unix.DT_LNK {
		return nil
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
	case unix.ENOENT:
		return nil
	default:
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
		if st.Dev != w.dev {
			return nil
		}
		fd, err := openDir(at, name)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		return w.dir(fd, path, depth+1)
	case unix.S_IFIFO:
		return w.add(path, "fifo")
	case unix.S_IFSOCK:
		return w.add(path, "socket")
	}
	return w.add(path, "device")
}

func (w *walk) add(path, kind string) error {
	if len(w.found) >= w.limit {
		return &LimitError{Root: w.root, Limit: w.limit}
	}
	w.found = append(w.found, Special{Path: path, Type: kind})
	return nil
}

// dirent reads the first linux_dirent64 of b: ino 8, off 8, reclen 2, type 1,
// name up to a NUL. The size is 0 if b does not hold a whole one.
func dirent(b []byte) (name string, kind byte, size int) {
	if len(b) < 20 {
		return "", 0, 0
	}
	size = int(binary.NativeEndian.Uint16(b[16:]))
	if size < 20 || size > len(b) {
		return "", 0, 0
	}
	raw := string(b[19:size])
	if i := strings.IndexByte(raw, 0); i >= 0 {
		raw = raw[:i]
	}
	return raw, b[18], size
}

func printSpecials(w io.Writer, root, limitText string) error {
	limit, err := strconv.Atoi(limitText)
	if err != nil || limit < 0 {
		return &WireError{Field: "LIMIT", Want: "a count", Got: limitText}
	}
	top, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/", Err: err}
	}
	defer unix.Close(top)
	found, err := Specials(context.Background(), top, root, limit)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	for _, s := range found {
		out.WriteString(s.Type + "\t" + s.Path + "\x00")
	}
	return out.Flush()
}

// ParseSpecials reads what "checkfu-init specials" printed. The text comes
// out of the machine, so it is checked: at most limit records, each of a known
// type with an absolute path below root.
func ParseSpecials(text []byte, root string, limit int) ([]Special, error) {
	var found []Special
	below := strings.TrimRight(root, "/") + "/"
	for rest := string(text); rest != ""; {
		record, after, ok := strings.Cut(rest, "\x00")
		kind, path, tab := strings.Cut(record, "\t")
		switch {
		case !ok:
			return nil, &WireError{Field: "specials", Want: "records that end in NUL", Got: "a record cut short"}
		case !tab || kind != "fifo" && kind != "socket" && kind != "device":
			return nil, &WireError{Field: "specials type", Want: "fifo, socket or device", Got: kind}
		case !strings.HasPrefix(path, below) || len(path) == len(below):
			return nil, &WireError{Field: "specials path", Want: "a path below " + root, Got: path}
		case len(found) == limit:
			return nil, &LimitError{Root: root, Limit: limit}
		}
		found = append(found, Special{Path: path, Type: kind})
		rest = after
	}
	return found, nil
}

package mount

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// tree is a directory that is read by descriptor. No link is followed at any
// element of a path, so a repository that swaps a directory for a link to
// somewhere else while it is read yields an error and never other bytes.
type tree struct{ root *os.File }

func openTree(dir string) (*tree, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return &tree{os.NewFile(uintptr(fd), dir)}, nil
}

func (t *tree) Close() error { return t.root.Close() }

func (t *tree) openat(path string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for range 64 {
		fd, err := unix.Openat2(int(t.root.Fd()), path, &how)
		// EAGAIN: a rename raced with the walk; EINTR: a signal did.
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// kind is what lies at a path.
type kind int

const (
	absent kind = iota
	regular
	symlink
	directory
	special
	behindLink // a link stands above the path
	unreadable
)

// node is one opened path; file is set for regular, target for symlink.
type node struct {
	kind       kind
	file       *os.File
	size       int64
	executable bool
	perm       os.FileMode // of a regular file
	target     string
}

// open looks at path. A FIFO does not block it, and nothing but a regular
// file comes back open.
func (t *tree) open(path string) (node, error) {
	fd, err := t.openat(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	switch {
	case err == nil:
		return regularNode(fd, path)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return node{kind: absent}, nil
	case errors.Is(err, unix.ENXIO): // a socket, or a device without a driver
		return node{kind: special}, nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return node{kind: unreadable}, nil
	case errors.Is(err, unix.ELOOP):
		return t.linkNode(path)
	}
	return node{}, &os.PathError{Op: "open", Path: path, Err: err}
}

func regularNode(fd int, path string) (node, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return node{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return node{kind: regular, file: os.NewFile(uintptr(fd), path), size: st.Size, executable: st.Mode&0o100 != 0, perm: os.FileMode(st.Mode & 0o777)}, nil
	case unix.S_IFDIR:
		unix.Close(fd)
		return node{kind: directory}, nil
	}
	unix.Close(fd)
	return node{kind: special}, nil
}

func (t *tree) linkNode(path string) (node, error) {
	fd, err := t.openat(path, unix.O_PATH)
	if errors.Is(err, unix.ELOOP) {
		return node{kind: behindLink}, nil
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return node{kind: absent}, nil
	}
	if err != nil {
		return node{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil || n > maxPath {
		return node{}, &os.PathError{Op: "readlink", Path: path, Err: errors.Join(err, unix.EINVAL)}
	}
	return node{kind: symlink, target: string(buf[:n])}, nil
}

// reader opens a regular file again, for staging.
func (t *tree) reader(path string) (io.ReadCloser, error) {
	n, err := t.open(path)
	if err != nil {
		return nil, err
	}
	if n.kind != regular {
		return nil, fmt.Errorf("no longer a regular file: %w", ErrChanged)
	}
	return n.file, nil
}

// readRegular reads a file of at most limit bytes at a host path, not
// following a link at its end and not blocking on a FIFO.
func readRegular(path string, limit int64) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	n, err := regularNode(fd, path)
	if err != nil {
		return nil, err
	}
	if n.kind != regular {
		return nil, &os.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	defer n.file.Close()
	data, err := io.ReadAll(io.LimitReader(n.file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &os.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %d bytes", limit)}
	}
	return data, nil
}

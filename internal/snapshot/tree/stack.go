package tree

import (
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// strict is how a directory's own name is opened: beneath it, through no link,
// into no other mount.
const strict = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openBelow opens one name of an open directory. O_NONBLOCK: what lies there
// may have become a FIFO, and waiting for its other end would be forever.
func openBelow(dir int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: strict}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// window is how many directories of the way down are held open. A workload can
// nest them without end, so of a deeper way the upper part is closed and
// found again.
const window = 64

// level is one directory on the way down.
type level struct {
	name string
	fd   int // -1 while closed
	dev  uint64
	ino  uint64
}

// stack is the way from the root to the current directory.
type stack struct{ levels []level }

// push makes fd, which the stack then owns, the current directory.
func (s *stack) push(name string, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	s.levels = append(s.levels, level{name, fd, st.Dev, st.Ino})
	if old := len(s.levels) - 1 - window; old > 0 { // never the root
		unix.Close(s.levels[old].fd)
		s.levels[old].fd = -1
	}
	return nil
}

// pop leaves the current directory for the one above. One that was closed is
// opened again through "..", which a workload cannot forge; that it is the same
// as before shows that nobody moved the tree.
func (s *stack) pop() error {
	top := s.levels[len(s.levels)-1]
	s.levels = s.levels[:len(s.levels)-1]
	defer unix.Close(top.fd)
	if len(s.levels) == 0 {
		return nil
	}
	up := &s.levels[len(s.levels)-1]
	if up.fd >= 0 {
		return nil
	}
	fd, err := unix.Openat(top.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	up.fd = fd
	if st.Dev != up.dev || st.Ino != up.ino {
		return &Error{Kind: ErrChanged, Expected: "the directory above to be the same", Got: "another"}
	}
	return nil
}

// fd is the current directory.
func (s *stack) fd() int { return s.levels[len(s.levels)-1].fd }

// close closes what is open.
func (s *stack) close() {
	for _, l := range s.levels {
		if l.fd >= 0 {
			unix.Close(l.fd)
		}
	}
	s.levels = nil
}

// path names something in the current directory, for errors only.
func (s *stack) path(name string) string {
	var parts []string
	for _, l := range s.levels {
		parts = append(parts, l.name)
	}
	if p := path.Join(append(parts, name)...); p != "" {
		return p
	}
	return "."
}

// byHandle is a path of an open directory's name for the calls that take
// nothing else; the last component is never followed by the l-calls.
func byHandle(dir int, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name
}

// openRoot opens the directory where a tree begins. Its path is the caller's.
func openRoot(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, nil
}

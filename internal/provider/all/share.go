package all

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// share is this process's part in what all machines of a state directory have
// in common (the cgroup above theirs, a driver's empty network namespace).
// Every process that has a native provider open holds a shared lock; whoever
// closes last, and so gets the lock alone, removes what is common. Without it
// one process's end could pull the ground from under another's start.
type share struct{ lock *os.File }

// join waits while somebody removes what is common, which takes milliseconds.
func join(dir string) (*share, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_SH); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return &share{f}, nil
}

// leave ends the share and calls last if nobody else has one.
func (s *share) leave(last func() error) error {
	defer s.lock.Close()
	switch err := flock(s.lock, unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil
	case err != nil:
		return err
	}
	return last()
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// removeCgroup removes the cgroup that held the machines', in every hierarchy
// where it is empty.
func removeCgroup(name string) {
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*/" + name) // the pattern is well formed
	for _, dir := range append(dirs, "/sys/fs/cgroup/"+name) {
		_ = unix.Rmdir(dir) // still in use, or not there
	}
}

package lab

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Error is a step of building or using a lab that failed.
type Error struct {
	Step string // what was being done, with the namespace it was done in
	Err  error
}

func (e *Error) Error() string { return "egress lab: " + e.Step + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Namespace is a network namespace that lives as long as its descriptor.
type Namespace struct {
	Name string
	file *os.File
}

// newNamespace makes an empty one, with its loopback up.
func newNamespace(name string) (*Namespace, error) {
	n := &Namespace{Name: name}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, &Error{"make namespace " + name, err}
	}
	return n, nil
}

// Do runs f on a thread that is in the namespace. Sockets that f opens and
// processes that f starts belong to the namespace for good; goroutines that f
// starts do not run in it.
// Errors: of f as they are; *Error where the namespace cannot be entered.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return &Error{"enter namespace " + n.Name, err}
		}
		return f()
	})
}

// Spend runs f on a thread that is in the namespace and is thrown away after it:
// f may take it into other namespaces too.
// Errors: as Do's.
func (n *Namespace) Spend(f func() error) error {
	done := make(chan error, 1)
	go spend(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return &Error{"enter namespace " + n.Name, err}
		}
		return f()
	}, done)
	return <-done
}

// spend runs f on the thread of its goroutine and ends that thread. The first
// thread of a process cannot end: it would stay in the namespace for ever, and be
// what /proc shows of the process. So it waits for another one that can.
func spend(f func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		done <- f()
		return
	}
	defer runtime.UnlockOSThread()
	other := make(chan error, 1)
	go spend(f, other)
	done <- <-other
}

// Set writes one setting of the namespace, a path below net.
// Errors: of the operating system.
func (n *Namespace) Set(path, value string) error {
	return n.Do(func() error { return setting(path, value) })
}

// Inode identifies the namespace in /proc.
func (n *Namespace) Inode() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(n.file.Fd()), &st); err != nil {
		return 0, &Error{"stat namespace " + n.Name, err}
	}
	return st.Ino, nil
}

func (n *Namespace) close() {
	if n != nil {
		n.file.Close()
	}
}

// onThread runs f on a thread of its own and brings the thread back to where it
// came from. One that cannot go back is never used again: Go ends a thread
// whose goroutine ends while it is locked.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = f()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// setting writes one setting of the network of the thread's namespace.
func setting(path, value string) error {
	if err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0); err != nil {
		return fmt.Errorf("set net/%s to %s: %w", path, value, err)
	}
	return nil
}

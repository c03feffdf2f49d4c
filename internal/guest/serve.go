package guest

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// server starts the commands of the host. Its lock is held over every fork and
// over every reap: so a number that the kernel gives out again can never be
// taken for the command that had it before, and an exit is never seen before
// its command is known.
type server struct {
	socket *socket
	oom    int // our own oom_score_adj

	mu     sync.Mutex
	byPid  map[int]uint32
	byName map[uint32]int
}

// serve is the "serve" mode. It returns when the owner is gone (nil), or with
// the reason why it could not go on; either way the process ends, and as PID 1
// takes the machine with it.
func serve(fd int, forwards []string) error {
	if fd < 3 {
		return refuse("FD", "3 or more", fd)
	}
	// What the runtime left open is not for commands, and neither is the socket.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return os.NewSyscallError("close_range", err)
	}
	// Once not dumpable, our own files in /proc are root's.
	oom, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/proc/self/oom_score_adj", Err: err}
	}
	if err := harden(); err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return os.NewSyscallError("socket", err)
	}
	conn, err := newSocket(os.NewFile(uintptr(fd), "host"))
	if err != nil {
		return err
	}
	reserveThreads()
	s := &server{socket: conn, oom: oom, byPid: map[int]uint32{}, byName: map[uint32]int{}}
	children := childSignals()
	if os.Getpid() == 1 {
		if err := deafen(); err != nil {
			return err
		}
	}
	// Whoever is greeted may start commands, and those may connect at once.
	if err := startForwards(forwards); err != nil {
		return err
	}
	if err := conn.write(message(kindHello, 0, 0, []byte{version}), nil); err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- s.requests() }()
	go func() { failed <- s.reap(children) }()
	if err := <-failed; err != io.EOF {
		return err
	}
	return nil
}

// reserveThreads makes the threads that the runtime may want later. A fork
// bomb can use up the machine's process limit, and a runtime that is refused a
// thread ends the process.
func reserveThreads() {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			pause := unix.NsecToTimespec(int64(500 * time.Microsecond))
			unix.Nanosleep(&pause, nil)
		})
	}
	all.Wait()
}

func (s *server) requests() error {
	for {
		h, body, fds, err := s.socket.read(true, MaxMessage)
		if err != nil {
			return err
		}
		switch h.kind {
		case kindStart:
			var r *startRequest
			if r, err = parseStart(body); err == nil && r.files() != len(fds) {
				err = refuse("descriptors", "as many as the request says", len(fds))
			}
			if err == nil {
				err = s.start(h.command, r, fds)
			}
		case kindSignal:
			err = s.signal(h.command, body)
		default:
			err = refuse("kind", "a request", int(h.kind))
		}
		closeAll(fds)
		if err != nil {
			return err
		}
	}
}

// start answers the request with started or failed. An error is the socket's.
func (s *server) start(name uint32, r *startRequest, fds []int) error {
	attr := &syscall.ProcAttr{Dir: r.dir, Env: r.env, Sys: &syscall.SysProcAttr{Setsid: true}}
	null := -1
	defer func() {
		if null >= 0 {
			unix.Close(null)
		}
	}()
	rest := fds
	for _, isNull := range r.null {
		if !isNull {
			attr.Files = append(attr.Files, uintptr(rest[0]))
			rest = rest[1:]
			continue
		}
		if null < 0 {
			var err error
			if null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
				return s.answer(kindFailed, name, failure("/dev/null", err).encode())
			}
		}
		attr.Files = append(attr.Files, uintptr(null))
	}
	if r.cgroup {
		// Born in its cgroup: there is no moment at which a child of the
		// command could be outside of it.
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, rest[0]
	}
	path, fail := lookPath(r)
	if fail != nil {
		return s.answer(kindFailed, name, fail.encode())
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.byName[name]; used {
		return refuse("command", "a number of its own", int(name))
	}
	// Commands are born as the ones to take when memory runs out; otherwise a
	// crowd of small ones could have the kernel choose init. Going back down to
	// where we were needs no privilege.
	unix.Pwrite(s.oom, []byte("500"), 0)
	pid, err := syscall.ForkExec(path, r.argv, attr)
	unix.Pwrite(s.oom, []byte("0"), 0)
	if err != nil {
		return s.answer(kindFailed, name, failure(path, err).encode())
	}
	s.byPid[pid], s.byName[name] = name, pid
	return s.answer(kindStarted, name, nil)
}

func (s *server) signal(name uint32, body []byte) error {
	if len(body) != 1 {
		return refuse("signal", "1 byte", len(body))
	}
	if body[0] == 0 || body[0] > 64 {
		return refuse("signal", "one of 1 to 64", int(body[0]))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pid, ok := s.byName[name]; ok {
		// Not reaped, so the number is still this command's.
		syscall.Kill(pid, syscall.Signal(body[0]))
	}
	return s.answer(kindSignalled, name, nil)
}

func (s *server) reap(children <-chan os.Signal) error {
	for range children {
		for more := true; more; {
			var err error
			if more, err = s.reapNext(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *server) reapNext() (more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, status := reapOne()
	if pid <= 0 {
		return false, nil
	}
	name, ok := s.byPid[pid]
	if !ok {
		return true, nil // an orphan
	}
	delete(s.byPid, pid)
	delete(s.byName, name)
	exit := Exit{}
	if status.Signaled() {
		exit.Signal = status.Signal()
	} else {
		exit.Code = status.ExitStatus()
	}
	return true, s.answer(kindExited, name, exit.encode())
}

// answer is called with the lock held or before the command exists, so that
// started always precedes exited.
func (s *server) answer(k kind, name uint32, body []byte) error {
	return s.socket.write(message(k, name, 0, body), nil)
}

func failure(path string, err error) *StartFailure {
	errno, ok := err.(syscall.Errno)
	if !ok || errno == 0 {
		errno = syscall.EINVAL
	}
	return &StartFailure{Path: path, Errno: errno}
}

package guest

import (
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NurseryEnv names the environment variable that has "init" keep a nursery: a
// process of the workload's user, started by init, that starts what "detach" asks it
// for. Its value is that user's id.
//
// A restored machine ends whatever descends from a command of the host, because the
// host's end of that is gone. What descends from init goes on. And a command's end
// takes with it all that descends from the command, which what the nursery starts
// does not.
const NurseryEnv = "CHECKFU_NURSERY"

// nurseryName is the nursery's socket, in the machine's abstract names.
const nurseryName = "@checkfu-nursery"

// nurseryBound is how long one request to the nursery may take.
const nurseryBound = 15 * time.Second

// nurseryFD is the nursery's listening socket.
const nurseryFD = 3

// startNursery starts the nursery and gives up every capability. It needs SETUID and
// SETGID, to become the workload's user, and SETPCAP, so that not even the bounding set
// of the nursery holds one. Nothing of the workload runs yet: the owner waits for the
// word that init is ready.
func startNursery(user string) error {
	id, err := strconv.ParseUint(user, 10, 31)
	if err != nil || id == 0 {
		return &WireError{Field: NurseryEnv, Want: "a user id above 0", Got: user}
	}
	listener, err := listenNursery()
	if err != nil {
		return err
	}
	defer unix.Close(listener)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	defer unix.Close(null)
	// Nothing of the owner's is for the workload.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return os.NewSyscallError("close_range", err)
	}
	// The child is forked from this thread and has its bounding set.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL && c > 0 {
			break // the last one is behind us
		} else if err != nil {
			return os.NewSyscallError("prctl PR_CAPBSET_DROP", err)
		}
	}
	_, err = syscall.ForkExec("/proc/self/exe", []string{"checkfu-init", "nursery"}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOTRACEBACK=none"},
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(listener)},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}},
	})
	if err != nil {
		return os.NewSyscallError("start the nursery", err)
	}
	return dropCapabilities()
}

// dropCapabilities empties the capability sets of every thread.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}

func listenNursery() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: nurseryName}); err == nil {
		err = unix.Listen(fd, 64)
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("listen on "+nurseryName, err)
	}
	return fd, nil
}

// runNursery is the "nursery" mode. It ends with its machine.
func runNursery() error {
	// Caught, not ignored: see harden. Its user is the workload's, which can end it all
	// the same, and then starts nothing detached any more.
	signal.Notify(make(chan os.Signal, 1))
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl PR_SET_DUMPABLE", err)
	}
	unix.CloseOnExec(nurseryFD)
	go func() {
		for range childSignals() {
			for {
				if pid, _ := reapOne(); pid <= 0 {
					break
				}
			}
		}
	}()
	for {
		fd, _, err := unix.Accept4(nurseryFD, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch err {
		case nil:
			go nurse(os.NewFile(uintptr(fd), "request"))
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EMFILE, unix.ENFILE, unix.ENOMEM:
			pause := unix.NsecToTimespec(int64(10 * time.Millisecond)) // what is under way ends
			unix.Nanosleep(&pause, nil)
		default:
			return os.NewSyscallError("accept", err)
		}
	}
}

// nurse starts what one request asks for and answers it.
func nurse(conn *os.File) {
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(nurseryBound)) != nil {
		return
	}
	s, err := newSocket(conn)
	if err != nil {
		return
	}
	h, body, fds, err := s.read(true, MaxMessage)
	if err != nil {
		return
	}
	defer closeAll(fds)
	r, err := parseStart(body)
	if err != nil || h.kind != kindStart || r.cgroup || r.files() != len(fds) {
		return // whoever asked so is not "detach"
	}
	pid, fail := spawn(r, fds)
	if fail != nil {
		_ = s.write(message(kindFailed, 0, 0, fail.encode()), nil)
		return
	}
	_ = s.write(message(kindStarted, uint32(pid), 0, nil), nil)
}

// spawn starts a program in a session of its own.
func spawn(r *startRequest, fds []int) (int, *StartFailure) {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, failure("/dev/null", err)
	}
	defer unix.Close(null)
	attr := &syscall.ProcAttr{Dir: r.dir, Env: r.env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, isNull := range r.null {
		if isNull {
			attr.Files = append(attr.Files, uintptr(null))
			continue
		}
		attr.Files = append(attr.Files, uintptr(fds[0]))
		fds = fds[1:]
	}
	path, fail := lookPath(r)
	if fail != nil {
		return 0, fail
	}
	pid, err := syscall.ForkExec(path, r.argv, attr)
	if err != nil {
		return 0, failure(path, err)
	}
	return pid, nil
}

// DetachCommand is what to start in a machine that has a nursery so that command goes
// on when the command that asked for it has ended: output is the file, absolute or
// relative to its working directory, to which both its streams are appended, or
// "/dev/null". It prints the process's number in the machine and ends with 0, or with
// 127 or 126 where there is no such program or it cannot be run.
func DetachCommand(init, output string, command []string) []string {
	return append([]string{init, "detach", output}, command...)
}

// runDetach is the "detach" mode.
func runDetach(args []string, stdout io.Writer) (int, error) {
	output, argv := args[0], args[1:]
	dir, err := unix.Getwd()
	if err != nil {
		return 1, os.NewSyscallError("getcwd", err)
	}
	r := &startRequest{null: [3]bool{true, true, true}, dir: dir, argv: argv, env: os.Environ()}
	var fds []int
	if output != "/dev/null" {
		fd, err := unix.Open(output, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return 1, &os.PathError{Op: "open", Path: output, Err: err}
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return 1, &os.PathError{Op: "stat", Path: output, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return 1, &WireError{Field: "output", Want: "a regular file or /dev/null", Got: output}
		}
		if err := unix.SetNonblock(fd, false); err != nil {
			return 1, os.NewSyscallError("fcntl", err)
		}
		r.null, fds = [3]bool{true, false, false}, []int{fd, fd}
	}
	pid, err := askNursery(r, fds)
	if err != nil {
		code := 1
		if fail, ok := err.(*StartFailure); ok {
			switch code = 126; fail.Errno {
			case unix.ENOENT:
				code = 127
			case unix.EAGAIN, unix.ENOMEM:
				code = 1
			}
		}
		return code, err
	}
	_, err = io.WriteString(stdout, strconv.Itoa(pid)+"\n")
	return 0, err
}

// askNursery has the nursery start something.
func askNursery(r *startRequest, fds []int) (int, error) {
	body, err := r.encode()
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: nurseryName}); err != nil {
		unix.Close(fd)
		return 0, os.NewSyscallError("this machine starts nothing detached: connect", err)
	}
	conn := os.NewFile(uintptr(fd), "nursery")
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(nurseryBound)); err != nil {
		return 0, err
	}
	s, err := newSocket(conn)
	if err != nil {
		return 0, err
	}
	if err := s.write(message(kindStart, 0, len(fds), body), fds); err != nil {
		return 0, err
	}
	h, answer, _, err := s.read(false, maxAnswer)
	switch {
	case err != nil:
		return 0, err
	case h.kind == kindStarted:
		return int(h.command), nil
	case h.kind != kindFailed:
		return 0, refuse("answer", "started or failed", int(h.kind))
	}
	fail, err := parseFailure(answer)
	if err != nil {
		return 0, err
	}
	return 0, fail
}

package guest

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PtyCommand is what to start in a machine, as an ordinary command of its
// workload, for a command on a terminal of the machine's own; init is where the
// guest init lies there. Standard input takes a Keyboard's frames, standard
// output shows what the terminal shows, and the exit is the command's, 128+n
// where signal n ended it. No command is a shell: bash where there is one, else
// sh. When standard input ends, or SIGTERM or SIGINT comes, the terminal is hung
// up.
func PtyCommand(init string, size TerminalSize, command []string) []string {
	return append([]string{init, "pty", size.String()}, command...)
}

const (
	// hangUpBound is how long a command may take to end after its terminal went.
	// Whoever started us then kills what is left.
	hangUpBound = 2 * time.Second
	// quietBound is how long a terminal is quiet before its last word counts as
	// said, where something that stays in the background still holds it.
	quietBound = 100 * time.Millisecond
	// lastBound is how long the last word is waited for in all: something in the
	// background may never be quiet.
	lastBound = time.Second
	// lastWords bounds what is shown after the command has ended, in bytes: more
	// than a terminal keeps.
	lastWords = 1 << 20
)

// runPty is the "pty" mode. The terminal is one of the machine's own devpts:
// none of the host's comes into a machine, so nothing that is typed into, or
// pasted over, a terminal in there can reach the host.
func runPty(args []string, in io.Reader, out io.Writer) (code int, err error) {
	size, err := parseTerminalSize(args[0])
	if err != nil {
		return 0, err
	}
	// Before the command is there: what comes meanwhile is for its terminal.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	master, slave, err := openPty(size)
	if err != nil {
		return 0, err
	}
	defer master.Close()
	pid, err := startOn(slave, args[1:])
	slave.Close()
	if failed, is := err.(*StartFailure); is {
		io.WriteString(os.Stderr, failed.Error()+"\n")
		if failed.Errno == syscall.ENOENT {
			return 127, nil
		}
		return 126, nil
	}
	if err != nil {
		return 0, err
	}

	ended := make(chan int, 1)
	go func() { ended <- waitFor(pid) }()
	shown := make(chan error, 1)
	go func() { shown <- show(master, out) }()
	left := make(chan error, 1)
	go func() { left <- typeInto(master, in) }()
	select {
	case code = <-ended:
		// What it said last may still be on its way, to somebody who is slow.
		rest := make(chan struct{})
		go func() {
			defer close(rest)
			master.SetReadDeadline(time.Now())
			<-shown
			showRest(master, out)
		}()
		select {
		case <-rest:
		case <-stop: // he has seen enough
		}
		return code, nil
	case <-stop:
	case err = <-left:
	}
	hangUpTerminal(master, pid)
	bound := time.NewTimer(hangUpBound)
	defer bound.Stop()
	select {
	case code = <-ended:
	case <-bound.C:
		code = 128 + int(syscall.SIGHUP)
	}
	return code, err
}

// openPty makes a terminal. Its other end is asked of the kernel and not looked
// up by a name.
func openPty(size TerminalSize) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	master = os.NewFile(uintptr(fd), "terminal")
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
		err = resize(fd, size)
	}
	var peer uintptr
	if err == nil {
		var errno syscall.Errno
		if peer, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC); errno != 0 {
			err = errno
		}
	}
	if err != nil {
		master.Close()
		return nil, nil, os.NewSyscallError("terminal", err)
	}
	return master, os.NewFile(peer, "terminal"), nil
}

func resize(fd int, s TerminalSize) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Columns})
}

// startOn starts the command, or a shell, as the leader of a session whose
// terminal this is.
// Errors: *StartFailure; else the terminal's.
func startOn(slave *os.File, command []string) (pid int, err error) {
	if len(command) == 0 {
		command = []string{"/bin/sh"}
		if unix.Access("/bin/bash", unix.X_OK) == nil {
			command[0] = "/bin/bash"
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	request := &startRequest{dir: dir, argv: command, env: os.Environ()}
	path, failed := lookPath(request)
	if failed != nil {
		return 0, failed
	}
	pid, err = syscall.ForkExec(path, command, &syscall.ProcAttr{
		Env: request.env, Files: []uintptr{slave.Fd(), slave.Fd(), slave.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	})
	if err != nil {
		return 0, failure(path, err)
	}
	return pid, nil
}

// waitFor is how the command ended, as a shell says it.
func waitFor(pid int) int {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err == nil && status.Signaled():
			return 128 + int(status.Signal())
		case err == nil:
			return status.ExitStatus()
		default:
			return 128 + int(syscall.SIGKILL) // nobody knows
		}
	}
}

// show passes on what the terminal shows, until nobody holds it any more, its
// deadline, or the end of whoever looks.
func show(master *os.File, out io.Writer) error {
	buffer := make([]byte, tunnelBuffer)
	for {
		n, err := master.Read(buffer)
		if n > 0 {
			if _, werr := out.Write(buffer[:n]); werr != nil {
				return werr
			}
		}
		if err != nil {
			return err
		}
	}
}

// showRest passes on what a terminal still holds whose command has ended: until it
// is quiet, or was waited for or has said enough in all. Whoever looks and is slow
// takes none of that time. The time is the kernel's to keep: what is there is read,
// however late it is.
func showRest(master *os.File, out io.Writer) {
	raw, err := master.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, tunnelBuffer)
	for said, left := 0, lastBound; said < lastWords && left > 0; {
		began, n := time.Now(), 0
		if raw.Control(func(fd uintptr) { n = readWithin(int(fd), buffer, min(left, quietBound)) }) != nil || n == 0 {
			return
		}
		left -= time.Since(began)
		said += n
		if _, err := out.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// readWithin reads what a terminal shows within some time: 0 bytes is nothing, or
// that nobody holds it any more.
func readWithin(fd int, buffer []byte, within time.Duration) int {
	until := time.Now().Add(within)
	for {
		wait := max(0, time.Until(until))
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int((wait+time.Millisecond-1)/time.Millisecond))
		n, rerr := unix.Read(fd, buffer)
		switch {
		case n > 0:
			return n
		case err != unix.EINTR && rerr != unix.EINTR, wait == 0:
			return 0
		}
	}
}

// hangUpTerminal takes the terminal away and says so to what runs in front on it
// and to who leads its session: not every kernel does.
func hangUpTerminal(master *os.File, leader int) {
	if raw, err := master.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if group, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err == nil && group > 1 {
				syscall.Kill(-group, syscall.SIGHUP)
			}
		})
	}
	syscall.Kill(leader, syscall.SIGHUP)
	master.Close()
}

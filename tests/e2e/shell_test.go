package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// person sits at a real terminal of this host, on which the product runs.
type person struct {
	t      *testing.T
	cmd    *exec.Cmd
	key    *os.File // the other side of the terminal
	slave  *os.File // kept open, so that its state can be looked at afterwards
	before unix.Termios
	seen   string
}

func sit(t *testing.T, args ...string) *person {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	key := os.NewFile(uintptr(fd), "terminal")
	t.Cleanup(func() { key.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	p := &person{t: t, cmd: command(t, args...), key: key, slave: slave}
	p.resizes(30, 100)
	p.before = p.state()
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.Env = append(p.cmd.Env, "TERM=xterm-256color")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	key.SetReadDeadline(time.Now().Add(2 * time.Minute))
	return p
}

func (p *person) state() unix.Termios {
	p.t.Helper()
	s, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *s
}

func (p *person) resizes(rows, columns uint16) {
	p.t.Helper()
	raw, err := p.key.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
		}), err)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := p.key.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits until the terminal shows text, after what was waited for before.
func (p *person) sees(text string) {
	p.t.Helper()
	buffer := make([]byte, 4096)
	for {
		if _, rest, ok := strings.Cut(p.seen, text); ok {
			p.seen = rest
			return
		}
		n, err := p.key.Read(buffer)
		p.seen += string(buffer[:n])
		if err != nil {
			p.t.Fatalf("%q is not seen: %v: %q", text, err, p.seen)
		}
	}
}

// leaves waits for the end, and looks whether the terminal is as it was.
func (p *person) leaves(code int) {
	p.t.Helper()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		buffer := make([]byte, 4096)
		for {
			n, err := p.key.Read(buffer)
			p.seen += string(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	_ = p.cmd.Wait()
	if after := p.state(); after != p.before {
		p.t.Errorf("the terminal was %+v and is %+v", p.before, after)
	}
	p.slave.Close()
	<-drained
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit %d, want %d: %.2000q", got, code, p.seen)
	}
}

func TestShell(t *testing.T) {
	for i, provider := range providers {
		id := session(t, provider, "--id", name(t, provider, 40+i))
		s := sessions(t)[id]
		machines = append(machines, s.InstanceID)

		p := sit(t, "shell", id, "--env", "PS1=here> ", "--workdir", "/tmp")
		p.sees("here> ")
		p.types("pwd; tty; stty size; echo $TERM\n")
		p.sees("/tmp\r\n")
		p.sees("/dev/pts/")
		p.sees("30 100\r\nxterm-256color\r\n")
		// It is the machine's own terminal, and the only one that there is.
		p.types("ls /dev/pts | grep -c '[0-9]'; readlink /proc/self/fd/2\n")
		p.sees("1\r\n/dev/pts/0\r\n")
		p.resizes(45, 120)
		p.types("while [ \"$(stty size)\" != '45 120' ]; do sleep 0.1; done; echo re''sized\n")
		p.sees("resized\r\n")

		// Ctrl-C ends what runs in front, and not the shell, also where a line was
		// typed that nobody reads, which then is gone.
		p.types("sh -c 'echo be''gun; exec sleep 1000'\n")
		p.sees("begun\r\n")
		p.types("exit 9\n")
		p.sees("exit 9\r\n")
		p.types("\x03")
		p.sees("here> ")
		p.types("echo left $?\n")
		p.sees("left 130\r\n")

		// A program that wants each key gets each key.
		p.types("stty raw -echo; echo re''ady; dd bs=1 count=5 2>/dev/null | od -An -tx1; stty -raw echo\n")
		p.sees("ready")
		p.types("\x1b\x03\x04\x1a\r")
		p.sees("1b 03 04 1a 0d")

		// There is room for one command, and this is it.
		if r := run(t, "session", "exec", id, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "another command runs in it") {
			t.Errorf("%d, %s", r.code, r.stderr)
		}
		p.types("sleep 1000 & exit 7\n")
		p.leaves(7)
		if got := inside(t, id, "ps | grep -c '[s]leep 1000'; true"); got != "0\n" {
			t.Errorf("%s: left in the machine: %q", provider, got)
		}

		// What it says last is seen, and the command's exit is the product's.
		p = sit(t, "shell", id, "--", "sh", "-c", "seq 1 20000; kill -9 $$")
		p.sees("\r\n19999\r\n20000\r\n")
		p.leaves(137)
		p = sit(t, "shell", id, "--", "no-such-program")
		p.leaves(127)
		if !strings.Contains(p.seen, "checkfu: start no-such-program: no such file") {
			t.Errorf("%q", p.seen)
		}

		// A terminal that goes away takes the other along.
		p = sit(t, "shell", id, "--", "sh", "-c", "echo be''gun; sleep 1000")
		p.sees("begun\r\n")
		kill(p.cmd, syscall.SIGHUP)
		p.leaves(143)
		if got := inside(t, id, "ps | grep -c '[s]leep 1000'; true"); got != "0\n" {
			t.Errorf("%s: left in the machine: %q", provider, got)
		}

		// So does who ends the product with a key that is not the product's.
		p = sit(t, "shell", id, "--", "sh", "-c", "echo be''gun; sleep 1000")
		p.sees("begun\r\n")
		kill(p.cmd, syscall.SIGQUIT)
		p.leaves(143)

		// A machine that is killed gives the terminal back.
		p = sit(t, "shell", id, "--env", "PS1=here> ")
		p.sees("here> ")
		if err := syscall.Kill(s.KeeperPID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.leaves(125)
		if !strings.Contains(p.seen, "session "+id+" has ended, and the shell with it\r\n") {
			t.Errorf("%q", p.seen)
		}
		mustRun(t, "session", "rm", id)
		nothingLeft(t)
	}
}

func TestShell_NoTerminal(t *testing.T) {
	cmd := command(t, "shell", "ses_0123456789abcdef01234567")
	cmd.Stdin = bytes.NewReader(nil)
	if r := finish(t, cmd); r.code != 2 || !strings.Contains(r.stderr, "without one use: checkfu session exec ses_0123456789abcdef01234567 -- COMMAND") {
		t.Errorf("%d, %s", r.code, r.stderr)
	}
	p := sit(t, "shell", "ses_0123456789abcdef01234567")
	p.leaves(2)
	if !strings.Contains(p.seen, "SESSION: expected a session") {
		t.Errorf("%q", p.seen)
	}
}

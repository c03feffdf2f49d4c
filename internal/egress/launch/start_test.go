package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStartAndStop(t *testing.T) {
	p, addr := start(t, "")
	if err := echo(t, addr); err != nil {
		t.Fatal(err)
	}
	if start := string(p.Start); !strings.HasPrefix(start, "listens, ") || !strings.HasSuffix(start, "\n") {
		t.Errorf("%q", start)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.Err() != nil || p.Said() != "" {
		t.Errorf("%v, %q", p.Err(), p.Said())
	}
	if err := echo(t, addr); err == nil {
		t.Error("it still answers")
	}
	gone(t, p.PID)
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
}

// Every thread of the process has patience, also those that the runtime makes
// before any line of ours; and no thread of the starter has.
func TestTimersMayBeLate(t *testing.T) {
	p, _ := start(t, "")
	for pid, want := range map[int]bool{p.PID: true, os.Getpid(): false} {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(threads) < 2 {
			t.Fatalf("%d threads of %d, %v", len(threads), pid, err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile("/proc/" + filepath.Base(thread) + "/timerslack_ns")
			if errors.Is(err, os.ErrNotExist) {
				continue // it ended
			}
			if got := strings.TrimSpace(string(text)); err != nil || (got == strconv.Itoa(int(slack))) != want {
				t.Errorf("process %d, thread %s: %q, %v", pid, thread, got, err)
			}
		}
	}
}

// The next policy revision's guard begins on the listener of the one before,
// which still ends as it is told to.
func TestTheNextOnOneListener(t *testing.T) {
	l, addr := listening(t)
	var last *Process
	for range 3 {
		p, err := self(t).Guard(t.Context(), nil, l, logFile(t))
		if err != nil {
			t.Fatal(err)
		}
		if last != nil {
			if err := last.Stop(t.Context()); err != nil || last.Err() != nil {
				t.Error(err, last.Err())
			}
		}
		if err := echo(t, addr); err != nil {
			t.Error(err)
		}
		last = p
	}
	if err := last.Stop(t.Context()); err != nil || last.Err() != nil {
		t.Error(err, last.Err())
	}
}

// What does not begin is an error that says why, and leaves nothing.
func TestWhatDoesNotBegin(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for config, c := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"refuse": {nil, "exit status 2: echo: allow: expected a list, got none"},
		"fail":   {nil, "exit status 1: echo: it cannot"},
		"silent": {nil, "nothing within 100ms"},
		"long":   {nil, "a first line of more than 65536 bytes"},
		"":       {over, "context canceled"},
	} {
		t.Run(config, func(t *testing.T) {
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			l, _ := listening(t)
			starter := self(t)
			if config == "silent" {
				starter.Patience = 100 * time.Millisecond
			}
			_, err := starter.Guard(ctx, []byte(config), l, logFile(t))
			if failed, ok := errors.AsType[*StartError](err); !ok || !strings.Contains(failed.Error(), c.want) || strings.Contains(failed.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := self(t).Guard(t.Context(), nil, nil, logFile(t)); err == nil {
		t.Error("without a listener")
	}
	l, _ := listening(t)
	notListening := logFile(t)
	if _, err := self(t).Guard(t.Context(), nil, notListening, logFile(t)); err == nil || !strings.Contains(err.Error(), "descriptor 5: expected a listening socket") {
		t.Errorf("%v", err)
	}
	script, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer script.Close()
	if _, err := (Launcher{Executable: script}).Guard(t.Context(), nil, l, logFile(t)); !errors.Is(err, syscall.EACCES) {
		t.Errorf("not executable: %v", err)
	}
}

// A crash is told, and its process is no zombie.
func TestACrashIsTold(t *testing.T) {
	l, _ := listening(t)
	p, err := self(t).Guard(t.Context(), []byte("crash"), l, logFile(t))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	exit, ok := errors.AsType[*exec.ExitError](p.Err())
	if !ok || exit.ExitCode() != 2 || !strings.Contains(p.Said(), "panic: it falls") || len(p.Said()) > tailSize {
		t.Errorf("%v, %q", p.Err(), p.Said())
	}
	gone(t, p.PID)
}

// What does not listen to SIGTERM ends itself, late; and is killed where nobody
// waits for that.
func TestADeafProcessEnds(t *testing.T) {
	hurry, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"by itself": {context.Background(), "exit status 3"},
		"killed":    {hurry, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := listening(t)
			p, err := self(t).Guard(t.Context(), []byte("deaf"), l, logFile(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Stop(c.ctx); err != nil || p.Err() == nil || p.Err().Error() != c.want {
				t.Errorf("%v, %v", err, p.Err())
			}
			gone(t, p.PID)
		})
	}
}

// Nobody reads the log: the program is told so in time, and not held.
func TestALogThatStalls(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	l, _ := listening(t)
	p, err := self(t).Guard(t.Context(), []byte("flood"), l, w)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if !strings.Contains(p.Said(), "i/o timeout") {
		t.Errorf("%v, %q", p.Err(), p.Said())
	}
}

// A process does not outlive its starter, however that ends, and is its user
// where the starter is not root.
func TestTheStarterDies(t *testing.T) {
	const ordinary = 65519
	for _, uid := range []int{os.Geteuid(), ordinary} {
		t.Run(fmt.Sprint("started by user ", uid), func(t *testing.T) { starterDies(t, uid) })
	}
}

func starterDies(t *testing.T, uid int) {
	starter := &exec.Cmd{Path: "/proc/self/exe", Args: []string{starterName}, Stderr: os.Stderr, Dir: "/"}
	runsAs := uid
	if uid != os.Geteuid() {
		starter.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	} else if uid == 0 {
		runsAs = GuardUID
	}
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = starter.Wait() }()
	defer func() { _ = starter.Process.Kill() }()
	var pid int
	var addr string
	if _, err := fmt.Fscan(out, &pid, &addr); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := echo(t, addr); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", runsAs)) {
		t.Errorf("%s, %v", status, err)
	}
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			t.Fatal("it lives on", err)
		}
		return
	}
}

const starterName = "starter"

// starterOfOne starts one process, says where it is, and waits to be killed.
func starterOfOne() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		panic(err)
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	p, err := Launcher{Executable: exe}.Guard(context.Background(), nil, f, null)
	if err != nil {
		panic(err)
	}
	fmt.Println(p.PID, l.Addr())
	select {}
}

// Whatever the starter has open, at whatever numbers, the process has its own
// things in their places and nothing more.
func TestNothingLeaks(t *testing.T) {
	// Not closed at an exec, as a careless library leaves it.
	leaked, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leaked)
	before := openFiles(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			l, addr := listening(t)
			p, err := self(t).Guard(t.Context(), nil, l, logFile(t))
			if err != nil {
				t.Error(err)
				return
			}
			if err := echo(t, addr); err != nil {
				t.Error(err)
			}
			for fd := range 64 {
				target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.PID, fd))
				if err == nil && (target == "/etc/passwd" || strings.HasPrefix(target, "/memfd:")) {
					t.Errorf("descriptor %d is %s", fd, target)
				}
			}
			if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID)); err != nil || len(env) > 0 {
				t.Errorf("environment %q, %v", env, err)
			}
			if sid, err := unix.Getsid(p.PID); err != nil || sid != p.PID {
				t.Errorf("session %d, %v", sid, err)
			}
			if err := p.Stop(context.Background()); err != nil || p.Err() != nil {
				t.Error(err, p.Err())
			}
		})
	}
	all.Wait()
	// The tests' own listeners and logs, and what it cost to start the first one.
	if after := openFiles(t); after > before+8*3 {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// gone fails where the process is still there, also as a zombie.
func gone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d: %v", pid, err)
	}
}

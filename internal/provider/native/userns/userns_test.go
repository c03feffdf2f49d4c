package userns

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/userns/usernstest"
)

// envDo names what a child of a test does inside, in the place of the tests.
const envDo = "CHECKFU_TEST_USERNS"

func TestMain(m *testing.M) {
	Dispatch()
	do := os.Getenv(envDo)
	switch {
	case do == "lacks":
		for _, l := range Lacks() {
			fmt.Println(l.What + " | " + l.Remedy)
		}
	case do != "" && !Inside():
		code, err := Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
		if err != nil {
			fmt.Println(err)
		}
		os.Exit(code)
	case do != "":
		os.Exit(actions[do]())
	case os.Geteuid() != 0:
		fmt.Println("SKIP userns: needs root, to make an ordinary user")
	default:
		os.Exit(m.Run())
	}
}

// actions are what is done inside.
var actions = map[string]func() int{
	"look": func() int {
		for _, path := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
			text, err := os.ReadFile(path)
			fmt.Println(path, strings.Join(strings.Fields(string(text)), " "), err)
		}
		var st unix.Statfs_t
		err := unix.Statfs(Dir, &st)
		fmt.Println("pid", os.Getpid(), "uid", os.Geteuid(), "gid", os.Getegid(), "private", st.Type == unix.TMPFS_MAGIC, err)
		fmt.Println("owner", Owner(), "args", os.Args)
		return 0
	},
	"work": func() int {
		path, err := Bind(os.Getenv("HOME") + "/state")
		if err != nil {
			fmt.Println(err)
			return 1
		}
		again, err := Bind(os.Getenv("HOME") + "/state")
		fmt.Println("again", again == path, err, "origin", Origin(path+"/x/y"), Origin("/x"))
		for _, id := range []int{0, Base, Base + Size - 1} {
			file := fmt.Sprint(path, "/", id)
			err := os.WriteFile(file, nil, 0o600)
			fmt.Println(id, err, os.Chown(file, id, id))
		}
		fmt.Println("unmapped", os.Chown(path+"/0", 1, 1) != nil, os.Chown(path+"/0", Base+Size, 0) != nil)
		fmt.Println("tmpfs", os.Mkdir(path+"/m", 0o700), unix.Mount("t", path+"/m", "tmpfs", 0, "size=4096"))
		fmt.Println("nested", (&exec.Cmd{Path: "/bin/true", SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: Base, Size: Size}}}}).Run())
		return 0
	},
	// Of two pipes of which this process has both ends, or one, a program gets the latter.
	"pipes": func() int {
		var both, one [2]int
		fmt.Println(unix.Pipe(both[:]), unix.Pipe(one[:]), unix.Close(one[1]))
		keepPairs()
		for _, fd := range append(both[:], one[0]) {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			fmt.Println("kept", flags == unix.FD_CLOEXEC, err)
		}
		return 0
	},
	"exit 7": func() int { return 7 },
	"die":    func() int { panic("it falls") },
	// Process 1 dies of no signal that it does not handle, as one of an ordinary process.
	"signals": func() int {
		c := make(chan os.Signal, 16)
		signal.Notify(c, unix.SIGINT, unix.SIGHUP, unix.SIGTERM)
		fmt.Println("ready")
		for s := range c {
			fmt.Println(s)
			if s == unix.SIGTERM {
				break
			}
		}
		return 0
	},
	"wait": func() int {
		cmd := exec.Command("sleep", "1000") // of whom nobody takes leave
		fmt.Println("started", cmd.Start())
		_, _ = io.ReadAll(os.Stdin)
		return 0
	},
}

// child prepares this binary as the user's program that does something inside.
func child(t *testing.T, u *usernstest.User, do string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := u.Command(u.Give(t, self, 0o755), "one", "two words")
	cmd.Env = append(cmd.Env, envDo+"="+do)
	return cmd
}

func TestInside(t *testing.T) {
	for _, c := range []struct {
		do   string
		code int
		want []string
	}{
		{"look", 0, []string{
			"/proc/self/uid_map 0 USER 1 BASE FIRST 65536 <nil>", "/proc/self/gid_map 0 USER 1 BASE FIRST 65536 <nil>",
			"pid 1 uid 0 gid 0 private true <nil>",
			"args [checkfu one two words]",
		}},
		{"work", 0, []string{
			"again true <nil> origin ", "/home/state/x/y /x", "0 <nil> <nil>", fmt.Sprint(Base, " <nil> <nil>"), fmt.Sprint(Base+Size-1, " <nil> <nil>"), "unmapped true true",
			"tmpfs <nil> <nil>", "nested <nil>",
		}},
		{"pipes", 0, []string{"kept true <nil>\nkept true <nil>\nkept false <nil>"}},
		{"exit 7", 7, nil},
		{"die", 2, []string{"it falls"}},
	} {
		t.Run(c.do, func(t *testing.T) {
			u := usernstest.New(t, true)
			out, err := child(t, u, c.do).CombinedOutput()
			code := 0
			if exit, ok := err.(*exec.ExitError); ok {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				want = strings.NewReplacer("USER", strconv.Itoa(u.UID), "BASE", strconv.Itoa(Base), "FIRST", strconv.Itoa(u.First)).Replace(want)
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in:\n%s", want, out)
				}
			}
			if left := u.Left(t); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			if text, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(text), " "+Dir+" ") {
				t.Errorf("the host sees what is mounted inside: %v", err)
			}
		})
	}
}

// Lacks names what to do, and a person with nothing missing is told nothing.
func TestLacks(t *testing.T) {
	for _, c := range []struct {
		name string
		ids  bool
		path string
		want []string
	}{
		{"whole", true, os.Getenv("PATH"), nil},
		{"no ids", false, os.Getenv("PATH"), []string{
			"/etc/subuid gives you no 65536 ids, which a machine's users need | have root add the line checkfu-ordinary:100000:65536 to /etc/subuid",
			"/etc/subgid gives you no 65536 ids, which a machine's users need | have root add the line checkfu-ordinary:100000:65536 to /etc/subgid",
		}},
		{"no programs", true, "/nowhere", []string{
			"newuidmap is not there | have root install the package uidmap (shadow-utils on Fedora)",
			"newgidmap is not there | have root install the package uidmap (shadow-utils on Fedora)",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := usernstest.New(t, c.ids)
			cmd := child(t, u, "lacks")
			// Of two values of a variable the last counts, and setpriv is found before.
			cmd.Args = append(cmd.Args[:len(cmd.Args)-3:len(cmd.Args)-3], append([]string{"env", "PATH=" + c.path}, cmd.Args[len(cmd.Args)-3:]...)...)
			out, err := cmd.CombinedOutput()
			if want := strings.Join(c.want, "\n"); err != nil || strings.TrimSpace(string(out)) != want {
				t.Errorf("%v\n%s\nwant\n%s", err, out, want)
			}
		})
	}
}

// A person's signals come through, each once.
func TestSignals(t *testing.T) {
	u := usernstest.New(t, true)
	cmd := child(t, u, "signals")
	lines := pipe(t, cmd)
	next(t, lines, "ready")
	for _, s := range []struct {
		signal syscall.Signal
		says   string
	}{{unix.SIGINT, "interrupt"}, {unix.SIGHUP, "hangup"}, {unix.SIGINT, "interrupt"}, {unix.SIGTERM, "terminated"}} {
		if err := cmd.Process.Signal(s.signal); err != nil {
			t.Fatal(err)
		}
		next(t, lines, s.says)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left := u.Left(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Whoever is killed, the user's process or process 1 inside, everything ends.
func TestWhoeverIsKilledNothingIsLeft(t *testing.T) {
	for _, who := range []string{"the user's process", "process 1"} {
		t.Run(who, func(t *testing.T) {
			u := usernstest.New(t, true)
			cmd := child(t, u, "wait")
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			next(t, pipe(t, cmd), "started <nil>")
			pid := cmd.Process.Pid
			if who == "process 1" {
				pid = childOf(t, pid)
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			const patience = 60 * time.Second
			for deadline := time.Now().Add(patience); len(u.Left(t)) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("left after %s: %q", patience, u.Left(t))
				}
			}
		})
	}
}

// childOf is the one child of a process.
func childOf(t *testing.T, parent int) int {
	t.Helper()
	out, err := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(parent)).Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("children of %d: %q", parent, out)
	}
	return pid
}

func pipe(t *testing.T, cmd *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return bufio.NewScanner(out)
}

func next(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	if !lines.Scan() || lines.Text() != want {
		t.Fatalf("%q, want %q", lines.Text(), want)
	}
}

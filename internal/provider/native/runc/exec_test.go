package runc

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

func TestExits(t *testing.T) {
	m := newHost(t).start(t)
	for _, tc := range []struct {
		script string
		want   machine.Exit
	}{
		{"exit 0", machine.Exit{}},
		{"exit 7", machine.Exit{Code: 7}},
		{"exit 137", machine.Exit{Code: 137}},
		{"exit 255", machine.Exit{Code: 255}},
		{"kill -KILL $$", machine.Exit{Signal: "SIGKILL"}},
		{"kill -TERM $$", machine.Exit{Signal: "SIGTERM"}},
		{"kill -SEGV $$", machine.Exit{Signal: "SIGSEGV"}},
		{"kill -40 $$", machine.Exit{Signal: "SIG40"}},
	} {
		if _, got := finish(t, m, nil, "sh", "-c", tc.script); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.script, got, tc.want)
		}
	}
}

func TestStartErrors(t *testing.T) {
	m := newHost(t).start(t)
	for _, tc := range []struct {
		name string
		c    machine.Command
		path string
		is   error
	}{
		{"no such program", machine.Command{Argv: []string{"none"}, Env: env, Dir: "/"}, "none", os.ErrNotExist},
		{"no such path", machine.Command{Argv: []string{"/bin/none"}, Dir: "/"}, "/bin/none", os.ErrNotExist},
		{"no PATH", machine.Command{Argv: []string{"true"}, Dir: "/"}, "true", os.ErrNotExist},
		{"not executable", machine.Command{Argv: []string{"notexec"}, Env: env, Dir: "/"}, "notexec", os.ErrPermission},
		{"not executable by path", machine.Command{Argv: []string{"/bin/notexec"}, Dir: "/"}, "/bin/notexec", os.ErrPermission},
		{"a directory", machine.Command{Argv: []string{"/bin"}, Dir: "/"}, "/bin", os.ErrPermission},
		{"no such directory", machine.Command{Argv: []string{"true"}, Env: env, Dir: "/none"}, "/none", os.ErrNotExist},
		{"directory is a file", machine.Command{Argv: []string{"true"}, Env: env, Dir: "/bin/sh"}, "/bin/sh", nil},
		{"relative directory", machine.Command{Argv: []string{"true"}, Env: env, Dir: "bin"}, "dir", nil},
		{"no argv", machine.Command{Env: env, Dir: "/"}, "argv", nil},
		{"NUL in argv", machine.Command{Argv: []string{"true", "a\x00b"}, Env: env, Dir: "/"}, "argv", nil},
		{"too many bytes", machine.Command{Argv: []string{"true", strings.Repeat("x", 3<<20)}, Env: env, Dir: "/"}, "/bin/true", nil},
		{"far too many bytes", machine.Command{Argv: []string{"true", strings.Repeat("x", 5<<20)}, Env: env, Dir: "/"}, "true", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := m.Exec(t.Context(), tc.c)
			start, ok := errors.AsType[*machine.StartError](err)
			if !ok || start.Path != tc.path || tc.is != nil && !errors.Is(err, tc.is) {
				t.Fatalf("got %#v", err)
			}
		})
	}
	if _, exit := finish(t, m, nil, "true"); exit != (machine.Exit{}) {
		t.Fatalf("after the refusals: %+v", exit)
	}
}

// TestRelativeProgram looks programs up as execvp does: from the command's own
// directory.
func TestRelativeProgram(t *testing.T) {
	m := newHost(t).start(t)
	for _, c := range []machine.Command{
		{Argv: []string{"./true"}, Dir: "/bin"},
		{Argv: []string{"true"}, Env: []string{"PATH=/none::/"}, Dir: "/bin"},
		{Argv: []string{"true"}, Env: []string{"PATH=../bin"}, Dir: "/tmp"},
	} {
		p, err := m.Exec(t.Context(), c)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if exit, err := p.Wait(t.Context()); err != nil || exit != (machine.Exit{}) {
			t.Fatalf("%+v: %+v, %v", c, exit, err)
		}
	}
}

func TestStreams(t *testing.T) {
	m := newHost(t).start(t)
	t.Run("nil is /dev/null", func(t *testing.T) {
		p, err := m.Exec(t.Context(), machine.Command{Argv: []string{"cat"}, Env: env, Dir: "/"})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(within(t, 5*time.Second)); err != nil || exit != (machine.Exit{}) {
			t.Fatalf("got %+v, %v", exit, err)
		}
	})
	t.Run("apart", func(t *testing.T) {
		files := make([]*os.File, 4)
		for i := 0; i < 4; i += 2 {
			var err error
			if files[i], files[i+1], err = os.Pipe(); err != nil {
				t.Fatal(err)
			}
			defer files[i].Close()
		}
		p, err := m.Exec(t.Context(), machine.Command{
			Argv: []string{"sh", "-c", "echo out; echo err >&2"}, Env: env, Dir: "/", Stdout: files[1], Stderr: files[3],
		})
		files[1].Close()
		files[3].Close()
		if err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(files[0])
		errText, _ := io.ReadAll(files[2])
		if _, err := p.Wait(t.Context()); err != nil || string(out) != "out\n" || string(errText) != "err\n" {
			t.Fatalf("got %q, %q, %v", out, errText, err)
		}
	})
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	big := make([]byte, 16<<20)
	rand.Read(big)
	for _, in := range [][]byte{{}, {0}, all, big[:65535], big[:65537], big} {
		t.Run(fmt.Sprint(len(in), " bytes"), func(t *testing.T) {
			out, exit := finish(t, m, bytes.NewReader(in), "cat")
			if exit != (machine.Exit{}) || out != string(in) {
				t.Fatalf("%+v; %d bytes came back, equal %v", exit, len(out), out == string(in))
			}
		})
	}
}

// TestParallelExits runs 200 commands at once beside a program that floods
// PID 1 with orphans of its own exit codes: none may be lost or mixed up.
func TestParallelExits(t *testing.T) {
	m := newHost(t).start(t, func(s *machine.Spec) { s.Limits.Processes = 1000 })
	storm, _ := begin(t, m, nil, "hostile", "storm")
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			want, script := machine.Exit{Code: i}, fmt.Sprintf("exit %d", i)
			if i%5 == 0 {
				want, script = machine.Exit{Signal: "SIGUSR1"}, "kill -USR1 $$"
			}
			p, o, err := tryBegin(m, nil, "sh", "-c", fmt.Sprintf("echo %d; %s", i, script))
			if err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			for range 2 {
				if got, err := p.Wait(ctx); err != nil || got != want {
					t.Errorf("command %d: got %+v, %v; want %+v", i, got, err, want)
				}
			}
			if out := o.String(); out != fmt.Sprintln(i) {
				t.Errorf("command %d said %q", i, out)
			}
		})
	}
	all.Wait()
	if err := storm.KillTree(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if exit, err := storm.Wait(t.Context()); err != nil || exit.Signal != "SIGKILL" {
		t.Fatalf("storm: %+v, %v", exit, err)
	}
}

func TestSignal(t *testing.T) {
	m := newHost(t).start(t)
	for _, name := range []string{"SIGINT", "SIGTERM", "SIGKILL"} {
		p, _ := begin(t, m, nil, "sleep", "100")
		if err := p.Signal(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(within(t, 5*time.Second)); err != nil || exit.Signal != name {
			t.Fatalf("%s: %+v, %v", name, exit, err)
		}
		if err := p.Signal(t.Context(), name); err != nil {
			t.Fatalf("%s after the end: %v", name, err)
		}
	}
	p, o := begin(t, m, nil, "sh", "-c", "trap 'exit 42' TERM; echo up; while :; do sleep 0.01; done")
	eventually(t, "up", func() bool { return p.Signal(t.Context(), "SIGTERM") == nil && isDone(p) })
	if exit, _ := p.Wait(t.Context()); exit.Code != 42 && exit.Signal != "SIGTERM" {
		t.Fatalf("got %+v, %q", exit, o)
	}
	for _, bad := range []string{"", "SIGHUP", "15"} {
		if err := p.Signal(t.Context(), bad); err == nil {
			t.Errorf("signal %q was accepted", bad)
		}
	}
}

func isDone(p machine.Process) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := p.Wait(ctx)
	return err == nil
}

func TestWaitContext(t *testing.T) {
	m := newHost(t).start(t)
	p, _ := begin(t, m, nil, "sleep", "100")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := m.Exec(ctx, machine.Command{Argv: []string{"true"}, Env: env, Dir: "/"}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err == nil {
		t.Fatal("an exit was made up for a machine that is gone")
	}
	if _, err := m.Exec(t.Context(), machine.Command{Argv: []string{"true"}, Env: env, Dir: "/"}); err == nil {
		t.Fatal("a destroyed machine started a command")
	}
	if err := p.KillTree(t.Context()); err != nil {
		t.Fatal(err)
	}
}

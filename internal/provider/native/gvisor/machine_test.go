package gvisor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

func TestExit(t *testing.T) {
	m := start(t)
	tests := []struct {
		script string
		want   machine.Exit
	}{
		{"exit 0", machine.Exit{}},
		{"exit 1", machine.Exit{Code: 1}},
		{"exit 137", machine.Exit{Code: 137}},
		{"exit 255", machine.Exit{Code: 255}},
		{"kill -9 $$", machine.Exit{Signal: "SIGKILL"}},
		{"kill -15 $$", machine.Exit{Signal: "SIGTERM"}},
		{"kill -11 $$", machine.Exit{Signal: "SIGSEGV"}},
	}
	for _, test := range tests {
		if got := do(t, m, sh(test.script)); got.Exit != test.want {
			t.Errorf("%s: got %+v, want %+v", test.script, got.Exit, test.want)
		}
	}
}

func TestStartError(t *testing.T) {
	m := start(t)
	tests := []struct {
		name string
		c    machine.Command
	}{
		{"no such program", command("nothing-of-this-name")},
		{"no such path", command("/bin/nothing")},
		{"a directory", command("/bin")},
		{"not executable", command("/bin/text")},
		{"no directory", machine.Command{Argv: []string{"true"}, Env: env, Dir: "/nowhere"}},
		{"a file as directory", machine.Command{Argv: []string{"true"}, Env: env, Dir: "/bin/text"}},
		{"relative directory", machine.Command{Argv: []string{"true"}, Env: env, Dir: "home"}},
		{"no argv", machine.Command{Env: env, Dir: "/"}},
		{"argument that is not UTF-8", command("echo", "a\xff")},
		{"argument with NUL", command("echo", "a\x00b")},
		{"variable that is not UTF-8", machine.Command{Argv: []string{"true"}, Env: append(slices.Clip(env), "A=\xff"), Dir: "/"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := m.Exec(bounded(t), test.c)
			if _, ok := errors.AsType[*machine.StartError](err); !ok {
				t.Fatalf("got %T %v, want *machine.StartError", err, err)
			}
			t.Logf("%.200s", err)
		})
	}
	if got := do(t, m, command("true")); got.Exit != (machine.Exit{}) {
		t.Errorf("a program after the failures: %+v", got)
	}
}

// TestControls shows, control by control, that it holds and that the attack
// works on the twin that is started without it.
func TestControls(t *testing.T) {
	tests := []struct {
		name   string
		script string
		holds  string
		twin   func(*machine.Spec)
		weak   string
	}{
		{
			"non_root", "id -u", "10001",
			func(s *machine.Spec) { s.Twin.RootUser = true }, "0",
		},
		{
			"no_new_privileges", "grep NoNewPrivs /proc/self/status | cut -f2", "1",
			func(s *machine.Spec) { s.Twin.NewPrivileges = true }, "0",
		},
		{
			"no_new_privileges by a setuid program", "suid euid", "10001",
			func(s *machine.Spec) { s.Twin.NewPrivileges = true }, "0",
		},
		{
			"capabilities_dropped", "grep CapEff /proc/self/status | cut -f2", "0000000000000000",
			func(s *machine.Spec) { s.Twin.Capabilities = true }, "000001ffffffffff",
		},
		{
			"root_read_only", "touch /tmp/../bin/new 2>/dev/null && echo written || echo refused", "refused",
			func(s *machine.Spec) { s.Twin.WritableRoot = true; s.Twin.RootUser = true; s.Twin.Capabilities = true }, "written",
		},
		{
			"resource_limits", "ulimit -u", "128",
			func(s *machine.Spec) { s.Twin.NoLimits = true }, "unlimited",
		},
	}
	m := start(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := do(t, m, sh(test.script)); strings.TrimSpace(got.out) != test.holds {
				t.Errorf("got %+v, want %s", got, test.holds)
			}
			twin := start(t, test.twin)
			if got := do(t, twin, sh(test.script)); strings.TrimSpace(got.out) != test.weak {
				t.Errorf("twin: got %+v, want %s", got, test.weak)
			}
		})
	}
}

func TestGuest(t *testing.T) {
	m := start(t)
	got := do(t, m, sh(`hostname; id -G; pwd; echo $HOME; kill -9 1 2>&1; cat /proc/1/comm; ls /sys/class/net 2>/dev/null; awk '/MemTotal/ {print $2}' /proc/meminfo`))
	t.Logf("%s%s", got.out, got.err)
	for _, want := range []string{"box\n", "/home\n", fmt.Sprint(512 << 10)} {
		if !strings.Contains(got.out, want) {
			t.Errorf("expected %q in %q", want, got.out)
		}
	}
	if err := m.Alive(); err != nil {
		t.Error("the workload ended the machine: ", err)
	}
}

func TestArguments(t *testing.T) {
	m := start(t)
	argv := []string{"printf", `%s\n`, "", " a  b ", "quote\"'", "new\nline", "ünï", strings.Repeat("x", 1<<20)}
	got := do(t, m, machine.Command{Argv: argv, Env: env, Dir: "/"})
	if want := strings.Join(argv[2:], "\n") + "\n"; got.out != want {
		t.Errorf("got %.200q", got.out)
	}
	got = do(t, m, machine.Command{Argv: []string{"env"}, Env: []string{"PATH=/bin", "HOME=/", "A=b=c", "E="}, Dir: "/tmp"})
	// runsc keeps the environment in a map: its order is not the caller's.
	lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
	slices.Sort(lines)
	if want := []string{"A=b=c", "E=", "HOME=/", "PATH=/bin"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

// TestFiles shows that a program is never given a regular file, that the
// caller's files stay as they were, and that none is kept open.
func TestFiles(t *testing.T) {
	m := start(t)
	regular, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer regular.Close()
	c := command("echo", "a")
	c.Stdout = regular
	if _, err := m.Exec(bounded(t), c); err == nil {
		t.Error("a regular file was accepted")
	} else if _, ok := errors.AsType[*SpecError](err); !ok {
		t.Errorf("got %T %v, want *SpecError", err, err)
	}
	do(t, m, command("true"))
	before := openFiles(t)
	for range 10 {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := command("echo", "a")
		c.Stdout = write
		p, err := m.Exec(bounded(t), c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := write.WriteString("still open\n"); err != nil {
			t.Error(err)
		}
		write.Close()
		if _, err := io.ReadAll(read); err != nil {
			t.Error(err)
		}
		read.Close()
		if _, err := p.Wait(bounded(t)); err != nil {
			t.Error(err)
		}
		if err := p.KillTree(bounded(t)); err != nil {
			t.Error(err)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("open files: %d before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestHostSocket shows that a bound host socket is reached, by itself and through
// its forward, exactly where the machine was given a forward.
func TestHostSocket(t *testing.T) {
	need(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "guard.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(filepath.Join(dir, "guard.sock"), 0o666); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "guard")
			c.Close()
		}
	}()
	with := start(t, func(s *machine.Spec) {
		s.Binds = append(s.Binds, machine.Bind{Source: dir, Destination: "/run/guard", ReadOnly: true})
		s.Forwards = []machine.Forward{{Port: 3128, Socket: "/run/guard/guard.sock"}}
	})
	if got := do(t, with, sh("nc 127.0.0.1 3128 < /dev/null")); got.out != "guard" {
		t.Errorf("got %+v", got)
	}
	if got := do(t, with, command("attack", "dial", "/run/guard/guard.sock")); got.out != "guard\n" {
		t.Errorf("got %+v", got)
	}
	without := start(t, func(s *machine.Spec) { // bound alike, and no way to it
		s.Binds = append(s.Binds, machine.Bind{Source: dir, Destination: "/run/guard", ReadOnly: true})
	})
	if got := do(t, without, command("attack", "dial", "/run/guard/guard.sock")); got.Code == 0 {
		t.Errorf("got %+v", got)
	}
}

package gvisor

import (
	"errors"
	"fmt"
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
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := m.Exec(bounded(t), test.c)
			if _, ok := errors.AsType[*machine.StartError](err); !ok {
				t.Fatalf("got %T %v, want *machine.StartError", err, err)
			}
			t.Log(err)
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

package gvisor

import (
	"bufio"
	"slices"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// guests lists the programs of the guest but init, by name.
func guests(t testing.TB, m *gvisorMachine) []string {
	t.Helper()
	var all []*control.Process
	if err := m.call(boot.ContMgrProcesses, &m.spec.ID, &all); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range all {
		if p.PID != 1 {
			names = append(names, p.Cmd)
		}
	}
	return names
}

func TestKillTree(t *testing.T) {
	tests := []struct {
		name  string
		c     machine.Command
		ready int // programs there must be before the kill
	}{
		{"ordinary", sh("sleep 1000"), 1},
		{"children", sh("for i in 1 2 3 4 5; do sleep 1000 & done; wait"), 6},
		{"orphans in their own sessions that ignore TERM", sh(`trap "" TERM; for i in 1 2 3 4 5; do setsid setsid sleep 1000 & done; sleep 1000`), 6},
		{"orphans whose root has ended", sh("for i in 1 2 3; do setsid sleep 1000 & done; exit 0"), 3},
		{"orphans at the process limit", sh(`trap "" TERM; i=0; while [ $i -lt 62 ]; do setsid sleep 1000 & i=$((i+1)); done; sleep 1000`), 60},
		{"fork bomb of threaded programs", command("attack", "bomb"), 8},
		{"fork bomb of shells", sh(`export F='trap "" TERM; while :; do setsid sh -c "$F" 2>/dev/null & setsid sleep 1 & done'; sh -c "$F"`), 20},
		{"hopping chain", command("attack", "chain"), 1},
		{"renamed", command("attack", "rename"), 1},
		{"dropped groups in a user namespace", command("attack", "regroup"), 1},
		{"dropped groups, setgroups allowed", command("attack", "regroup", "allow"), 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := start(t, func(s *machine.Spec) { s.Limits.Processes = 70 })
			ctx := bounded(t)
			read, write := pipe(t)
			beside, err := m.Exec(ctx, machine.Command{Argv: []string{"sh", "-c", "echo ready; read line; echo got $line; exit 5"}, Env: env, Dir: "/", Stdin: read, Stdout: nil})
			if err != nil {
				t.Fatal(err)
			}
			p, err := m.Exec(ctx, test.c)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, 30*time.Second, "the tree stands", func() bool { return len(guests(t, m)) >= test.ready+1 })
			began := time.Now()
			if err := p.KillTree(ctx); err != nil {
				t.Fatal(err)
			}
			t.Logf("killed in %v", time.Since(began))
			// Zombies are init's to reap; anything else must be gone at once.
			eventually(t, 10*time.Second, "only the other program is left", func() bool {
				left := guests(t, m)
				return len(left) == 1 && left[0] == "sh"
			})
			if err := p.KillTree(ctx); err != nil {
				t.Errorf("again: %v", err)
			}
			exit, err := p.Wait(ctx)
			if err != nil {
				t.Error(err)
			}
			if exit.Signal != "SIGKILL" && test.name[:2] == "or" && !strings.Contains(test.name, "ended") {
				t.Errorf("got %+v, want SIGKILL", exit)
			}
			if _, err := write.WriteString("on\n"); err != nil {
				t.Fatal(err)
			}
			if exit, err := beside.Wait(ctx); err != nil || exit.Code != 5 {
				t.Errorf("the other program: got %+v, %v; want code 5", exit, err)
			}
			if got := do(t, m, command("true")); got.Exit != (machine.Exit{}) {
				t.Errorf("a program after the kill: %+v", got)
			}
		})
	}
}

// TestGroupStays runs the programs that try to lose their mark and looks at
// what they achieved.
func TestGroupStays(t *testing.T) {
	m := start(t)
	for _, args := range [][]string{{"regroup"}, {"regroup", "allow"}} {
		read, write := pipe(t)
		c := command(append([]string{"attack"}, args...)...)
		c.Stdout, c.Stderr = write, write
		p, err := m.Exec(bounded(t), c)
		write.Close()
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for lines := bufio.NewScanner(read); lines.Scan(); {
			said = append(said, lines.Text())
			if lines.Text() == "child" {
				break
			}
		}
		t.Logf("%v: %q", args, said)
		if slices.Contains(said, "setgroups: <nil>") {
			t.Errorf("%v: setgroups worked", args)
		}
		if err := p.KillTree(bounded(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestSignal(t *testing.T) {
	m := start(t)
	ctx := bounded(t)
	read, write := pipe(t)
	c := sh(`trap "exit 42" TERM; trap "exit 43" INT; echo ready; while :; do sleep 0.05; done`)
	for name, want := range map[string]machine.Exit{"SIGTERM": {Code: 42}, "SIGINT": {Code: 43}, "SIGKILL": {Signal: "SIGKILL"}} {
		c.Stdout = write
		p, err := m.Exec(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(ctx, name); err != nil {
			t.Fatal(err)
		}
		exit, err := p.Wait(ctx)
		if err != nil || exit != want {
			t.Errorf("%s: got %+v, %v; want %+v", name, exit, err, want)
		}
		if err := p.Signal(ctx, name); err != nil {
			t.Errorf("%s to the ended program: %v", name, err)
		}
		if err := p.KillTree(ctx); err != nil {
			t.Error(err)
		}
		if err := p.Signal(ctx, "SIGHUP"); err == nil {
			t.Error("SIGHUP was accepted")
		}
	}
}

func TestParseStatus(t *testing.T) {
	tests := []struct {
		name, text string
		want       guestStatus
	}{
		{"ordinary", "Name:\tsh\nState:\tS (sleeping)\nGroups:\t7 9 \nVmSize:\t1 kB\n", guestStatus{groups: []uint32{7, 9}}},
		{"none", "Name:\tsh\nState:\tR\nGroups:\t \n", guestStatus{}},
		{"zombie", "Name:\tsh\nState:\tZ (zombie)\nGroups:\t7 \n", guestStatus{dead: true, groups: []uint32{7}}},
		{"a name that looks like a group", "Name:\tx\nGroups:\t1\n\nState:\tS\nGroups:\t7 \n", guestStatus{groups: []uint32{7}}},
		{"a name that looks like a state", "Name:\tx\nState:\tZ\n\nState:\tS\nGroups:\t7 \n", guestStatus{groups: []uint32{7}}},
		{"empty", "", guestStatus{}},
	}
	for _, test := range tests {
		got := parseStatus([]byte(test.text))
		if got.dead != test.want.dead || !slices.Equal(got.groups, test.want.groups) {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("Name:\tx\nGroups:\t1\n\nState:\tS\nGroups:\t7 \n"))
	f.Add([]byte("Groups:\t99999999999999999999 -1 a \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		// Whatever a name does, what follows it counts.
		s := parseStatus(append(slices.Clone(text), "\nState:\tS (sleeping)\nGroups:\t1073741825 \n"...))
		if s.dead || !s.in(1073741825) || len(s.groups) != 1 {
			t.Fatalf("%q: %+v", text, s)
		}
	})
}

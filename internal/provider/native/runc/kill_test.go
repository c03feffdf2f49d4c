package runc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

func TestKillTree(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		size         int
	}{
		{"plain", "sleep 1000", 1},
		{"deaf", "trap '' TERM INT HUP; while :; do sleep 1000; done", 2},
		{"sessions", "setsid setsid sh -c 'sleep 1000 & setsid sleep 1000 & wait' & sleep 1000", 3},
		{"re-parented", "(setsid sleep 1000 &) ; (sh -c '(sleep 1000 &)' &) ; sleep 1000", 3},
		{"leader gone", "(setsid sleep 1000 &); (setsid sh -c 'while :; do sleep 0.01; done' &); exit 5", 2},
		{"fork bomb", "hostile bomb", 15},
		{"fork storm", "while :; do (setsid sh -c 'sleep 0.01; sleep 1000' &) ; done", 85},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newHost(t).start(t, func(s *machine.Spec) { s.Limits.Processes = 100 })
			neighbour, _ := begin(t, m, nil, "sh", "-c", "sleep 1000 & while :; do sleep 1; done")
			observed := func() []int {
				o, err := m.Observe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return o.Pids
			}
			eventually(t, "the neighbour's three", func() bool { return len(observed()) == 4 })
			p, err := m.Exec(t.Context(), machine.Command{Argv: []string{"sh", "-c", tc.script}, Env: env, Dir: "/"})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the tree", func() bool { return len(observed()) >= 4+tc.size })
			for range 2 {
				if err := p.KillTree(within(t, 10*time.Second)); err != nil {
					t.Fatal(err)
				}
				// What is left belongs to the neighbour, by its own cgroup.
				for _, pid := range observed() {
					if text, _ := os.ReadFile("/proc/" + itoa(pid) + "/cgroup"); strings.Contains(string(text), "/c2\n") {
						t.Fatalf("process %d is left", pid)
					}
				}
			}
			exit, err := p.Wait(within(t, 5*time.Second))
			// A shell that is refused a fork ends by itself, with 2.
			if err != nil || exit.Signal != "SIGKILL" && exit.Code != 5 && exit.Code != 2 {
				t.Fatalf("got %+v, %v", exit, err)
			}
			if isDone(neighbour) {
				t.Fatal("the neighbour died")
			}
			if n := len(observed()); n < 3 || n > 4 {
				t.Fatalf("%d processes are left", n)
			}
			if _, exit := finish(t, m, nil, "true"); exit != (machine.Exit{}) {
				t.Fatalf("afterwards: %+v", exit)
			}
		})
	}
}

// TestHog takes all memory: only the hog dies.
func TestHog(t *testing.T) {
	m := newHost(t).start(t, func(s *machine.Spec) { s.Limits.MemoryBytes = 64 << 20 })
	neighbour, _ := begin(t, m, nil, "sleep", "1000")
	if out, exit := finish(t, m, nil, "hostile", "hog"); exit.Signal != "SIGKILL" {
		t.Fatalf("got %+v %s", exit, out)
	}
	if err := m.Alive(); err != nil || isDone(neighbour) {
		t.Fatalf("more than the hog died: %v", err)
	}
	// Many small ones, each smaller than the guest init.
	p, _ := begin(t, m, nil, "sh", "-c", "i=0; while [ $i -lt 190 ]; do dd if=/dev/zero of=/dev/null bs=600k count=999999999 2>/dev/null & i=$((i+1)); done; wait")
	eventually(t, "more kills for want of memory", func() bool { return oomKills(t, m) >= 5 })
	if err := p.KillTree(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := m.Alive(); err != nil {
		t.Fatal(err)
	}
}

// oomKills is how many of the machine's processes the kernel ended for want of
// memory.
func oomKills(t *testing.T, m machine.Machine) int {
	in := m.(*instance)
	tree, ok := with(in.trees, "memory")
	if !ok {
		t.Skip("no memory controller")
	}
	for _, name := range []string{"memory.oom_control", "memory.events"} {
		text, _ := os.ReadFile(filepath.Join(tree.mount, in.driver.cgroup(in.id), name))
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
				n, _ := strconv.Atoi(f[1])
				return n
			}
		}
	}
	return 0
}

// TestFullMachine starts commands while a fork bomb holds every process: they
// fail as short of something, not as the caller's mistake, and init lives.
func TestFullMachine(t *testing.T) {
	m := newHost(t).start(t, func(s *machine.Spec) { s.Limits.Processes = 50 })
	bomb, _ := begin(t, m, nil, "sh", "-c", "while :; do sleep 1000 & done")
	var sleepers []machine.Process
	eventually(t, "a refusal", func() bool {
		p, err := m.Exec(t.Context(), machine.Command{Argv: []string{"sleep", "1000"}, Env: env, Dir: "/"})
		if err == nil {
			sleepers = append(sleepers, p) // each holds a process that the last command needs
			return false
		}
		if _, caller := err.(*machine.StartError); caller {
			t.Fatalf("blamed the caller: %v", err)
		}
		return true
	})
	for range 200 {
		m.Exec(t.Context(), machine.Command{Argv: []string{"true"}, Env: env, Dir: "/"})
	}
	for _, p := range append(sleepers, bomb) {
		if err := p.KillTree(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	// A killed process counts until init has reaped it, a moment later.
	eventually(t, "a command starts again", func() bool {
		p, err := m.Exec(t.Context(), machine.Command{Argv: []string{"true"}, Env: env, Dir: "/"})
		if err != nil {
			return false
		}
		exit, err := p.Wait(within(t, 10*time.Second))
		if err != nil || exit != (machine.Exit{}) {
			t.Fatalf("afterwards: %+v %v", exit, err)
		}
		return true
	})
}

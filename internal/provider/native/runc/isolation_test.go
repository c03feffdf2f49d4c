package runc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

func TestCommandState(t *testing.T) {
	m := newHost(t).start(t)
	out, _ := finish(t, m, nil, "hostile", "state")
	for _, want := range []string{
		"Uid:\t10001\t10001\t10001\t10001\n", "Gid:\t10001\t10001\t10001\t10001\n", "Groups:\t \n",
		"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
		"CapBnd:\t0000000000000000\n", "CapAmb:\t0000000000000000\n",
		"NoNewPrivs:\t1\n", "Seccomp:\t2\n", "SigBlk:\t0000000000000000\n", "SigIgn:\t0000000000000000\n",
		"PPid:\t1\n", "Sid: true\n", "Oom: 500\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestRefused(t *testing.T) {
	m := newHost(t).start(t)
	out, _ := finish(t, m, nil, "hostile", "refused")
	want := map[string]string{
		"vsock": "EPERM", "alg": "EPERM", "packet": "EPERM", "bluetooth": "EPERM",
		"unix": "ok", "inet": "ok",
		"unshare-user": "EPERM", "clone-user": "EPERM", "clone3-user": "ENOSPC", "clone3-user-net": "ENOSPC",
		"mount": "EPERM", "keyctl": "EPERM", "bpf": "EPERM", "userfaultfd": "EPERM", "io_uring": "ENOSYS", "perf": "EPERM",
		"write-max-user-ns": "EROFS", "write-root": "EROFS", "mknod-device": "EPERM",
	}
	if d := cmp.Diff(want, lines(out)); d != "" {
		t.Error(d)
	}
	for script, ok := range map[string]bool{
		"echo x > /job/f && cat /job/f": true,
		"echo x > /sealed/f":            false,
		"echo x > /run/checkfu/init":    false,
		"echo x > /dev/made":            false,
		"echo x > /dev/shm/f":           true,
		"cat /dev/null && dd if=/dev/urandom of=/dev/zero bs=9 count=1":     true,
		"cat /proc/kcore | dd bs=1 count=1 | cat > /tmp/k && [ -s /tmp/k ]": false,
	} {
		if out, exit := finish(t, m, nil, "sh", "-c", script); (exit == machine.Exit{}) != ok {
			t.Errorf("%s: %+v %s", script, exit, out)
		}
	}
}

// TestInitIsOutOfReach sends PID 1 everything and tries to get at its socket.
func TestInitIsOutOfReach(t *testing.T) {
	m := newHost(t).start(t)
	out, exit := finish(t, m, nil, "hostile", "touch-init")
	want := map[string]string{"fd": "EACCES", "mem": "EACCES", "environ": "EACCES", "ptrace": "EPERM", "getfd": "EPERM", "prlimit": "EPERM", "own-fds": "ok"}
	if d := cmp.Diff(want, lines(out)); d != "" || exit != (machine.Exit{}) {
		t.Errorf("%+v %s", exit, d)
	}
	if out, exit := finish(t, m, nil, "sh", "-c", "kill -9 1; kill -9 -1; echo here"); exit != (machine.Exit{}) {
		t.Errorf("%+v %s", exit, out)
	}
	if err := m.Alive(); err != nil {
		t.Fatal(err)
	}
}

// TestPeltedInit starts commands while a neighbour never stops sending signals
// to PID 1, and then while one stops everything that it can.
func TestPeltedInit(t *testing.T) {
	m := newHost(t).start(t)
	pelt, _ := begin(t, m, nil, "hostile", "pelt")
	for i := range 100 {
		if _, exit := finish(t, m, nil, "sh", "-c", "exit "+itoa(i)); exit.Code != i {
			t.Fatalf("%d: %+v", i, exit)
		}
	}
	if err := pelt.KillTree(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	stop, _ := begin(t, m, nil, "hostile", "stop-all")
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		p, err := m.Exec(ctx, machine.Command{Argv: []string{"true"}, Env: env, Dir: "/"})
		if err == nil {
			// Stopped or through: it can be ended either way.
			err = p.KillTree(within(t, 10*time.Second))
		} else if ctx.Err() == nil {
			t.Fatal(err)
		} else {
			err = nil
		}
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := stop.KillTree(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, exit := finish(t, m, nil, "true"); exit != (machine.Exit{}) {
		t.Fatal(exit)
	}
}

// TestInitIsSmall holds the guest init to what the process limit allows it, and
// to little memory.
func TestInitIsSmall(t *testing.T) {
	m := newHost(t).start(t, func(s *machine.Spec) { s.Limits.Processes = 500 })
	procs := make([]machine.Process, 50)
	for i := range procs {
		procs[i], _ = begin(t, m, nil, "sleep", "100")
	}
	for _, p := range procs {
		if err := p.KillTree(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	o, err := m.Observe(t.Context())
	if err != nil || len(o.Pids) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	text, err := os.ReadFile("/proc/" + itoa(o.Pids[0]) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 {
			got[f[0]], _ = strconv.Atoi(f[1])
		}
	}
	t.Logf("threads %d, resident %d kB, of that not from the file %d kB", got["Threads:"], got["VmRSS:"], got["RssAnon:"])
	if got["Threads:"] > initTasks-2 || got["RssAnon:"] > 4<<10 {
		t.Error("init has grown")
	}
}

func TestObserve(t *testing.T) {
	h := newHost(t)
	m := h.start(t)
	p, _ := begin(t, m, nil, "sleep", "100")
	defer p.KillTree(within(t, 5*time.Second))
	got, err := m.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Pids) != 2 || len(got.CgroupPaths) < 2 {
		t.Errorf("pids %v, cgroups %v", got.Pids, got.CgroupPaths)
	}
	got.Pids, got.CgroupPaths = nil, nil
	want := machine.Observed{
		UserNamespace: true, PidNamespace: true, MountNamespace: true, NetNamespace: true,
		Interfaces: []string{"lo"}, NonRoot: true, NoNewPrivileges: true, CapabilitiesZero: true, Seccomp: true,
		MemoryLimit: 256 << 20, PidsLimit: 200 + initTasks, CPUQuotaMillis: 2000,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestTwins shows for each control that the test of it can fail: what it
// forbids works in the machine without it.
func TestTwins(t *testing.T) {
	h := newHost(t)
	strong := h.start(t)
	for _, tc := range []struct {
		name    string
		twin    machine.Twin
		script  string // succeeds in the twin only
		observe func(machine.Observed) bool
	}{
		{"WritableRoot", machine.Twin{WritableRoot: true}, "echo x > /scratch/made", nil},
		{"RootUser", machine.Twin{RootUser: true}, "[ $(id -u) = 0 ]", func(o machine.Observed) bool { return o.NonRoot }},
		{"NewPrivileges", machine.Twin{NewPrivileges: true}, "while read k v; do [ $k$v = NoNewPrivs:0 ] && exit 0; done < /proc/self/status; exit 1", func(o machine.Observed) bool { return o.NoNewPrivileges }},
		{"Capabilities", machine.Twin{Capabilities: true}, "while read k v; do [ $k = CapEff: ] && [ $v != 0000000000000000 ] && exit 0; done < /proc/self/status; exit 1", func(o machine.Observed) bool { return o.CapabilitiesZero }},
		{"NoLimits", machine.Twin{NoLimits: true}, "i=0; while [ $i -lt 230 ]; do sleep 5 >/dev/null 2>&1 & i=$((i+1)); done; [ $i = 230 ]", func(o machine.Observed) bool { return o.MemoryLimit+o.PidsLimit+o.CPUQuotaMillis != 0 }},
		{"HostNetwork", machine.Twin{HostNetwork: true}, "while read k v; do [ $k = checkfu0: ] && exit 0; done < /proc/net/dev; exit 1", func(o machine.Observed) bool { return slices.Equal(o.Interfaces, []string{"lo"}) }},
		{"SharedHostProcs", machine.Twin{SharedHostProcs: true}, "[ -d /proc/" + itoa(os.Getpid()) + " ]", func(o machine.Observed) bool { return o.PidNamespace }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.twin.HostNetwork {
				tc.twin.Netns = newNetns(t)
			}
			weak := h.start(t, func(s *machine.Spec) { s.Twin = tc.twin })
			if out, exit := finish(t, strong, nil, "sh", "-c", tc.script); exit == (machine.Exit{}) {
				t.Errorf("works in the strong machine, too: %s", out)
			}
			if out, exit := finish(t, weak, nil, "sh", "-c", tc.script); exit != (machine.Exit{}) {
				t.Errorf("does not work in the twin: %+v %s", exit, out)
			}
			if tc.observe == nil {
				return
			}
			for m, want := range map[machine.Machine]bool{strong: true, weak: false} {
				o, err := m.Observe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if tc.observe(o) != want {
					t.Errorf("observed %+v, want the control to be %v", o, want)
				}
			}
		})
	}
}

func TestSpecials(t *testing.T) {
	h := newHost(t)
	m := h.start(t)
	if _, exit := finish(t, m, nil, "sh", "-c", "mkfifo /job/pipe; touch /job/file"); exit != (machine.Exit{}) {
		t.Fatal(exit)
	}
	// The host's /job is not the machine's: a link out of it leads nowhere.
	os.Symlink("/tmp", filepath.Join(h.dir, "work/link"))
	unix.Mknod(filepath.Join(h.dir, "tmp/other"), unix.S_IFIFO|0o600, 0)
	got, err := m.Specials(t.Context(), "/job", 1)
	if d := cmp.Diff([]machine.Special{{Path: "/job/pipe", Type: "fifo"}}, got); d != "" || err != nil {
		t.Fatal(d, err)
	}
	if _, err := m.Specials(t.Context(), "/job", 0); err == nil {
		t.Error("more than the limit was no error")
	} else if _, ok := errors.AsType[*guest.LimitError](err); !ok {
		t.Error(err)
	}
	if _, err := m.Specials(t.Context(), "/job/link", 9); err == nil {
		t.Error("a link was followed")
	}
}

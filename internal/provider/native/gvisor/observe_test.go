package gvisor

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

func TestObserve(t *testing.T) {
	m := start(t)
	p, err := m.Exec(bounded(t), sh("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Observe(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", got)
	if len(got.Pids) < 3 || !slices.Contains(got.Pids, m.made.Sandbox) {
		t.Errorf("pids: %v", got.Pids)
	}
	want := machine.Observed{
		Pids:          got.Pids,
		UserNamespace: true, PidNamespace: true, MountNamespace: true, NetNamespace: true,
		Interfaces: []string{"lo"},
		NonRoot:    true, NoNewPrivileges: true, CapabilitiesZero: true, Seccomp: true,
		CgroupPaths:    cgroupDirs(shared.d.cgroup(m.spec.ID)),
		MemoryLimit:    512 << 20,
		PidsLimit:      pidsLimit(machine.Limits{Processes: 128}),
		CPUQuotaMillis: 2000,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, controller := range []string{"memory", "pids", "cpu"} {
		if !unified() && !slices.Contains(got.CgroupPaths, filepath.Join(cgroupRoot, controller, shared.d.cgroup(m.spec.ID))) {
			t.Errorf("no %s cgroup holds all pids: %v", controller, got.CgroupPaths)
		}
	}
	if err := p.KillTree(bounded(t)); err != nil {
		t.Error(err)
	}
}

// TestObserveTwins shows that what is missing is seen to be missing.
func TestObserveTwins(t *testing.T) {
	need(t)
	t.Run("resource_limits", func(t *testing.T) {
		m := start(t, func(s *machine.Spec) { s.Twin.NoLimits = true })
		got, err := m.Observe(bounded(t))
		if err != nil || got.MemoryLimit != 0 || got.PidsLimit != 0 || got.CPUQuotaMillis != 0 {
			t.Errorf("got %+v, %v; want no limits", got, err)
		}
	})
	t.Run("network_policy", func(t *testing.T) {
		name := "checkfu-test-" + newID()[:8]
		if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
			t.Fatalf("ip netns (Debian package iproute2): %v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		for _, args := range []string{"link set lo up", "link add ve0 type veth peer name ve1", "addr add 192.0.2.1/24 dev ve0", "link set ve0 up", "link set ve1 up"} {
			if out, err := exec.Command("ip", append([]string{"-n", name}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", args, err, out)
			}
		}
		listener, err := listenIn("/var/run/netns/"+name, "192.0.2.1:8080")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()

		dial := `nc -w 2 192.0.2.1 8080 </dev/null && echo reached || echo unreachable`
		strict := start(t)
		if got := do(t, strict, sh(dial)); strings.TrimSpace(got.out) != "unreachable" {
			t.Errorf("strict: got %+v", got)
		}
		m := start(t, func(s *machine.Spec) {
			s.Twin.HostNetwork = true
			s.Twin.Netns = "/var/run/netns/" + name
		})
		if got := do(t, m, sh(dial)); strings.TrimSpace(got.out) != "reached" {
			t.Errorf("twin: got %+v", got)
		}
		got, err := m.Observe(bounded(t))
		if err != nil || !slices.Contains(got.Interfaces, "ve0") {
			t.Errorf("twin: got %+v, %v; want the interface ve0", got, err)
		}
	})
}

// listenIn listens in another network namespace.
func listenIn(netns, address string) (l net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f, openErr := os.Open(netns)
		if openErr != nil {
			err = openErr
			return
		}
		defer f.Close()
		if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err == nil {
			l, err = net.Listen("tcp", address)
		}
	}()
	<-done
	return l, err
}

func TestProbe(t *testing.T) {
	need(t)
	if lacks := shared.d.Probe(bounded(t)); len(lacks) != 0 {
		t.Errorf("a host on which machines start lacks %+v", lacks)
	}
}

func TestSpecials(t *testing.T) {
	m := start(t)
	do(t, m, sh(`mkdir -p d/shut; mkfifo d/pipe; mkfifo d/shut/hidden; ln -s pipe d/link; touch d/file "d/shut/a file"; nc -lU d/sock & sleep 0.3; chmod 0 d/shut`))
	got, err := m.Specials(bounded(t), "/home", 10)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b machine.Special) int { return strings.Compare(a.Path, b.Path) })
	want := []machine.Special{{Path: "/home/d/pipe", Type: "fifo"}, {Path: "/home/d/shut/hidden", Type: "fifo"}, {Path: "/home/d/sock", Type: "socket"}}
	// busybox may be built without nc -U.
	if diff := cmp.Diff(want, got); diff != "" && cmp.Diff(want[:2], got) != "" {
		t.Error(diff)
	}
	if _, err := os.Stat("/home/d/pipe"); err == nil {
		t.Error("the host sees it too")
	}
	if got, err := m.Specials(bounded(t), "/home", 1); err == nil {
		t.Errorf("over the limit: got %v", got)
	}
	if got, err := m.Specials(bounded(t), "/home/d/shut/a file", 1); err == nil {
		t.Errorf("of a file: got %v", got)
	}
	if got, err := m.Specials(bounded(t), "/nowhere", 1); err == nil {
		t.Errorf("of nothing: got %v", got)
	}
	if got, err := m.Specials(bounded(t), "/bin", 0); err != nil || len(got) != 0 {
		t.Errorf("of a directory without any: got %v, %v", got, err)
	}
}

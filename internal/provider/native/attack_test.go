package native

import (
	"errors"
	"fmt"
	"golang.org/x/sys/unix"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// attack is one attempt from inside the machine to break one axis. The script
// exits 0 exactly if it broke it. It is run twice: against the machine as it
// is, where it must fail, and against a twin without that one control, where
// it must succeed; an attack that cannot succeed proves nothing.
type attack struct {
	axis    sandbox.Axis
	name    string
	script  string
	twin    machine.Twin
	home    twinHome
	drivers []string // those on which the twin can be made; nil is all
	prepare func(t *testing.T, p *Provider)
}

var attacks = []attack{
	{
		axis: sandbox.AxisRootReadOnly, name: "write to the root as root",
		script: `echo owned > /etc/owned`,
		twin:   machine.Twin{WritableRoot: true, RootUser: true},
	},
	{
		axis: sandbox.AxisNonRoot, name: "be root",
		script: `test "$(id -u)" = 0`,
		twin:   machine.Twin{RootUser: true},
	},
	{
		axis: sandbox.AxisNonRoot, name: "read what only root may read",
		script: `cat /etc/secret`,
		twin:   machine.Twin{RootUser: true},
	},
	{
		axis: sandbox.AxisNoNewPrivileges, name: "become root by a setuid file",
		script: `/etc/suid`,
		twin:   machine.Twin{NewPrivileges: true},
	},
	{
		axis: sandbox.AxisCapabilitiesDropped, name: "use a capability",
		script: `chown 0:0 /tmp/f`,
		twin:   machine.Twin{Capabilities: true},
	},
	{
		axis: sandbox.AxisCapabilitiesDropped, name: "hold a capability",
		script: `! grep -q 'CapEff:.*0000000000000000' /proc/self/status`,
		twin:   machine.Twin{Capabilities: true},
	},
	{
		axis: sandbox.AxisMountsSealed, name: "write to a sealed mount",
		script: `echo owned > /data/in/file`,
		home:   twinHome{unsealed: true},
	},
	{
		axis: sandbox.AxisMountsSealed, name: "remount a sealed mount",
		script: `mount -o remount,rw /data/in; echo owned > /data/in/file`,
		home:   twinHome{unsealed: true},
	},
	{
		axis: sandbox.AxisDiskLimit, name: "fill the disk",
		script: `dd if=/dev/zero of=/tmp/big bs=1M count=80 2>/dev/null && test "$(wc -c < /tmp/big)" = 83886080`,
		home:   twinHome{noDiskLimit: true},
	},
	{
		axis: sandbox.AxisDiskLimit, name: "use up the inodes",
		script: `mkdir /tmp/many && cd /tmp/many && seq 20000 | xargs touch`,
		home:   twinHome{noDiskLimit: true},
	},
	{
		axis: sandbox.AxisResourceLimits, name: "exhaust memory",
		script: `dd if=/dev/zero of=/dev/null bs=400M count=1`, // of 256 MiB and 64 MiB of home
		twin:   machine.Twin{NoLimits: true},
	},
	{
		axis: sandbox.AxisResourceLimits, name: "fork without end",
		script: `i=0; while [ $i -lt 200 ]; do sleep 20 & i=$((i+1)); done; test "$(ls -d /proc/[0-9]* | wc -l)" -ge 200`,
		twin:   machine.Twin{NoLimits: true},
	},
	{
		axis: sandbox.AxisNetworkPolicy, name: "reach a host on the network",
		script:  `nc -w 2 198.51.100.1 7777 </dev/null | grep -q hello`,
		twin:    machine.Twin{HostNetwork: true, Netns: "/run/netns/" + attackNetns},
		prepare: func(t *testing.T, _ *Provider) { liveNetwork(t) },
	},
	{
		axis: sandbox.AxisNetworkPolicy, name: "see an interface",
		script:  `grep -q 'cf-inside' /proc/net/dev`,
		twin:    machine.Twin{HostNetwork: true, Netns: "/run/netns/" + attackNetns},
		prepare: func(t *testing.T, _ *Provider) { liveNetwork(t) },
	},
	{
		axis: sandbox.AxisSandboxIsolation, name: "see a host process",
		// The test's own process waits with this unusual argument.
		script:  `grep -qs 'checkfu-attack-witnes[s]' /proc/[0-9]*/cmdline`,
		twin:    machine.Twin{SharedHostProcs: true},
		drivers: []string{"runc"}, // a sentry has no host processes to show
		prepare: func(t *testing.T, _ *Provider) { witness(t) },
	},
}

func TestEnforcementStatement_EachAxisHoldsAgainstAnAttackFromInside(t *testing.T) {
	for _, driver := range driverNames {
		for _, a := range attacks {
			if driver == machine.Rootless && (a.axis == sandbox.AxisResourceLimits || a.prepare != nil) {
				continue // not claimed; or prepared by root
			}
			t.Run(driver+"/"+string(a.axis)+"/"+a.name, func(t *testing.T) {
				if a.prepare != nil {
					a.prepare(t, nil)
				}
				p := newProvider(t, driver)
				if s := runAttack(t, p, a); s.Exit.ExitCode != nil && *s.Exit.ExitCode == 0 {
					t.Errorf("the attack succeeded: %s\n%s%s", showExit(s), s.Stdout, s.Stderr)
				}
				if a.drivers != nil && a.drivers[0] != driver || driver == machine.Rootless && a.home.noDiskLimit {
					return // no twin, or a slow one that is runsc's
				}
				weak := newProvider(t, driver)
				weak.twin, weak.twinHome = a.twin, a.home
				if s := runAttack(t, weak, a); s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0 {
					t.Errorf("the attack fails against the twin too, so it proves nothing: %s\n%s%s", showExit(s), s.Stdout, s.Stderr)
				}
			})
		}
	}
}

func runAttack(t *testing.T, p *Provider, a attack) sandbox.Settlement {
	t.Helper()
	id := provision(t, p, request(p, work, data))
	if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: "/data/in/file", Content: []byte("sealed")}); err != nil {
		t.Fatal(err)
	}
	plant(t, p, id)
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	mustExit(t, sh(t, p, id, "echo x > /tmp/f"), 0)
	s, err := p.Execute(t.Context(), id, shell(a.script))
	if errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonInstanceLost}) {
		s = sandbox.Settlement{Exit: sandbox.Signaled("SIGKILL")} // the limit ended the machine, and the attack with it
	} else if err != nil {
		t.Fatal(err)
	}
	if err := p.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEnforcementStatement_CPUShareHolds(t *testing.T) {
	used := func(t *testing.T, p *Provider) (cpu, took time.Duration) {
		r := request(p)
		r.Profile.ResourceLimits.CPUMillis = 100
		id := provision(t, p, r)
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		before, began := cpuUsage(t, p, id), time.Now()
		mustExit(t, sh(t, p, id, "timeout 3 sh -c 'while :; do :; done' & timeout 3 sh -c 'while :; do :; done'; wait; true"), 0)
		return cpuUsage(t, p, id) - before, time.Since(began)
	}
	drivers(t, func(t *testing.T, p *Provider) {
		weak := newProvider(t, p.opt.Driver.Name())
		weak.twin = machine.Twin{NoLimits: true}
		// A tenth of a core for three seconds and a bit: on a busy host the bit is longer.
		held, took := used(t, p)
		if most := took/10 + 300*time.Millisecond; held > most {
			t.Errorf("used %s of %s under the limit, want at most %s", held, took, most)
		}
		// The control: a busy host may have less to give, for a while.
		var free time.Duration
		for try := 0; try < 10 && free < held*3/2; try++ {
			free, _ = used(t, weak)
		}
		if free < held*3/2 {
			t.Errorf("used %s under the limit and %s without it", held, free)
		}
	})
}

// cpuUsage reads from the host what the whole machine has used.
func cpuUsage(t *testing.T, p *Provider, id sandbox.InstanceID) time.Duration {
	t.Helper()
	in, err := p.find(sandbox.OpExecute, id)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := in.machine.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range seen.CgroupPaths {
		if text, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage")); err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			return time.Duration(n)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "cpu.stat")); err == nil && strings.Contains(string(text), "usage_usec") {
			var usec int64
			fmt.Sscanf(string(text), "usage_usec %d", &usec)
			return time.Duration(usec) * time.Microsecond
		}
	}
	t.Fatalf("no cpu account in %v", seen.CgroupPaths)
	return 0
}

// plant puts into the root, as an image could, a file that only guest root may
// read and a setuid-root program.
func plant(t *testing.T, p *Provider, id sandbox.InstanceID) {
	t.Helper()
	in, err := p.find(sandbox.OpExecute, id)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(buildStatic(t, "./testdata/suid"))
	if err != nil {
		t.Fatal(err)
	}
	etc := filepath.Join(in.at.skeleton(), "etc")
	err = errors.Join(writeOwned(filepath.Join(etc, "secret"), []byte("secret"), 0o600),
		writeOwned(filepath.Join(etc, "suid"), program, 0o755|os.ModeSetuid))
	if err != nil {
		t.Fatal(err)
	}
}

// witness is a host process with a telling argument, ended with the test.
func witness(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "sleep 600 # checkfu-attack-witness")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}

const attackNetns = "checkfu-attack"

// liveNetwork makes a network namespace with a live listener at the far end of
// a veth pair, all of it this test's own.
func liveNetwork(t *testing.T) {
	t.Helper()
	ip := func(args ...string) {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", strings.Join(args, " "), err, out)
		}
	}
	far := attackNetns + "-far"
	t.Cleanup(func() {
		for _, ns := range []string{attackNetns, far} {
			exec.Command("ip", "netns", "del", ns).Run()
		}
	})
	ip("netns", "add", attackNetns)
	ip("netns", "add", far)
	ip("-n", attackNetns, "link", "add", "cf-inside", "type", "veth", "peer", "name", "cf-far", "netns", far)
	ip("-n", attackNetns, "addr", "add", "198.51.100.2/24", "dev", "cf-inside")
	ip("-n", attackNetns, "link", "set", "cf-inside", "up")
	ip("-n", attackNetns, "link", "set", "lo", "up")
	ip("-n", far, "addr", "add", "198.51.100.1/24", "dev", "cf-far")
	ip("-n", far, "link", "set", "cf-far", "up")
	answers := greet(t, far, "198.51.100.1:7777")
	eventually(t, "the listener answers", func() bool {
		exec.Command("ip", "netns", "exec", attackNetns, "busybox", "nc", "-w", "1", "198.51.100.1", "7777").Run()
		return answers.Load() > 0
	})
}

// greet answers every connection at address in a network namespace, and counts
// them: what the far side saw is what counts, not what the workload says.
func greet(t *testing.T, netns, address string) *atomic.Int64 {
	t.Helper()
	var answered atomic.Int64
	listening := make(chan net.Listener)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		ns, err := os.Open("/run/netns/" + netns)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		var l net.Listener
		if err == nil {
			l, err = net.Listen("tcp4", address)
		}
		if err != nil {
			t.Error(err)
		}
		listening <- l
	}()
	l := <-listening
	if l == nil {
		t.FailNow()
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answered.Add(1)
			c.Write([]byte("hello\n"))
			c.Close()
		}
	}()
	return &answered
}

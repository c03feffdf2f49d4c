package native

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/uplink"
	"github.com/checkfu/checkfu/sandbox"
)

// world is a host's network on a small internet in which every address is live.
// Its namespace is at path, for the children of the test.
func world(t *testing.T) (l *lab.Lab, path string) {
	t.Helper()
	l, err := lab.Open(lab.SocketFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	var ns *os.File
	if err := errors.Join(l.Guard.Set("ipv4/ip_forward", "1"), l.Guard.Do(func() (err error) {
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return l, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd())
}

// opening makes p one whose unrestricted machines are let into the network of a
// namespace.
func opening(p *Provider, path string) *Provider {
	p.opt.Uplink = &uplink.Host{
		Resolver: lab.ResolverAddr.Addr(),
		Within: func(f func() error) error {
			done := make(chan error, 1)
			go func() {
				runtime.LockOSThread()
				done <- inside(path, f)
			}()
			return <-done
		},
	}
	return p
}

// inside runs f with the thread in a namespace, and brings it back; one that
// cannot go back is never used again.
func inside(path string, f func() error) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = f()
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}

func unrestricted(p *Provider) sandbox.ProvisionRequest {
	r := request(p)
	r.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}
	return r
}

// An unrestricted machine reaches the internet, by name, by address, by TCP, UDP
// and echo; and nothing else of all that is live around it.
func TestUnrestricted_TheInternetAndNothingElse(t *testing.T) {
	l, path := world(t)
	setup(t)
	echo, err := os.ReadFile(buildStatic(t, "github.com/checkfu/checkfu/internal/provider/native/testdata/echo"))
	if err != nil {
		t.Fatal(err)
	}
	l.Resolver.Script("name.test", lab.Addresses(netip.MustParseAddr("45.33.32.10")))
	drivers(t, func(t *testing.T, p *Provider) {
		r := unrestricted(opening(p, path))
		r.Mounts = []sandbox.Mount{work}
		id := provision(t, p, r)
		if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: work.MountPath + "/echo", Content: echo, Executable: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		other := activate(t, p, unrestricted(p))
		neighbour := p.instances[other].uplink.Address()
		reaches := func(host string, port int) string {
			return fmt.Sprintf("echo hi | nc -w 10 %s %d >/dev/null 2>&1 && echo yes || echo no", host, port)
		}
		mark := l.Ledger.Mark()
		for _, c := range []struct{ script, want string }{
			{reaches("45.33.32.10", 443), "yes\n"},
			{reaches("8.8.8.8", 22), "yes\n"},
			{reaches("name.test", 443), "yes\n"},
			{"nslookup -type=a name.test >/dev/null && echo yes", "yes\n"},
			{"cat /etc/resolv.conf", "nameserver 45.33.32.53\n"},
			{work.MountPath + "/echo 45.33.32.10 && echo yes", "yes\n"},
			{"grep -c : /proc/net/dev", "2\n"},
			{"env | grep -ci proxy", "0\n"},
			{"test -s /proc/net/if_inet6 && grep -v ' lo$' /proc/net/if_inet6; echo", "\n"},
		} {
			if s := sh(t, p, id, c.script); string(s.Stdout) != c.want {
				t.Errorf("%s:\ngot  %q\nwant %q\n%s", c.script, s.Stdout, c.want, s.Stderr)
			}
		}
		if err := l.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(l.Ledger.Since(mark)); n != 3 {
			t.Errorf("%d connections arrived, want 3", n)
		}
		mark = l.Ledger.Mark()
		for _, host := range []string{
			"169.254.169.254", "10.77.0.10", "192.168.1.1", "100.64.0.1", "168.63.129.16",
			lab.GuardAddr.String(), "10.201.0.1", lab.NeighborAddr.String(), neighbour.Prev().String(), neighbour.String(),
		} {
			if s := sh(t, p, id, reaches(host, 80)); string(s.Stdout) != "no\n" {
				t.Errorf("%s: %q", host, s.Stdout)
			}
		}
		if err := l.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, a := range l.Ledger.Since(mark) {
			t.Errorf("%s accepted a connection", a.Local)
		}
		if r, err := readRecord(p.place(id)); err != nil || !r.Linked || r.Guarded {
			t.Errorf("record %+v, %v", r, err)
		}
		if got, err := p.Decisions(t.Context(), id, 0); err != nil || fmt.Sprint(got) != fmt.Sprint(Decisions{}) {
			t.Errorf("%+v, %v", got, err)
		}
		for _, id := range []sandbox.InstanceID{id, other} {
			if _, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{}); err != nil {
				t.Error(err)
			}
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left:\n%s", strings.Join(left, "\n"))
		}
	})
}

// Whatever killed its owner, and at whatever step: the link and the table are
// gone with the sweep, and the fence stood as long as the machine.
func TestCleanup_AfterACrashNoLinkIsLeft(t *testing.T) {
	_, path := world(t)
	drivers(t, func(t *testing.T, p *Provider) {
		opening(p, path)
		for _, step := range []string{"record", "linked", "started", "running", "stopped", "reaped", "removed"} {
			crash(t, p, step, "CHILD_UPLINK="+path)
			fenced := strings.Contains(strings.Join(census(t, p), "\n"), "table checkfu-")
			if want := step == "linked" || step == "started" || step == "running"; want && !fenced {
				t.Errorf("%s: no fence outlived the crash", step)
			}
			if swept := sweep(t, p); step != "removed" && len(swept.InstanceIDs) != 1 {
				t.Errorf("%s: swept %v", step, swept.InstanceIDs)
			}
			if left := census(t, p); len(left) > 0 {
				t.Errorf("%s: left after the sweep:\n%s", step, strings.Join(left, "\n"))
			}
		}
	})
}

// What the host lacks is refused by name, before anything is made, and is not in
// the envelope; a driver that leaves the link out is found out.
func TestUnrestricted_RefusedByName(t *testing.T) {
	l, path := world(t)
	p := opening(newProvider(t, "runc"), path)
	modes := func() string {
		c, err := p.Capabilities(t.Context())
		if err != nil || c.Validate() != nil {
			t.Error(err, c.Validate())
		}
		return fmt.Sprint(c.NetworkModes)
	}
	if err := l.Guard.Set("ipv4/ip_forward", "0"); err != nil {
		t.Fatal(err)
	}
	_, err := p.Provision(t.Context(), unrestricted(p))
	if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Reason != "host_lacks" || !strings.Contains(err.Error(), "net.ipv4.conf.up.forwarding") {
		t.Errorf("%v", err)
	}
	if got := modes(); got != "[none]" {
		t.Error(got)
	}
	if err := l.Guard.Set("ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	if got := modes(); got != "[none unrestricted]" {
		t.Error(got)
	}
	p.opt.Driver = disobedient{p.opt.Driver, func(s *machine.Spec) { s.Netns = "" }}
	id := provision(t, p, unrestricted(p))
	if _, err := p.Activate(t.Context(), id); err == nil || !strings.Contains(err.Error(), "network_policy: interfaces") {
		t.Errorf("%v", err)
	}
	if left, err := p.opt.Uplink.Census(); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Whose fence was taken away is cut off at once, and its run is told.
func TestUnrestricted_NoFenceNoNetwork(t *testing.T) {
	l, path := world(t)
	p := opening(newProvider(t, "runc"), path)
	id := activate(t, p, unrestricted(p))
	if _, err := p.Conclude(t.Context(), id); err != nil {
		t.Error(err)
	}
	began := open(t, p, id, "read go; echo hi | nc -w 5 45.33.32.10 80 || echo unreachable; grep -c : /proc/net/dev")
	if err := l.Guard.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		c.FlushRuleset()
		return c.Flush()
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the link is cut", func() bool {
		left, err := p.opt.Uplink.Census()
		return err == nil && len(left) == 0
	})
	if _, err := began.Input().Write([]byte("go\n")); err != nil {
		t.Error(err)
	}
	if said, err := io.ReadAll(began.Output()); err != nil || string(said) != "unreachable\n1\n" {
		t.Errorf("%q, %v", said, err)
	}
	eventually(t, "nothing is begun in it any more", func() bool {
		_, err := p.Execute(t.Context(), id, shell("true"))
		return errors.Is(err, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Operation: sandbox.OpExecute, Requirement: sandbox.RequireNetworkPolicy})
	})
	_, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{Executable: "/bin/true", WorkingDirectory: "/", Environment: map[string]string{}})
	if !errors.Is(err, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Operation: sandbox.OpOpenProcess, Requirement: sandbox.RequireNetworkPolicy}) {
		t.Errorf("a process: %v", err)
	}
	if _, err := p.Conclude(t.Context(), id); err == nil || !strings.Contains(err.Error(), "the fence of the machine was lost") {
		t.Errorf("%v", err)
	}
}

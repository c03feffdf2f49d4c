package e2e

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/provider/native/uplink"
)

// TestRunUnrestricted: the internet by name, address, TCP and UDP, and nothing
// else that is alive around the machine; said to whoever asks for it. Nothing of it
// is left. Where the host lets nobody out that is said with what to do.
func TestRunUnrestricted(t *testing.T) {
	l := internet(t)
	host := &uplink.Host{Within: l.Guard.Do}
	const warning = "checkfu: warning: --network unrestricted: what runs in the machine can send whatever it can read to anybody on the internet\n"
	reach := func(to string) string {
		return "echo hi | nc -w 10 " + to + " 80 >/dev/null 2>&1 && echo yes || echo no;"
	}
	script := reach("allowed.test") + reach("8.8.8.8") + reach("169.254.169.254") + reach("10.77.0.10") + reach("192.168.1.1") +
		reach(lab.GuardAddr.String()) + reach(lab.NeighborAddr.String())

	r := on(t, l, boxed(providers[0], script, "--network", "unrestricted")...)
	if r.code != 125 || !strings.Contains(r.stderr, "cannot be had here: the host passes on nothing that comes in on up") || !strings.Contains(r.stderr, "sysctl -w net.ipv4.conf.up.forwarding=1") || strings.Contains(r.stderr, "warning") {
		t.Errorf("without forwarding: %+v", r)
	}
	if r := on(t, l, "doctor"); !strings.Contains(r.stdout, "--network unrestricted cannot be had here") {
		t.Errorf("doctor says nothing of it:\n%s", r.stdout)
	}
	if err := l.Guard.Set("ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	if r := on(t, l, "doctor"); strings.Contains(r.stdout, "--network unrestricted") {
		t.Errorf("doctor:\n%s", r.stdout)
	}
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			mark := l.Ledger.Mark()
			r := on(t, l, boxed(provider, script, "--network", "unrestricted", "--quiet")...)
			if r.code != 0 || r.stdout != "yes\nyes\nno\nno\nno\nno\nno\n" || r.stderr != warning {
				t.Fatalf("%+v", r)
			}
			settle(t, l)
			arrived := map[netip.Addr]int{}
			for _, a := range l.Ledger.Since(mark) {
				arrived[a.Local.Addr()]++
			}
			if len(arrived) != 2 || arrived[lab.PublicAddr] != 1 || arrived[netip.MustParseAddr("8.8.8.8")] != 1 {
				t.Errorf("connections arrived at %v", arrived)
			}
			// Live, or nothing was shown.
			for _, to := range []string{"169.254.169.254:80", "10.77.0.10:80", "192.168.1.1:80"} {
				if err := l.Live(t.Context(), netip.MustParseAddrPort(to)); err != nil {
					t.Error(err)
				}
			}
			if left, err := host.Census(); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
	started := on(t, l, "session", "start", "--image", "busybox", "--network", "unrestricted", "--quiet")
	id := strings.TrimSpace(started.stdout)
	if started.code != 0 || started.stderr != warning {
		t.Fatalf("%+v", started)
	}
	if r := on(t, l, "session", "exec", id, "--", "sh", "-c", reach("allowed.test")+reach("10.77.0.10")); r.code != 0 || r.stdout != "yes\nno\n" {
		t.Errorf("%+v", r)
	}
	// Where the host's rules are loaded anew its commands are refused, and say why.
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
	eventually(t, "its commands are refused", func() bool {
		r := on(t, l, "session", "exec", id, "--", "true")
		return r.code == 125 && strings.Contains(r.stderr, "its link was cut, and nothing is begun in it any more")
	})
	if r := on(t, l, "session", "rm", id); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if left, err := host.Census(); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

package uplink

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// Every block that is not public is out of reach, at both its ends, although
// each is live: the host itself reaches it in the same run.
func TestFence_NothingThatIsNotPublic(t *testing.T) {
	l, h := world(t)
	u := open(t, h, idA)
	mark, packets := l.Ledger.Mark(), l.Tap.Mark()
	tried := 0
	for _, row := range policy.Rows() {
		for _, p := range row.Prefixes() {
			if !p.Addr().Is4() {
				continue
			}
			for _, a := range []netip.Addr{p.Masked().Addr(), last(p)} {
				tried++
				if said, err := u.dial("tcp4", netip.AddrPortFrom(a, 80)); err == nil {
					t.Errorf("%s %s (%s): reached, %q", row.Case, a, row.Name, said)
				}
				u.do(func() error { // and without a connection
					c, err := net.Dial("udp4", netip.AddrPortFrom(a, 53).String())
					if err == nil {
						c.Write([]byte("x"))
						c.Close()
					}
					return err
				})
			}
		}
	}
	if err := l.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range l.Ledger.Since(mark) {
		t.Errorf("%s accepted a connection", a.Local)
	}
	for flow := range l.Tap.Since(packets) {
		if a := flow.Destination.Addr(); a.Is4() && !policy.Public(a) {
			t.Errorf("a packet left the host: %v", flow)
		}
	}
	// The live control: from the host, whose address nobody translates.
	for _, a := range []string{"10.77.0.10", "169.254.169.254", "192.168.1.1", "172.16.0.1", "100.64.0.1", "168.63.129.16"} {
		if err := l.Live(t.Context(), at(a, 80)); err != nil {
			t.Errorf("%s is not live, so nothing was shown: %v", a, err)
		}
	}
	if said, err := u.dial("tcp4", at("45.33.32.10", 80)); err != nil {
		t.Errorf("the machine reaches nothing at all, so nothing was shown: %q %v", said, err)
	}
	t.Logf("%d addresses tried", tried)
}

// The host is out of reach under each of its addresses, the public one too, and
// so are its neighbour, and the host's end of the link; another address of the
// public block is not.
func TestFence_NotTheHost(t *testing.T) {
	l, h := world(t)
	u := open(t, h, idA)
	gateway := u.Address().Prev()
	mark := l.Ledger.Mark()
	for _, c := range []struct {
		name string
		to   netip.Addr
	}{
		{"the host's public address", lab.GuardAddr},
		{"the host's address in a net of its own", netip.MustParseAddr("10.201.0.1")},
		{"a neighbour of the host", lab.NeighborAddr},
		{"the host's end of the link", gateway},
	} {
		for _, port := range []uint16{443, 80, 22} {
			if _, err := u.dial("tcp4", netip.AddrPortFrom(c.to, port)); err == nil {
				t.Errorf("%s, %s port %d: reached", c.name, c.to, port)
			}
		}
		if got, err := u.echo(c.to.String(), "45.33.32.10"); err != nil || len(got) > 0 {
			t.Errorf("%s: an echo is answered by %v, %v", c.name, got, err)
		}
	}
	if err := l.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range l.Ledger.Since(mark) {
		t.Errorf("%s accepted a connection", a.Local)
	}
	// Live: the host's own programs reach all three.
	for _, to := range []netip.Addr{lab.GuardAddr, netip.MustParseAddr("10.201.0.1"), lab.NeighborAddr} {
		conn, err := l.Guard.Dial(t.Context(), "tcp4", netip.AddrPortFrom(to, 443))
		if err != nil {
			t.Errorf("%s is not live, so nothing was shown: %v", to, err)
			continue
		}
		conn.Close()
	}
}

// A machine cannot use another's address as its own, nor IPv6, and nobody gets
// in from outside.
func TestFence_NoOtherSourceAndNoWayIn(t *testing.T) {
	l, h := world(t)
	u := open(t, h, idA)
	// The kernel's own look at sources is out of the way: it is the fence that is asked.
	for _, of := range []string{"all", u.device} {
		if err := h.within(func() error { return settings(map[string]string{"ipv4/conf/%s/rp_filter": "0"}, of) }); err != nil {
			t.Fatal(err)
		}
	}
	stranger := netip.MustParseAddr("45.33.45.45")
	if err := u.do(func() error { // a machine may not do this; what has broken out of one may
		link, err := netlink.LinkByName(Device)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: stranger.AsSlice(), Mask: net.CIDRMask(32, 32)}})
	}); err != nil {
		t.Fatal(err)
	}
	// forged says whether a packet with the stranger's address leaves the host.
	forged := func(port uint16) bool {
		packets, to := l.Tap.Mark(), at("45.33.32.10", port)
		if err := u.do(func() error {
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: stranger.AsSlice()}}
			c, err := d.Dial("udp4", to.String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("forged"))
			return err
		}); err != nil {
			t.Error(err)
		}
		if err := l.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		for flow := range l.Tap.Since(packets) {
			if flow.Destination == to {
				return true
			}
		}
		return false
	}
	if forged(9) {
		t.Error("a forged packet left the host")
	}
	if _, err := u.dial("tcp6", at("2a00:1450:4001:10::10", 443)); err == nil {
		t.Error("IPv6 leads out")
	}
	if err := h.within(func() error { return unloadFence(idA) }); err != nil {
		t.Fatal(err)
	}
	passed := false
	for late := time.Now().Add(30 * time.Second); !passed && time.Now().Before(late); {
		passed = forged(10)
	}
	if !passed {
		t.Error("without the fence it does not leave either, so nothing was shown")
	}
}

// Nobody gets in from outside, also who has a route to the machine: what comes
// first is what the host sent, later. With the fence gone the same gets through.
func TestFence_NoWayIn(t *testing.T) {
	l, h := world(t)
	u := open(t, h, idA)
	if err := l.Public.Route(u.Address().String()+"/32", lab.GuardAddr.String()); err != nil {
		t.Fatal(err)
	}
	var inbox net.PacketConn
	if err := u.do(func() (err error) {
		inbox, err = net.ListenPacket("udp4", netip.AddrPortFrom(u.Address(), 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer inbox.Close()
	send := func(n *lab.Namespace, text string) {
		if err := n.Do(func() error {
			c, err := net.Dial("udp4", inbox.LocalAddr().String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte(text))
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"host", "outside"} {
		send(l.Outside, "outside")
		if err := l.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(l.Guard, "host")
		inbox.SetReadDeadline(time.Now().Add(30 * time.Second))
		b := make([]byte, 99)
		n, _, err := inbox.ReadFrom(b)
		if got := string(b[:n]); err != nil || got != want {
			t.Fatalf("got %q, want %q first, %v", got, want, err)
		}
		if err := h.within(func() error { return unloadFence(idA) }); err != nil {
			t.Fatal(err)
		}
	}
}

// A table of ours is of one family, so that what is not IPv4 is judged as well.
func TestFence_IsOfBothFamilies(t *testing.T) {
	if tableOf(idA).Family != nftables.TableFamilyINet {
		t.Error("not inet")
	}
}

// The name server is reached at its port wherever it lies, and nothing else there:
// on the host's network, and on the host itself.
func TestFence_TheNameServerAlone(t *testing.T) {
	l, h := world(t)
	send := func(u *Uplink, to netip.AddrPort) {
		if err := u.do(func() error {
			c, err := net.Dial("udp4", to.String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("name?"))
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	h.Resolver = netip.MustParseAddr("10.77.0.10")
	u := open(t, h, idA)
	packets := l.Tap.Mark()
	for _, port := range []uint16{53, 54} {
		send(u, netip.AddrPortFrom(h.Resolver, port))
	}
	send(u, at("10.77.0.11", 53))
	asked := 0
	for late := time.Now().Add(30 * time.Second); asked == 0 && time.Now().Before(late); {
		// What was sent may wait for its neighbour's address, beside what settles.
		if err := l.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		for flow := range l.Tap.Since(packets) {
			switch to := flow.Destination; {
			case to == netip.AddrPortFrom(h.Resolver, 53):
				asked++
			case !policy.Public(to.Addr()) && to.Addr().Is4():
				t.Errorf("a packet left the host: %v", flow)
			}
		}
	}
	if asked != 1 {
		t.Errorf("%d flows to the name server", asked)
	}

	h.Resolver = netip.MustParseAddr("10.201.0.1") // the host's own
	local := open(t, h, idB)
	inbox, err := l.Guard.ListenPacket(netip.AddrPortFrom(h.Resolver, 53))
	if err != nil {
		t.Fatal(err)
	}
	defer inbox.Close()
	send(local, netip.AddrPortFrom(h.Resolver, 53))
	inbox.SetReadDeadline(time.Now().Add(30 * time.Second))
	if n, from, err := inbox.ReadFrom(make([]byte, 99)); err != nil || n != 5 {
		t.Errorf("%d from %v, %v", n, from, err)
	}
	if _, err := local.dial("tcp4", netip.AddrPortFrom(h.Resolver, 443)); err == nil {
		t.Error("another port of the host is reached")
	}
}

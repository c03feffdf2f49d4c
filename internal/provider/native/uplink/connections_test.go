package uplink

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// A machine has so many connections and no more, those to the host's own name
// server among them: each would take a place in the one table that all have.
func TestFence_SoManyConnections(t *testing.T) {
	l, h := world(t)
	h.Resolver = netip.MustParseAddr("10.201.0.1") // the host's own
	u := open(t, h, idA)
	allow := func(most uint32) {
		t.Helper()
		if err := h.within(func() error {
			return loadFence(fence{id: idA, device: u.device, machine: u.Address(), resolver: h.Resolver, most: most})
		}); err != nil {
			t.Fatal(err)
		}
	}
	inbox, err := l.Guard.ListenPacket(netip.AddrPortFrom(h.Resolver, 53))
	if err != nil {
		t.Fatal(err)
	}
	defer inbox.Close()
	// begin sends from a port of its own.
	begin := func(to netip.AddrPort, text string) {
		t.Helper()
		if err := u.do(func() error {
			c, err := net.Dial("udp4", to.String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte(text))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	next := func() string {
		t.Helper()
		inbox.SetReadDeadline(time.Now().Add(30 * time.Second))
		b := make([]byte, 99)
		n, _, err := inbox.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	server, outside := netip.AddrPortFrom(h.Resolver, 53), at("45.33.32.10", 9)
	seen := func(port uint16) bool {
		if err := l.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		for flow := range l.Tap.Since(nil) {
			if flow.Destination.Addr() == outside.Addr() && flow.Destination.Port() == port {
				return true
			}
		}
		return false
	}
	eventually := func(port uint16) {
		t.Helper()
		for late := time.Now().Add(30 * time.Second); !seen(port); {
			if time.Now().After(late) {
				t.Fatalf("port %d was never reached", port)
			}
		}
	}

	allow(3)
	begin(server, "first")
	if got := next(); got != "first" {
		t.Fatalf("got %q", got)
	}
	begin(server, "second")
	if got := next(); got != "second" {
		t.Fatalf("got %q", got)
	}
	begin(netip.AddrPortFrom(outside.Addr(), 11), "third")
	eventually(11)
	begin(server, "fourth")
	begin(netip.AddrPortFrom(outside.Addr(), 12), "fifth")
	// The control comes after them, and alone.
	allow(maxConnections)
	begin(server, "control")
	if got := next(); got != "control" {
		t.Errorf("a fourth connection reached the host: %q", got)
	}
	begin(netip.AddrPortFrom(outside.Addr(), 13), "control")
	eventually(13)
	if seen(12) {
		t.Error("a fifth connection left the host")
	}
}

package uplink

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flows counts what the host keeps in mind of a machine.
func flows(t *testing.T, h *Host, machine netip.Addr) (n int) {
	t.Helper()
	if err := h.within(func() error {
		all, err := dump(func() ([]*netlink.ConntrackFlow, error) {
			return netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		})
		for _, f := range all {
			if flowsOf(machine).MatchConntrackFlow(f) {
				n++
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// The host keeps in mind nothing of a machine that is gone, whoever removes it, and
// all of its neighbour's.
func TestForget(t *testing.T) {
	_, h := world(t)
	neighbour := open(t, h, idB)
	talk := func(u *Uplink) {
		t.Helper()
		if _, err := u.dial("tcp4", at("45.33.32.10", 443)); err != nil {
			t.Fatal(err)
		}
		if flows(t, h, u.Address()) == 0 {
			t.Fatal("nothing is kept in mind, so nothing is shown")
		}
	}
	talk(neighbour)
	for _, c := range []struct {
		name string
		end  func(*Uplink) error
	}{
		{"closed", (*Uplink).Close},
		{"removed by the id, its link there", func(u *Uplink) error { return h.Remove(u.id) }},
		{"removed by the id, its link gone", func(u *Uplink) error {
			return errors.Join(h.within(func() error { return cut(u.id) }), h.Remove(u.id))
		}},
	} {
		u := open(t, h, idA)
		talk(u)
		if err := c.end(u); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if n := flows(t, h, u.Address()); n > 0 {
			t.Errorf("%s: %d flows are kept in mind", c.name, n)
		}
	}
	if flows(t, h, neighbour.Address()) == 0 {
		t.Error("a neighbour's flows were forgotten too")
	}
}

// Whose link and table both went without us leaves flows, and the next machine of
// that address does not get them.
func TestForget_AtOpen(t *testing.T) {
	_, h := world(t)
	old := open(t, h, idA)
	if _, err := old.dial("tcp4", at("45.33.32.10", 443)); err != nil {
		t.Fatal(err)
	}
	if err := h.within(func() error { return errors.Join(cut(idA), unloadFence(idA)) }); err != nil {
		t.Fatal(err)
	}
	if flows(t, h, old.Address()) == 0 {
		t.Fatal("nothing is kept in mind, so nothing is shown")
	}
	next := openAt(t, h, idB, place(old.Address()))
	if next.Address() != old.Address() {
		t.Fatalf("got %s, expected %s", next.Address(), old.Address())
	}
	if n := flows(t, h, old.Address()); n > 0 {
		t.Errorf("%d flows of the last machine are the next one's", n)
	}
}

// The host's own table of an id that is taken again by another machine is left
// alone: what is in it is that one's.
func TestForget_NotWhatIsTaken(t *testing.T) {
	_, h := world(t)
	dead := open(t, h, idA)
	if err := h.within(func() error { return cut(idA) }); err != nil {
		t.Fatal(err)
	}
	next := openAt(t, h, idB, place(dead.Address()))
	if _, err := next.dial("tcp4", at("45.33.32.10", 443)); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(idA); err != nil {
		t.Error(err)
	}
	if flows(t, h, next.Address()) == 0 {
		t.Error("the flows of another machine were forgotten")
	}
}

// openAt opens where nothing but one place is free.
func openAt(t *testing.T, h *Host, id string, slot int) *Uplink {
	t.Helper()
	_, machine := ends(slot)
	if err := h.within(func() (err error) {
		for bits := links.Bits() + 1; bits <= 30; bits++ {
			other := machine.As4()
			other[(bits-1)/8] ^= 0x80 >> ((bits - 1) % 8)
			block, _ := netip.AddrFrom4(other).Prefix(bits)
			err = errors.Join(err, netlink.RouteAdd(&netlink.Route{
				Type: unix.RTN_BLACKHOLE,
				Dst:  &net.IPNet{IP: block.Addr().AsSlice(), Mask: net.CIDRMask(bits, 32)},
			}))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return open(t, h, id)
}

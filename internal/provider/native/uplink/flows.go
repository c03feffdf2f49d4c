package uplink

import (
	"errors"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// flowsOf picks the host's entries that have a machine's address at either end, as
// they came or as they are answered.
type flowsOf netip.Addr

// MatchConntrackFlow reports whether an entry is one of the machine's.
func (m flowsOf) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	for _, end := range []net.IP{f.Forward.SrcIP, f.Forward.DstIP, f.Reverse.SrcIP, f.Reverse.DstIP} {
		if a, ok := netip.AddrFromSlice(end); ok && a.Unmap() == netip.Addr(m) {
			return true
		}
	}
	return false
}

// forget removes what the host keeps in mind of a machine's connections. The kernel
// keeps one that nobody closed for five days, counts it to no fence any more, and
// would let its answers in to the next machine of that address.
//
// Blocks: while the kernel lists all connections of the host, each time.
func forget(machine netip.Addr) error {
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer h.Close()
	_, err = dump(func() ([]uint, error) {
		n, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, flowsOf(machine))
		return []uint{n}, err
	})
	return wrap("forget the connections of "+machine.String(), err)
}

// forgetLost does so after a crash, when nothing but the table of an id says which
// address was the machine's. A table that is not there says none: Open forgets then.
// An address whose link is there again is another machine's by now.
func forgetLost(id string) error {
	machine, ok := fenced(id)
	if !ok {
		return nil
	}
	var gone netlink.LinkNotFoundError
	if _, err := netlink.LinkByName(device(place(machine))); !errors.As(err, &gone) {
		return err
	}
	return forget(machine)
}

// fenced reads from the table of an id whom it fences, if it is there and tells.
func fenced(id string) (machine netip.Addr, ok bool) {
	c, err := tables()
	if err != nil {
		return machine, false
	}
	table := tableOf(id)
	rules, err := c.GetRules(table, &nftables.Chain{Name: "out", Table: table})
	if err != nil || len(rules) != 1 {
		return machine, false
	}
	for _, e := range rules[0].Exprs {
		if cmp, is := e.(*expr.Cmp); is {
			if a, is4 := netip.AddrFromSlice(cmp.Data); is4 && links.Contains(a) {
				return a, true
			}
		}
	}
	return machine, false
}

// flowsAnswer says why the host's connections cannot be forgotten. It asks for those
// that are merely expected, in the same part of the kernel: there are few.
func flowsAnswer() error {
	q := nl.NewNetlinkRequest(netlink.ConntrackExpectTable<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	q.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	_, err := dump(func() ([][]byte, error) { return q.Execute(unix.NETLINK_NETFILTER, 0) })
	return err
}

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// end is one end of a link: in which namespace, under which name, with which
// addresses.
type end struct {
	in        *Namespace
	name      string
	addresses []string // with the length of the net
}

// connect lays a veth pair between two namespaces. Neither end gets an address
// of its own accord, so nothing is there that nobody wrote down.
func connect(a, b end) error {
	err := a.in.Do(func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = a.name
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attributes, PeerName: b.name, PeerNamespace: netlink.NsFd(int(b.in.file.Fd())),
		})
	})
	if err == nil {
		err = a.up()
	}
	if err == nil {
		err = b.up()
	}
	if err != nil {
		return &Error{fmt.Sprintf("link %s %s to %s %s", a.in.Name, a.name, b.in.Name, b.name), err}
	}
	return nil
}

// up quiets the end, gives it its addresses, and starts it.
func (e end) up() error {
	return e.in.Do(func() error {
		link, err := netlink.LinkByName(e.name)
		if err != nil {
			return err
		}
		for _, s := range [][2]string{
			{"ipv6/conf/%s/addr_gen_mode", "1"}, // no fe80:: that nobody asked for
			{"ipv6/conf/%s/accept_ra", "0"},
			{"ipv6/conf/%s/accept_dad", "0"}, // an address is usable at once
			{"ipv6/conf/%s/router_solicitations", "0"},
		} {
			if err := setting(fmt.Sprintf(s[0], e.name), s[1]); err != nil {
				return err
			}
		}
		for _, text := range e.addresses {
			address, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			if address.IP.To4() == nil {
				address.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, address); err != nil {
				return fmt.Errorf("address %s: %w", text, err)
			}
		}
		return netlink.LinkSetUp(link)
	})
}

// loopback starts lo.
func (n *Namespace) loopback() error {
	return n.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
}

// Route sends all of a net to a neighbour.
// Errors: of the operating system.
func (n *Namespace) Route(to, via string) error {
	return n.Do(func() error {
		_, prefix, err := net.ParseCIDR(to)
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: prefix, Gw: net.ParseIP(via)})
	})
}

// everywhere makes every address of both families local, except those of
// without, which are then known to nobody. The routes stand in the main table,
// so that a neighbour on a link is still a neighbour.
func (n *Namespace) everywhere(without ...netip.Prefix) error {
	return n.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, all := range []string{"0.0.0.0/0", "::/0"} {
			_, prefix, err := net.ParseCIDR(all)
			if err != nil {
				return err
			}
			local := netlink.Route{
				LinkIndex: lo.Attrs().Index, Dst: prefix, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_MAIN,
			}
			if err := netlink.RouteAdd(&local); err != nil {
				return fmt.Errorf("local %s: %w", all, err)
			}
		}
		for _, p := range without {
			dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
			if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Type: unix.RTN_UNREACHABLE}); err != nil {
				return fmt.Errorf("unreachable %s: %w", p, err)
			}
		}
		return nil
	})
}

// Interfaces lists what the namespace has, sorted: names with their addresses.
// Errors: *Error.
func (n *Namespace) Interfaces() ([]string, error) {
	var out []string
	err := n.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			text := link.Attrs().Name
			addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
			if err != nil {
				return err
			}
			for _, a := range addresses {
				text += " " + a.IPNet.String()
			}
			out = append(out, text)
		}
		return nil
	})
	if err != nil {
		return nil, &Error{"list interfaces of " + n.Name, err}
	}
	slices.Sort(out)
	return out, nil
}

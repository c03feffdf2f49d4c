package matrix

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// directCases are those of a workload that does not ask the guard. It is root in
// its namespace and has every capability there, on purpose.
func directCases() []Case {
	d := []Fact{Default}
	attacks := func(a attack) func(*trial) error { return func(t *trial) error { return t.unheard(a) } }
	everything := all(connects(anywhere4...), connects(anywhere6...), datagrams(anywhere4...), datagrams(anywhere6...), pings())
	return []Case{
		{ID: "D01", Title: "TCP over IPv4, past the guard", Facts: d, run: attacks(connects(anywhere4...))},
		{ID: "D02", Title: "TCP over IPv6, switched on again by the workload", Facts: d, run: func(t *trial) error {
			if err := t.lab.Workload.Set("ipv6/conf/all/disable_ipv6", "0"); err != nil {
				return blind(err)
			}
			return t.unheard(connects(anywhere6...))
		}},
		{ID: "D03", Title: "UDP to port 53 of anybody, and to port 443", Facts: d, run: attacks(all(
			datagrams(lab.ResolverAddr, netip.MustParseAddrPort("8.8.8.8:53"), public), datagrams(anywhere6...)))},
		{ID: "D04", Title: "echo requests", Facts: d, run: attacks(pings())},
		{ID: "D05", Title: "frames past the kernel's routes", Facts: d, run: attacks(frames)},
		{ID: "D06", Title: "a default route of the workload's own, on a host that forwards", Facts: d, run: func(t *trial) error { return t.routed(everything) }},
		{ID: "D07", Title: "the guard's address on the other side", Facts: d, live: live(lab.GuardAddr), run: func(t *trial) error {
			return t.routed(connects(sinksAt(lab.GuardAddr)...))
		}},
		{ID: "D08", Title: "another port of the guard's address", Facts: d, live: live(edgeAddr), run: func(t *trial) error {
			return t.closedTo(sinksAt(t.guard.door.Entry.Addr())...)
		}},
		{ID: "D09", Title: "the guard's link-local address", Facts: d, live: live(linkLocalAddr), run: linkLocal},
		{ID: "D10", Title: "multicast and broadcast", Facts: d, run: attacks(datagrams(
			netip.MustParseAddrPort("224.0.0.251:5353"), netip.MustParseAddrPort("239.255.255.250:1900"),
			netip.MustParseAddrPort("255.255.255.255:67"), netip.MustParseAddrPort("[ff02::fb]:5353")))},
		{ID: "D11", Title: "the metadata address, directly and through the guard", Facts: []Fact{Default, Address}, live: live(metadata), run: func(t *trial) error {
			if err := t.unheard(connects(netip.AddrPortFrom(metadata, 80), netip.AddrPortFrom(metadata, 443))); err != nil {
				return err
			}
			return t.refused("169.254.169.254:80", 403, policy.ReasonLiteral)
		}},
		{ID: "D12", Title: "the gateway of a bridge", Facts: d, live: live(bridgeAddr, edgeAddr), run: func(t *trial) error {
			err := t.closedTo(append(sinksAt(bridgeAddr), sinksAt(edgeAddr)...)...)
			return errors.Join(err, t.refused("host.docker.internal:443", 403, policy.ReasonNotAllowlisted))
		}},
		{ID: "D13", Title: "another sandbox, and its guard", Facts: d, live: live(lab.NeighborAddr), run: neighbour},
		{ID: "D14", Title: "other protocols: MPTCP, SCTP, DCCP, GRE, IP in IP, abstract sockets, vsock", Facts: d, run: otherProtocols},
		{ID: "D15", Title: "a question to a resolver", Facts: d, run: getaddrinfo},
		{ID: "D36", Title: "a port for metrics or administration", Facts: d, run: listeners},
		{ID: "D37", Title: "a namespace in the workload's namespace", Facts: d, run: nested},
		{ID: "D38", Title: "the workload takes the guard's port", Facts: d, alone: true, run: takePort},
	}
}

var (
	metadata      = netip.MustParseAddr("169.254.169.254")
	bridgeAddr    = netip.MustParseAddr("172.17.0.1")
	edgeAddr      = netip.MustParseAddr("10.99.0.1") // the guard's end of a link, where there is one
	linkLocalAddr = netip.MustParseAddr("fe80::200")
)

func sinksAt(a netip.Addr) []netip.AddrPort {
	var out []netip.AddrPort
	for _, p := range lab.SinkPorts() {
		out = append(out, netip.AddrPortFrom(a, p))
	}
	return out
}

// closedTo holds that nobody accepts at addresses that may be the workload's
// own: what it says to itself no tap sees.
func (t *trial) closedTo(to ...netip.AddrPort) error {
	if accepted := t.knocks(t.lab.Workload, to); len(accepted) > 0 {
		return fmt.Errorf("the workload is accepted at %v", accepted)
	}
	return t.unheard(connects(public))
}

// routed attacks after the workload gave itself a way out: over its link where
// it has one, else over its loopback, from a host that forwards.
func (t *trial) routed(a attack) error {
	for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := t.lab.Guard.Set(path, "1"); err != nil {
			return blind(err)
		}
		defer t.lab.Guard.Set(path, "0")
	}
	var routes []netlink.Route
	err := t.lab.Workload.Do(func() error {
		for _, r := range [][2]string{{"0.0.0.0/0", "10.99.0.1"}, {"::/0", "fd00:99::1"}} {
			_, all, _ := net.ParseCIDR(r[0])
			route := netlink.Route{Dst: all, Gw: net.ParseIP(r[1])}
			if t.lab.Topology != lab.Veth {
				lo, err := netlink.LinkByName("lo")
				if err != nil {
					return err
				}
				route = netlink.Route{Dst: all, LinkIndex: lo.Attrs().Index}
			}
			if err := netlink.RouteAdd(&route); err != nil {
				return err
			}
			routes = append(routes, route)
		}
		return nil
	})
	defer t.lab.Workload.Do(func() error {
		for i := range routes {
			netlink.RouteDel(&routes[i])
		}
		return nil
	})
	if err != nil {
		return blind(fmt.Errorf("add a route: %w", err))
	}
	if t.lab.Edge == nil {
		return t.unheard(a)
	}
	before, err := t.lab.Edge.Counts()
	if err != nil {
		return blind(err)
	}
	if err := t.unheard(a); err != nil {
		return err
	}
	after, err := t.lab.Edge.Counts()
	if err == nil && after[lab.CountForward]+after[lab.CountEdgeInput] == before[lab.CountForward]+before[lab.CountEdgeInput] {
		err = errors.New("the edge counted nothing, so nothing shows that it was what held")
	}
	if err != nil {
		return blind(err)
	}
	return nil
}

// neighbour is another sandbox, and the door of its guard, which is shown to be
// live from where it is: the gate lets nobody else there.
func neighbour(t *trial) error {
	door := netip.AddrPortFrom(lab.NeighborAddr, lab.GuardPort)
	listener, err := t.lab.Neighbor.Listen(door)
	if err != nil {
		return blind(err)
	}
	defer listener.Close()
	if len(t.knocks(t.lab.Neighbor, at(door))) == 0 {
		return blind(errors.New("the door of another sandbox is not live"))
	}
	if err := t.closedTo(door); err != nil {
		return err
	}
	return t.routed(connects(sinksAt(lab.NeighborAddr)...))
}

// linkLocal is asked over every link of the workload.
func linkLocal(t *trial) error {
	var to []netip.AddrPort
	err := t.lab.Workload.Do(func() error {
		links, err := net.Interfaces()
		for _, link := range links {
			for _, a := range []netip.Addr{linkLocalAddr, netip.MustParseAddr("fe80::1")} {
				to = append(to, sinksAt(a.WithZone(link.Name))...)
			}
		}
		return err
	})
	if err != nil {
		return blind(err)
	}
	return t.closedTo(to...)
}

func otherProtocols(t *trial) error {
	const gre, ipip, dccp, sctp = 47, 4, 33, 132
	body := make([]byte, 16)
	err := t.unheard(all(streams(unix.IPPROTO_MPTCP, public), streams(unix.IPPROTO_SCTP, public),
		raw(gre, body, lab.PublicAddr, lab.PublicAddr6), raw(ipip, body, lab.PublicAddr),
		raw(dccp, body, lab.PublicAddr, lab.PublicAddr6), raw(sctp, body, lab.PublicAddr, lab.PublicAddr6)))
	if err != nil {
		return err
	}
	if err := t.abstract(); err != nil {
		return err
	}
	return t.lab.Workload.Do(func() error {
		fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil // there is no such thing here
		}
		defer unix.Close(fd)
		wait := unix.NsecToTimeval(int64(knock))
		unix.SetsockoptTimeval(fd, unix.AF_VSOCK, unix.SO_VM_SOCKETS_CONNECT_TIMEOUT, &wait)
		// Its own machine alone: what lies beyond is not the lab's.
		if unix.Connect(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_LOCAL, Port: lab.GuardPort}) == nil {
			return errors.New("vsock connects")
		}
		return nil
	})
}

// abstract holds that an abstract socket of the guard's namespace is not one of
// the workload's.
func (t *trial) abstract() error {
	name := fmt.Sprintf("@checkfu-egress-lab-%d", os.Getpid())
	var listener net.Listener
	err := t.lab.Guard.Do(func() (err error) { listener, err = net.Listen("unix", name); return err })
	if err != nil {
		return blind(err)
	}
	defer listener.Close()
	call := func(n *lab.Namespace) error {
		return n.Do(func() error {
			conn, err := net.Dial("unix", name)
			if err == nil {
				conn.Close()
			}
			return err
		})
	}
	if err := call(t.lab.Guard); err != nil {
		return blind(fmt.Errorf("the control: %w", err))
	}
	if call(t.lab.Workload) == nil {
		return errors.New("the workload reaches an abstract socket of the guard's namespace")
	}
	return nil
}

// getaddrinfo asks with the system's own program and by hand.
func getaddrinfo(t *trial) error {
	s, err := t.watch(func() error {
		return t.lab.Workload.Do(func() error {
			// Where there is no such program, the questions by hand remain.
			if exec.CommandContext(t.ctx, "getent", "hosts", allowed).Run() == nil {
				return errors.New("getent finds a name")
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if err := errors.Join(s.asked(), s.explained()); err != nil {
		return err
	}
	return t.unheard(all(datagrams(lab.ResolverAddr), connects(lab.ResolverAddr)))
}

// listeners holds that the guard's door is all that listens for the workload.
func listeners(t *trial) error {
	var open []string
	err := t.lab.Workload.Do(func() error {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				const listen = "0A"
				if f := strings.Fields(line); len(f) > 3 && f[3] == listen {
					open = append(open, f[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		return blind(err)
	}
	door := fmt.Sprintf(":%04X", t.guard.door.Entry.Port())
	want := 1
	if t.lab.Topology == lab.Veth {
		want = 0 // it listens at the other end of the link
	}
	if len(open) != want || want == 1 && !strings.HasSuffix(open[0], door) {
		return fmt.Errorf("listeners of the workload's namespace: expected %d at %s, got %v", want, door, open)
	}
	return t.closedTo(sinksAt(t.guard.door.Entry.Addr())...)
}

func nested(t *trial) error {
	out, err := t.inside(t.ctx, unix.CLONE_NEWUSER|unix.CLONE_NEWNET, public, t.guard.door.Entry)
	if err != nil {
		return skipError{"no user namespace can be made here: " + err.Error()}
	}
	if want := fmt.Sprintf("link lo\nfailed %s\nfailed %s", public, t.guard.door.Entry); out != want {
		return fmt.Errorf("a nested namespace: expected %q, got %q", want, out)
	}
	// The control: the same program without one has more or reaches the door.
	if out, err := t.inside(t.ctx, 0, t.guard.door.Entry); err != nil || !strings.Contains(out, "reached") {
		return blind(fmt.Errorf("the control says %q: %w", out, err))
	}
	return nil
}

// takePort holds that a workload that was first has harmed itself only, and that
// one that is second does not get a part.
func takePort(t *trial) error {
	own, err := t.own(nothing)
	if err != nil {
		return err
	}
	second := t.lab.Workload.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		if err := unix.Bind(fd, sockaddr(own.guard.door.Entry)); err == nil {
			return unix.Listen(fd, 1)
		}
		return unix.EADDRINUSE
	})
	err = errors.Join(own.passes("allowed.test:443", public), own.guard.end())
	if second == nil {
		err = errors.Join(err, errors.New("the workload listens beside the guard"))
	}
	if err != nil || t.lab.Topology == lab.Veth {
		return err // the guard's address is not the workload's to take
	}
	first, err := t.lab.Workload.Listen(own.guard.door.Entry)
	if err != nil {
		return blind(err)
	}
	defer first.Close()
	if late, err := t.own(nothing); err == nil {
		return errors.Join(errors.New("a guard was started where the workload listens"), late.guard.end())
	}
	return nil
}

// neighboursOf are the hardware addresses that the kernel knows on a link.
func neighboursOf(link net.Interface) []net.HardwareAddr {
	var out []net.HardwareAddr
	list, err := netlink.NeighList(link.Index, netlink.FAMILY_ALL)
	if err != nil {
		return nil
	}
	for _, n := range list {
		if len(n.HardwareAddr) == 6 {
			out = append(out, n.HardwareAddr)
		}
	}
	return out
}

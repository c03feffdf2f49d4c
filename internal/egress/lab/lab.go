package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// Topology is how the workload is joined to its guard and its relay.
type Topology string

// The three topologies.
// Source: design "Egress".
const (
	SocketFile     Topology = "socket-file"     // loopback alone; a forwarder carries a port to a socket file
	InsideListener Topology = "inside-listener" // loopback alone; the guard's listener was opened in there
	Veth           Topology = "veth"            // a link, and rules that make it safe
)

// Topologies returns all three.
func Topologies() []Topology { return []Topology{SocketFile, InsideListener, Veth} }

// The ports of the two doors, and the ports of every sink.
const (
	GuardPort = 3128
	RelayPort = 3129
)

// SinkPorts are what every sink listens at.
func SinkPorts() []uint16 { return []uint16{443, 80, 8443, 22} }

// The addresses of the lab. Everything that stands for the internet is truly
// global, and so are the plane and the relay: only that they are named as
// infrastructure keeps a guard from them.
var (
	GuardAddr    = netip.MustParseAddr("45.33.39.2")
	GuardAddr6   = netip.MustParseAddr("2a00:1450:4001:39::2")
	PublicAddr   = netip.MustParseAddr("45.33.32.10") // an address in pub like any other
	PublicAddr6  = netip.MustParseAddr("2a00:1450:4001:10::10")
	ResolverAddr = netip.MustParseAddrPort("45.33.32.53:53")
	RelayAddr    = netip.MustParseAddr("45.33.41.1")
	PlaneAddr    = netip.MustParseAddr("45.33.41.2")
	NeighborAddr = netip.MustParseAddr("10.201.0.2") // another sandbox
	OutsideAddr  = netip.MustParseAddr("45.33.40.2")
	OutsideAddr6 = netip.MustParseAddr("2a00:1450:4001:40::2")
	DeadAddr     = netip.MustParseAddr("45.33.42.1") // public, and nobody is there
	DeadPrivate  = netip.MustParseAddr("10.66.0.1")  // private, and nobody is there

	guardEdge  = netip.MustParseAddr("10.99.0.1")
	relayEdge  = netip.MustParseAddr("10.98.0.1")
	planeNet   = netip.MustParsePrefix("45.33.41.0/30")
	publicEdge = netip.MustParseAddr("45.33.39.1")
	barriers   = netip.MustParsePrefix("45.34.0.0/16") // of Settle
)

// The names of links, each in its own namespace.
const (
	upLink   = "up"   // of gd and out, to pub
	edgeLink = "edge" // of gd and rl, to wl
)

// Lab is all of it.
type Lab struct {
	Topology Topology
	Workload *Namespace
	Guard    *Namespace
	Relay    *Namespace
	Public   *Namespace
	Plane    *Namespace
	Neighbor *Namespace
	Outside  *Namespace // a host of the internet: what it sends arrives, and so shows that the tap counts

	Ledger   *Ledger
	Resolver *Resolver
	Tap      *Tap  // what arrives in pub
	PlaneTap *Tap  // what arrives in pl
	Edge     *Gate // of topology Veth, else nil

	dir       string
	listeners []net.Listener
	barrier   atomic.Uint32
}

// Open builds a lab. It needs root.
// Errors: *Error; what was built until then is gone.
func Open(topology Topology) (*Lab, error) {
	l := &Lab{Topology: topology, Ledger: newLedger(), Resolver: newResolver()}
	if err := l.build(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Lab) build() error {
	dir, err := Scratch()
	if err != nil {
		return err
	}
	l.dir = dir
	for _, n := range []struct {
		at   **Namespace
		name string
	}{{&l.Workload, "wl"}, {&l.Guard, "gd"}, {&l.Relay, "rl"}, {&l.Public, "pub"}, {&l.Plane, "pl"}, {&l.Neighbor, "nb"}, {&l.Outside, "out"}} {
		if *n.at, err = newNamespace(n.name); err != nil {
			return err
		}
		if err := (*n.at).loopback(); err != nil {
			return &Error{"start lo of " + n.name, err}
		}
	}
	if err := l.links(); err != nil {
		return err
	}
	if l.Tap, err = l.Public.tap(); err != nil {
		return err
	}
	if l.PlaneTap, err = l.Plane.tap(); err != nil {
		return err
	}
	// A guard's own addresses and loopback are special too, and lie in gd.
	for _, n := range []*Namespace{l.Public, l.Guard, l.Plane, l.Relay, l.Neighbor} {
		opened, err := l.Ledger.listen(n, SinkPorts()...)
		l.listeners = append(l.listeners, opened...)
		if err != nil {
			return &Error{"open sinks of " + n.Name, err}
		}
	}
	return l.Resolver.serve(l.Public, ResolverAddr)
}

// links joins the namespaces. What is not here is not there.
func (l *Lab) links() error {
	steps := []func() error{
		func() error {
			// A net of two: every other address is behind it, for pub to answer.
			return connect(end{l.Guard, upLink, []string{"45.33.39.2/30", "2a00:1450:4001:39::2/126", "fe80::200/64"}},
				end{l.Public, "gd", []string{"45.33.39.1/30", "45.33.32.53/32", "2a00:1450:4001:39::1/126", "fe80::1/64"}})
		},
		func() error {
			return connect(end{l.Outside, upLink, []string{"45.33.40.2/30", "2a00:1450:4001:40::2/126", "fe80::400/64"}},
				end{l.Public, "out", []string{"45.33.40.1/30", "2a00:1450:4001:40::1/126", "fe80::2/64"}})
		},
		func() error {
			return connect(end{l.Guard, "nb", []string{"10.201.0.1/30"}}, end{l.Neighbor, "gd", []string{"10.201.0.2/30"}})
		},
		func() error {
			return connect(end{l.Relay, "pl", []string{"45.33.41.1/30"}}, end{l.Plane, "rl", []string{"45.33.41.2/30"}})
		},
		// An internet carries on what is not its own; it says so to whoever
		// sends something that nobody has.
		func() error { return l.Public.Do(func() error { return setting("ipv4/ip_forward", "1") }) },
		func() error {
			return l.Public.everywhere(planeNet, netip.PrefixFrom(DeadAddr, 32), netip.PrefixFrom(DeadPrivate, 32))
		},
		func() error { return l.Guard.Route("0.0.0.0/0", "45.33.39.1") },
		func() error { return l.Guard.Route("::/0", "2a00:1450:4001:39::1") },
		func() error { return l.Outside.Route("0.0.0.0/0", "45.33.40.1") },
		func() error { return l.Outside.Route("::/0", "2a00:1450:4001:40::1") },
	}
	if l.Topology == Veth {
		steps = append(steps,
			func() error {
				return connect(end{l.Workload, "gd", []string{"10.99.0.2/30", "fd00:99::2/64"}}, end{l.Guard, edgeLink, []string{"10.99.0.1/30", "fd00:99::1/64"}})
			},
			func() error {
				return connect(end{l.Workload, "rl", []string{"10.98.0.2/30"}}, end{l.Relay, edgeLink, []string{"10.98.0.1/30"}})
			},
			l.LoadEdge,
		)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			if _, ours := err.(*Error); ours {
				return err
			}
			return &Error{"join the namespaces", err}
		}
	}
	return nil
}

// Settle waits until everything that was sent before is in the ledger and in the
// tap: it sends a connection of its own after it, to an address that nobody else
// uses, and waits until both have seen it. So it also proves, each time, that
// both are live.
// Bounds: 10 s.
// Errors: *Error; then no absence is proved.
func (l *Lab) Settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTime)
	defer cancel()
	n := l.barrier.Add(1)
	base := barriers.Addr().As4()
	at := netip.AddrFrom4([4]byte{base[0], base[1], byte(n >> 8), byte(n)})
	type way struct{ from, to netip.AddrPort } // a port of the caller's is used for several
	mark, sent := l.Ledger.Mark(), map[way]bool{}
	// At each port of either namespace, because each has a queue of its own.
	for _, p := range SinkPorts() {
		for _, side := range []struct {
			from *Namespace
			to   netip.Addr
		}{{l.Guard, at}, {l.Public, GuardAddr}} {
			conn, err := side.from.Dial(ctx, "tcp", netip.AddrPortFrom(side.to, p))
			if err != nil {
				return &Error{"prove that the ledger is live", err}
			}
			sent[way{addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr())}] = true
			conn.Close()
		}
	}
	if err := l.Tap.sees(ctx, at); err != nil {
		return err
	}
	err := l.Ledger.wait(ctx, func() bool {
		seen := 0
		for _, a := range l.Ledger.accepts[mark:] {
			if sent[way{a.Remote, a.Local}] {
				seen++
			}
		}
		return seen == len(sent)
	})
	if err != nil {
		return &Error{"wait for the ledger", err}
	}
	if err := l.settlePlane(ctx); err != nil {
		return err
	}
	for _, tap := range []*Tap{l.Tap, l.PlaneTap} {
		lost, err := tap.Lost()
		if err == nil && lost > 0 {
			err = &Error{"count packets", fmt.Errorf("%d were lost", lost)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// planeBarrier is what Settle sends to the plane.
var planeBarrier = Flow{Protocol: UDP, Source: RelayAddr, Destination: netip.AddrPortFrom(PlaneAddr, 9)}

func (l *Lab) settlePlane(ctx context.Context) error {
	before := l.PlaneTap.Mark()[planeBarrier]
	conn, err := l.Relay.ListenPacket(netip.AddrPortFrom(RelayAddr, 0))
	if err != nil {
		return &Error{"open a datagram socket", err}
	}
	defer conn.Close()
	// A refusal of the one before is no failure of this one, and is told once.
	for range 2 {
		if _, err = conn.WriteTo([]byte("settle"), net.UDPAddrFromAddrPort(planeBarrier.Destination)); err == nil {
			break
		}
	}
	if err != nil {
		return &Error{"send to the plane", err}
	}
	return l.PlaneTap.wait(ctx, "a packet to the plane", func() bool { return l.PlaneTap.flows[planeBarrier] > before })
}

// Live proves that an address is live where the guard would meet it: a direct
// connection from the guard's namespace arrives at a sink at that very address,
// or, for an address to which no kernel opens a connection (multicast and the
// broadcast), a datagram arrives in pub.
// Bounds: 5 s.
// Errors: *Error: what is asked of this address proves nothing.
func (l *Lab) Live(ctx context.Context, at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	a := at.Addr().Unmap()
	if a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return l.liveDatagram(ctx, netip.AddrPortFrom(a, at.Port()))
	}
	if a.IsLinkLocalUnicast() && a.Is6() {
		a = a.WithZone(upLink)
	}
	mark := l.Ledger.Mark()
	conn, err := l.Guard.Dial(ctx, "tcp", netip.AddrPortFrom(a, at.Port()))
	if err != nil {
		return &Error{"reach " + at.String(), err}
	}
	defer conn.Close()
	// The unspecified address means this host, and is not what is accepted at.
	remote := addrPort(conn.RemoteAddr())
	err = l.Ledger.wait(ctx, func() bool {
		for _, got := range l.Ledger.accepts[mark:] {
			if got.Local == remote && got.Remote == addrPort(conn.LocalAddr()) {
				return true
			}
		}
		return false
	})
	if err != nil {
		return &Error{"find " + at.String() + " in the ledger", err}
	}
	return nil
}

func (l *Lab) liveDatagram(ctx context.Context, at netip.AddrPort) error {
	var from netip.AddrPort
	if at.Addr().Is4() {
		from = netip.AddrPortFrom(GuardAddr, 0)
	} else {
		from = netip.AddrPortFrom(GuardAddr6, 0)
		at = netip.AddrPortFrom(at.Addr().WithZone(upLink), at.Port())
	}
	conn, err := l.Guard.ListenPacket(from)
	if err != nil {
		return &Error{"open a datagram socket", err}
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(dialTime))
	if err := bindTo(conn, upLink); err != nil {
		return &Error{"bind a datagram socket", err}
	}
	if _, err := conn.WriteTo([]byte("live"), net.UDPAddrFromAddrPort(at)); err != nil {
		return &Error{"send to " + at.String(), err}
	}
	return l.Tap.sees(ctx, at.Addr().WithZone(""))
}

// Close ends it. It may be called at any time and again.
func (l *Lab) Close() {
	for _, listener := range l.listeners {
		listener.Close()
	}
	l.listeners = nil
	l.Ledger.close()
	l.Resolver.close()
	l.Tap.close()
	l.PlaneTap.close()
	for _, n := range l.namespaces() {
		n.close()
	}
	if l.dir != "" {
		os.RemoveAll(l.dir)
	}
}

func (l *Lab) namespaces() []*Namespace {
	return []*Namespace{l.Workload, l.Guard, l.Relay, l.Public, l.Plane, l.Neighbor, l.Outside}
}

// Inside is the address that stands for a block: its second one, or the only
// one there is.
func Inside(p netip.Prefix) netip.Addr {
	if p.IsSingleIP() {
		return p.Addr()
	}
	return p.Masked().Addr().Next()
}

package matrix

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/lab"
)

// attack sends something directly, from wherever it is called. What the kernel
// says to it means nothing: a packet may leave although the sender is told of an
// error, and the other way round. An error is of an attack that could not be
// tried at all.
type attack func(t *trial, from *lab.Namespace) error

// unheard holds that nothing of an attack arrives anywhere, and that the same
// attack from a host of the internet does: the counters move.
func (t *trial) unheard(a attack) error {
	s, err := t.watch(func() error { return a(t, t.lab.Workload) })
	if err != nil {
		return err
	}
	if err := errors.Join(s.reached(), s.explained(), s.asked()); err != nil {
		return err
	}
	if len(s.decisions) > 0 {
		return fmt.Errorf("decisions: expected none, got %v", s.decisions)
	}
	control, err := t.watch(func() error { return a(t, t.lab.Outside) })
	if err != nil {
		return blind(err)
	}
	if len(control.flows) == 0 {
		return blind(errors.New("the control did not move a counter"))
	}
	return nil
}

// knock is how long an attack waits for somebody to accept. Its packet is out as
// soon as it is sent, and whoever is near answers at once; a rule that drops
// never does.
const knock = 300 * time.Millisecond

// connects tries TCP to addresses, whatever comes of it.
func connects(to ...netip.AddrPort) attack {
	return func(t *trial, from *lab.Namespace) error {
		t.knocks(from, to)
		return nil
	}
}

// knocks tries TCP to all of these at once and returns who accepted.
func (t *trial) knocks(from *lab.Namespace, to []netip.AddrPort) []netip.AddrPort {
	ctx, cancel := context.WithTimeout(t.ctx, knock)
	defer cancel()
	var wait sync.WaitGroup
	accepted := make([]bool, len(to))
	for i, a := range to {
		wait.Go(func() {
			if conn, err := from.Dial(ctx, "tcp", a); err == nil {
				accepted[i] = true
				conn.Close()
			}
		})
	}
	wait.Wait()
	var out []netip.AddrPort
	for i, a := range to {
		if accepted[i] {
			out = append(out, a)
		}
	}
	return out
}

// datagrams sends UDP to addresses.
func datagrams(to ...netip.AddrPort) attack {
	return func(_ *trial, from *lab.Namespace) error {
		for _, a := range to {
			local := netip.IPv4Unspecified()
			if a.Addr().Is6() {
				local = netip.IPv6Unspecified()
			}
			conn, err := from.ListenPacket(netip.AddrPortFrom(local, 0))
			if err != nil {
				return fmt.Errorf("open a datagram socket: %w", err)
			}
			conn.WriteTo([]byte("datagram"), net.UDPAddrFromAddrPort(a))
			conn.Close()
		}
		return nil
	}
}

// raw sends bytes as a protocol of IP.
func raw(protocol int, body []byte, to ...netip.Addr) attack {
	return func(_ *trial, from *lab.Namespace) error {
		return from.Do(func() error {
			for _, a := range to {
				family := unix.AF_INET
				if a.Is6() {
					family = unix.AF_INET6
				}
				fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
				if err != nil {
					return fmt.Errorf("open a raw socket: %w", err)
				}
				unix.Sendto(fd, body, 0, sockaddr(netip.AddrPortFrom(a, 0)))
				unix.Close(fd)
			}
			return nil
		})
	}
}

// streams opens a stream of a protocol and connects it. A kernel without the
// protocol has no such attack.
func streams(protocol int, to netip.AddrPort) attack {
	return func(_ *trial, from *lab.Namespace) error {
		return from.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
			if err != nil {
				return nil
			}
			defer unix.Close(fd)
			wait := unix.NsecToTimeval(int64(knock))
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait)
			unix.Connect(fd, sockaddr(to))
			return nil
		})
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// dialMultipath connects from the guard's namespace as a client that offers
// Multipath TCP.
func (t *trial) dialMultipath(to netip.AddrPort) error {
	return streams(unix.IPPROTO_MPTCP, to)(t, t.lab.Guard)
}

// all is several attacks as one.
func all(attacks ...attack) attack {
	return func(t *trial, from *lab.Namespace) error {
		for _, a := range attacks {
			if err := a(t, from); err != nil {
				return err
			}
		}
		return nil
	}
}

// Everything that a workload may try at once: each is counted by its protocol.
var (
	anywhere4 = []netip.AddrPort{public, netip.MustParseAddrPort("8.8.8.8:443"), netip.MustParseAddrPort("10.77.0.10:443"), lab.ResolverAddr}
	anywhere6 = []netip.AddrPort{netip.AddrPortFrom(lab.PublicAddr6, 443), netip.MustParseAddrPort("[2606:4700:4700::1111]:443")}
)

// pings are echo requests. The kernel fills in the checksum of ICMPv6 and takes
// any of ICMP.
func pings() attack {
	v4 := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}
	v6 := []byte{128, 0, 0, 0, 0, 0, 0, 0}
	return all(raw(unix.IPPROTO_ICMP, v4, lab.PublicAddr), raw(unix.IPPROTO_ICMPV6, v6, lab.PublicAddr6))
}

// frames sends whole frames over every link there is, to the hardware address of
// whoever is at its other end and to all.
func frames(t *trial, from *lab.Namespace) error {
	return from.Do(func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, link := range links {
			if err := sendFrames(link); err != nil {
				return fmt.Errorf("send a frame over %s: %w", link.Name, err)
			}
		}
		return nil
	})
}

func sendFrames(link net.Interface) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	broadcast := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, a := range append(neighboursOf(link), broadcast) {
		frame := append(append([]byte{}, a...), make([]byte, 6)...)
		copy(frame[6:], link.HardwareAddr)
		frame = append(frame, 0x08, 0x00)
		// A whole UDP packet to port 53 of an address in pub.
		packet := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 45, 33, 40, 2, 45, 33, 32, 10, 0xc0, 0, 0, 53, 0, 8, 0, 0}
		sum := checksum(packet[:20])
		packet[10], packet[11] = byte(sum>>8), byte(sum)
		unix.Sendto(fd, append(frame, packet...), 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6})
	}
	return nil
}

// checksum is that of an IPv4 header.
func checksum(header []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(header[i])<<8 | uint32(header[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

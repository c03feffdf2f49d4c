package guard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a connection that the guard opens itself, to a literal address, by
// the kernel's own calls: what is judged is what the kernel is then given, and
// nothing is in between. Package net would do the same with half as many calls
// more and a goroutine for each connection, a tenth of what a request costs.
// It is a plain socket, without multipath TCP and keepalive: a peer could add
// paths that nobody judged, and the tunnel's idle time is what finds a dead one.
type socket struct {
	*os.File // in the runtime's poller, so it can be waited for and has deadlines
	raw      syscall.RawConn

	local, remote netip.AddrPort // of TCP: what the kernel says of both ends
}

// open makes a socket of a kind, calls judge while it is not connected, and
// begins to connect it. What it opened is closed on any error.
// Errors: judge's; of the operating system.
func open(kind int, to netip.AddrPort, judge func(netip.AddrPort) error) (*socket, error) {
	family, address := sockaddr(to)
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if judge != nil {
		err = judge(addrPort(address))
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	}
	if err == nil {
		// A signal does not stop a connection from being made.
		if err = unix.Connect(fd, address); errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
			err = nil
		}
		err = os.NewSyscallError("connect", err)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	s := &socket{File: os.NewFile(uintptr(fd), "socket")}
	if s.raw, err = s.SyscallConn(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// openTCP is open for TCP, and waits until the connection is there.
// Errors: judge's; of the operating system; the cause of ctx.
func openTCP(ctx context.Context, to netip.AddrPort, judge func(netip.AddrPort) error) (*socket, error) {
	s, err := open(unix.SOCK_STREAM, to, judge)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.SetDeadline(past) })
	err = s.connected()
	if !stop() {
		err = context.Cause(ctx) // and it may have no time left
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// connected waits until the kernel knows the peer, or why there is none.
func (s *socket) connected() error {
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = syscall.Errno(code)
		}
		var ends [2]unix.Sockaddr
		if err == nil {
			if ends[1], err = unix.Getpeername(int(fd)); errors.Is(err, unix.ENOTCONN) {
				return false
			}
		}
		if err == nil {
			ends[0], err = unix.Getsockname(int(fd))
		}
		failed = os.NewSyscallError("connect", err)
		s.local, s.remote = addrPort(ends[0]), addrPort(ends[1])
		return true
	})
	return errors.Join(err, failed)
}

// control makes one call on the descriptor.
func (s *socket) control(call func(fd int) error) error {
	var err error
	if closed := s.raw.Control(func(fd uintptr) { err = call(int(fd)) }); closed != nil {
		return closed
	}
	return err
}

// CloseWrite ends one direction.
func (s *socket) CloseWrite() error {
	return s.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

// SetLinger says what closing does with bytes that are under way; 0 is a reset.
func (s *socket) SetLinger(seconds int) error {
	return s.control(func(fd int) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(seconds)})
	})
}

// LocalAddr and RemoteAddr are what the kernel said when it was connected.
func (s *socket) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(s.local) }
func (s *socket) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.remote) }

// sockaddr is an address as the kernel takes it. A zone, which only a resolver's
// may have, is a number: see numbered.
func sockaddr(a netip.AddrPort) (family int, address unix.Sockaddr) {
	ip := a.Addr().Unmap()
	if ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	zone, _ := strconv.ParseUint(ip.Zone(), 10, 32)
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16(), ZoneId: uint32(zone)}
}

// numbered gives the zone of an address as the number of its interface, which a
// process that is locked up can ask nobody for.
// Errors: *sandbox.Invalid for an interface that is not there.
func numbered(a netip.AddrPort) (netip.AddrPort, error) {
	name := a.Addr().Zone()
	if _, err := strconv.ParseUint(name, 10, 32); name == "" || err == nil {
		return a, nil
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return a, invalid("resolver", "a zone of this machine", name)
	}
	return netip.AddrPortFrom(a.Addr().WithZone(strconv.Itoa(link.Index)), a.Port()), nil
}

// addrPort is the reverse of sockaddr; anything else is the zero value.
func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

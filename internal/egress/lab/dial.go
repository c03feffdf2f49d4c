package lab

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dialTime bounds a direct connection in the lab, where everything is near.
const dialTime = 5 * time.Second

// Dial connects from inside the namespace. The address may carry a zone.
// Bounds: 5 s.
// Errors: of the operating system, as a client in there would see them.
func (n *Namespace) Dial(ctx context.Context, network string, to netip.AddrPort) (conn net.Conn, err error) {
	d := net.Dialer{Timeout: dialTime, FallbackDelay: -1}
	d.SetMultipathTCP(false)
	err = n.Do(func() error {
		// A literal is dialled on this very thread: there is nothing to
		// resolve and nothing to race.
		conn, err = d.DialContext(ctx, network, to.String())
		return err
	})
	return conn, err
}

// A process that this one is just starting has all its descriptors until it
// executes: a listener that was closed still listens, a namespace still lives.
// ForkLock waits for that, but for a child that is given a user namespace; so what
// must be gone is looked for that often, with a pause. On a busy host such a child can
// have a listener for a second.
const (
	lookAgain   = 20
	listenAgain = 300
	lookPause   = 10 * time.Millisecond
)

// Listen opens a TCP listener inside the namespace; it can be used and passed on
// from anywhere. Where somebody listened a moment ago it waits a little.
// Errors: of the operating system.
func (n *Namespace) Listen(at netip.AddrPort) (listener net.Listener, err error) {
	// A listener of Go speaks Multipath TCP unless told otherwise: a caller
	// could then add subflows that no rule has seen.
	config := net.ListenConfig{}
	config.SetMultipathTCP(false)
	for i := 0; ; i++ {
		err = n.Do(func() error {
			syscall.ForkLock.RLock()
			defer syscall.ForkLock.RUnlock()
			listener, err = config.Listen(context.Background(), "tcp", at.String())
			return err
		})
		if i == listenAgain || !errors.Is(err, unix.EADDRINUSE) {
			return listener, err
		}
		time.Sleep(lookPause)
	}
}

// ListenPacket opens a UDP socket inside the namespace.
// Errors: of the operating system.
func (n *Namespace) ListenPacket(at netip.AddrPort) (conn net.PacketConn, err error) {
	err = n.Do(func() error {
		conn, err = net.ListenPacket("udp", at.String())
		return err
	})
	return conn, err
}

package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Door is where the workload meets the guard or the relay.
type Door struct {
	// Listener is for the process behind the door. Its caller closes it as
	// soon as that process has it: else a dead one is still connected to.
	Listener *os.File
	// Entry is where the workload connects, in its own namespace.
	Entry netip.AddrPort

	forwarder net.Listener
	conns     sync.WaitGroup
	mu        sync.Mutex
	open      map[net.Conn]bool // nil once closed
}

// GuardDoor opens the guard's, by the topology. Where what makes the topology
// safe is not there it opens none: nothing would hold the workload.
// Ownership: one at a time; Close it before the next one.
// Errors: *Error.
func (l *Lab) GuardDoor() (*Door, error) {
	if err := l.sealed(); err != nil {
		return nil, &Error{"open the door of the guard (" + string(l.Topology) + ")", err}
	}
	return l.door("guard", netip.AddrPortFrom(guardEdge, GuardPort), l.Guard)
}

// sealed says what is missing of what holds the workload: the rules of its link,
// or that it has no link at all.
func (l *Lab) sealed() error {
	if l.Topology == Veth {
		counts, err := l.Edge.Counts()
		if err == nil && len(counts) == 0 {
			err = errors.New("the rules of the link are not there")
		}
		return err
	}
	links, err := l.Workload.Interfaces()
	if err == nil && len(links) != 1 {
		err = fmt.Errorf("expected loopback alone, got %v", links)
	}
	return err
}

// RelayDoor opens the relay's, likewise.
func (l *Lab) RelayDoor() (*Door, error) {
	return l.door("relay", netip.AddrPortFrom(relayEdge, RelayPort), l.Relay)
}

func (l *Lab) door(name string, edge netip.AddrPort, far *Namespace) (*Door, error) {
	d := &Door{Entry: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), edge.Port())}
	var err error
	switch l.Topology {
	case Veth:
		d.Entry = edge
		err = d.listen(far)
	case InsideListener:
		err = d.listen(l.Workload)
	case SocketFile:
		path := filepath.Join(l.dir, name)
		if err = d.listenFile(path); err != nil {
			break
		}
		if d.forwarder, err = l.Workload.Listen(d.Entry); err != nil {
			d.Listener.Close()
			break
		}
		d.open = map[net.Conn]bool{}
		d.conns.Go(func() { d.forward(path) })
	default:
		err = unix.EINVAL
	}
	if err != nil {
		return nil, &Error{"open the door of the " + name + " (" + string(l.Topology) + ")", err}
	}
	return d, nil
}

// listen opens the listener inside a namespace and keeps a descriptor of it.
func (d *Door) listen(n *Namespace) error {
	listener, err := n.Listen(d.Entry)
	if err != nil {
		return err
	}
	defer listener.Close()
	d.Listener, err = listener.(*net.TCPListener).File()
	return err
}

func (d *Door) listenFile(path string) error {
	os.Remove(path) // of the door before
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	unixListener := listener.(*net.UnixListener)
	unixListener.SetUnlinkOnClose(false) // the file is what the workload has
	defer listener.Close()
	d.Listener, err = unixListener.File()
	return err
}

// forward carries connections of the workload to the socket file, as the init
// of a machine does. One that nobody takes is closed.
func (d *Door) forward(path string) {
	for {
		near, err := d.forwarder.Accept()
		if err != nil {
			return // closed
		}
		far, err := net.Dial("unix", path)
		if err != nil {
			near.Close()
			continue
		}
		if !d.keep(near, far) {
			return
		}
		var both sync.WaitGroup
		both.Go(func() { carry(far, near) })
		both.Go(func() { carry(near, far) })
		d.conns.Go(func() {
			both.Wait()
			near.Close()
			far.Close()
			d.mu.Lock()
			delete(d.open, near)
			delete(d.open, far)
			d.mu.Unlock()
		})
	}
}

// keep has connections closed with the door; it is false, and they are closed,
// where that is shut.
func (d *Door) keep(conns ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range conns {
		if d.open == nil {
			c.Close()
		} else {
			d.open[c] = true
		}
	}
	return d.open != nil
}

// carry copies one way and passes on the end of it.
func carry(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if c, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		c.CloseWrite()
		return
	}
	to.Close()
	from.Close()
}

// Close shuts the door and ends what is forwarded through it. What a process has
// of the listener is that process's.
func (d *Door) Close() {
	d.Listener.Close()
	if d.forwarder == nil {
		return
	}
	d.forwarder.Close()
	d.mu.Lock()
	for c := range d.open {
		c.Close()
	}
	d.open = nil
	d.mu.Unlock()
	d.conns.Wait()
}

// bindTo ties a socket to an interface.
func bindTo(conn net.PacketConn, link string) error {
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), link) }); err != nil {
		return err
	}
	return failed
}

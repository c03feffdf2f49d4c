// Package lab is what the suite needs of this host: destinations that answer,
// for the egress cases, and a census of what a state directory has alive.
//
// Trusts: this host. Concurrency: all methods may be called by many goroutines
// at once. Ownership: Close ends the listeners.
// Source: contract "Conformance", rows allowlist and none.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Lab is two live TCP destinations on an address of this host that a sandbox
// with a network would reach.
type Lab struct {
	listed, unlisted *destination
	closed           sync.WaitGroup
}

type destination struct {
	listener net.Listener
	address  sandbox.Destination
	accepted atomic.Int64
}

// Open listens on the first address of this host that is not loopback, or on
// loopback where there is no other.
func Open() (*Lab, error) {
	l := &Lab{}
	host := address()
	for _, d := range []**destination{&l.listed, &l.unlisted} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		*d = &destination{listener: listener, address: sandbox.Destination{Host: host, Port: int64(listener.Addr().(*net.TCPAddr).Port)}}
		l.closed.Go((*d).serve)
	}
	return l, nil
}

func address() string {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

func (d *destination) serve() {
	for {
		c, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.accepted.Add(1)
		_ = c.Close()
	}
}

// Close ends both.
func (l *Lab) Close() error {
	var errs []error
	for _, d := range []*destination{l.listed, l.unlisted} {
		if d != nil {
			errs = append(errs, d.listener.Close())
		}
	}
	l.closed.Wait()
	return errors.Join(errs...)
}

// OnHost says that the destinations lie on the suite's own host, which a machine
// with an open network may be kept off too.
func (l *Lab) OnHost() bool { return true }

// Listed is one of the two.
func (l *Lab) Listed() sandbox.Destination { return l.listed.address }

// Unlisted is the other.
func (l *Lab) Unlisted() sandbox.Destination { return l.unlisted.address }

func (l *Lab) of(d sandbox.Destination) *destination {
	for _, each := range []*destination{l.listed, l.unlisted} {
		if each.address == d {
			return each
		}
	}
	return nil
}

// Alive connects from this host and waits until the connection was counted.
func (l *Lab) Alive(ctx context.Context, d sandbox.Destination) error {
	at := l.of(d)
	if at == nil {
		return fmt.Errorf("no destination of this lab: %s", d.Host)
	}
	before := at.accepted.Load()
	dialer := net.Dialer{Timeout: 5 * time.Second}
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(d.Host, strconv.FormatInt(d.Port, 10)))
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	var b [1]byte
	_, _ = c.Read(b[:]) // ends when the other side has counted and closed
	if at.accepted.Load() == before {
		return errors.New("it answered and was not counted")
	}
	return nil
}

// CannotTry is the status of the script of Connect where the machine has
// nothing to connect with.
const CannotTry = 99

// Connect is a script that needs bash, or a nc, or Python.
func (l *Lab) Connect(d sandbox.Destination) string { return attempt(d) }

func attempt(d sandbox.Destination) string {
	return fmt.Sprintf(`if test -x /bin/bash; then timeout 5 /bin/bash -c 'exec 3<>/dev/tcp/%[1]s/%[2]d' 2>/dev/null; exit $?; fi
if command -v nc >/dev/null 2>&1; then nc -w 4 %[1]s %[2]d </dev/null >/dev/null 2>&1; exit $?; fi
if command -v python3 >/dev/null 2>&1; then python3 -c 'import socket; socket.create_connection(("%[1]s", %[2]d), 4)' 2>/dev/null; exit $?; fi
exit %[3]d`, d.Host, d.Port, CannotTry)
}

// Accepted returns how many connections d has taken.
func (l *Lab) Accepted(d sandbox.Destination) int64 {
	if at := l.of(d); at != nil {
		return at.accepted.Load()
	}
	return -1
}

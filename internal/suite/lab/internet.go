package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	egress "github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/sandbox"
)

// The destinations of an Internet. Both have names, because an allowlist names
// nothing else, and addresses that are truly global, because a guard connects to
// no other.
var (
	listed   = named{sandbox.Destination{Host: "listed.checkfu.test", Port: 8443, Mode: "opaque"}, netip.MustParseAddr("45.33.32.10")}
	unlisted = named{sandbox.Destination{Host: "unlisted.checkfu.test", Port: 8443, Mode: "opaque"}, netip.MustParseAddr("45.33.32.11")}
)

type named struct {
	destination sandbox.Destination
	address     netip.Addr
}

func (n named) at() netip.AddrPort { return netip.AddrPortFrom(n.address, uint16(n.destination.Port)) }

// Internet is two live TCP destinations in network namespaces of their own, with
// a resolver that knows their names: for providers whose guard can be put there.
// It needs root, and ends with this process, whatever ends it.
type Internet struct {
	lab *egress.Lab
}

// OpenInternet builds one.
// Errors: of the host, which has to allow network namespaces.
func OpenInternet() (*Internet, error) {
	l, err := egress.Open(egress.SocketFile)
	if err != nil {
		return nil, err
	}
	// Machines with an open network are let out where the guards are.
	if err := l.Guard.Set("ipv4/ip_forward", "1"); err != nil {
		l.Close()
		return nil, err
	}
	for _, n := range []named{listed, unlisted} {
		l.Resolver.Script(n.destination.Host, egress.Addresses(n.address))
	}
	return &Internet{l}, nil
}

// Resolver is whom a guard has to ask.
func (*Internet) Resolver() netip.AddrPort { return egress.ResolverAddr }

// Within calls f on a thread in the network that a guard has to be in.
func (i *Internet) Within(f func() error) error { return i.lab.Guard.Do(f) }

// Close ends all of it.
func (i *Internet) Close() error {
	i.lab.Close()
	return nil
}

// Listed is what an allowlist names.
func (*Internet) Listed() sandbox.Destination { return listed.destination }

// Unlisted is what none names.
func (*Internet) Unlisted() sandbox.Destination { return unlisted.destination }

func find(d sandbox.Destination) (named, bool) {
	for _, n := range []named{listed, unlisted} {
		if n.destination.Host == d.Host && n.destination.Port == d.Port {
			return n, true
		}
	}
	return named{}, false
}

// Alive connects from where the guards are, to the address itself, and waits
// until the connection was counted.
func (i *Internet) Alive(ctx context.Context, d sandbox.Destination) error {
	n, ok := find(d)
	if !ok {
		return fmt.Errorf("no destination of this lab: %s", d.Host)
	}
	before := i.Accepted(d)
	if err := i.lab.Live(ctx, n.at()); err != nil {
		return err
	}
	if i.Accepted(d) == before {
		return errors.New("it answered and was not counted")
	}
	return nil
}

// Accepted returns how many connections d has taken.
func (i *Internet) Accepted(d sandbox.Destination) int64 {
	n, ok := find(d)
	if !ok {
		return -1
	}
	var count int64
	for _, a := range i.lab.Ledger.Since(0) {
		if a.Local == n.at() {
			count++
		}
	}
	return count
}

// Connect is a script that needs bash, or a nc, or Python. It tries the address
// itself, and then the proxy that the machine was told of.
func (i *Internet) Connect(d sandbox.Destination) string {
	n, _ := find(d)
	return orByProxy(attempt(sandbox.Destination{Host: n.address.String(), Port: d.Port}), d)
}

// orByProxy is a script that does what direct does, and where that does not get
// through asks the machine's proxy for d.
func orByProxy(direct string, d sandbox.Destination) string {
	target := net.JoinHostPort(d.Host, strconv.FormatInt(d.Port, 10))
	head := `CONNECT ` + target + ` HTTP/1.1\r\nHost: ` + target + `\r\n\r\n`
	return fmt.Sprintf(`(%s); direct=$?
test $direct -eq 0 && exit 0
test -n "$https_proxy" || exit $direct
proxy=${https_proxy#http://}; host=${proxy%%:*}; port=${proxy##*:}
if test -x /bin/bash; then timeout 4 /bin/bash -c 'exec 3<>/dev/tcp/'$host/$port' && printf "%[2]s" >&3 && read -r line <&3 && [[ $line == *" 200 "* ]]' 2>/dev/null; exit $?; fi
if command -v nc >/dev/null 2>&1; then printf '%[2]s' | nc -w 4 $host $port 2>/dev/null | head -n 1 | grep -q ' 200 '; exit $?; fi
python3 -c 'import socket,sys; c=socket.create_connection((sys.argv[1], int(sys.argv[2])), 4); c.sendall(b"%[2]s"); sys.exit(b" 200 " not in c.recv(99))' $host $port 2>/dev/null`, direct, head)
}

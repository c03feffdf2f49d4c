package uplink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

const (
	idA = "0123456789abcdef0123456789abcdef"
	idB = "fedcba9876543210fedcba9876543210"
)

// world is a host on a small internet in which every address is live.
func world(t *testing.T) (*lab.Lab, *Host) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	l, err := lab.Open(lab.SocketFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	h := &Host{Resolver: lab.ResolverAddr.Addr(), Within: l.Guard.Do}
	t.Cleanup(func() {
		if left := census(t, h); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	forward(t, l, "1")
	return l, h
}

func forward(t *testing.T, l *lab.Lab, value string) {
	t.Helper()
	if err := l.Guard.Set("ipv4/ip_forward", value); err != nil {
		t.Fatal(err)
	}
}

func census(t *testing.T, h *Host) []string {
	t.Helper()
	left, err := h.Census()
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func open(t *testing.T, h *Host, id string) *Uplink {
	t.Helper()
	u, err := h.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := u.Holds(); err != nil {
		t.Error(err)
	}
	return u
}

// do runs f as a program of the machine would run.
func (u *Uplink) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(u.inside.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// dial connects from the machine and says what came back of "ping".
func (u *Uplink) dial(network string, to netip.AddrPort) (said string, err error) {
	err = u.do(func() error {
		// Not net.Dial: its two tries would run on other threads.
		d := net.Dialer{Timeout: 10 * time.Second, FallbackDelay: -1}
		conn, err := d.Dial(network, to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Write([]byte("ping")); err != nil {
			return err
		}
		b := make([]byte, 99)
		n, err := conn.Read(b)
		said = string(b[:n])
		return err
	})
	return said, err
}

func at(address string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(address), port)
}

// The internet is there: by TCP, by UDP to a name server, by an echo.
func TestOpen_TheInternetIsThere(t *testing.T) {
	l, h := world(t)
	if err := h.Lacks(); err != nil {
		t.Errorf("lacks %v", err)
	}
	u := open(t, h, idA)
	mark := l.Ledger.Mark()
	for _, to := range []string{"45.33.32.10", "8.8.8.8", "1.1.1.1", "45.33.39.1"} {
		if said, err := u.dial("tcp4", at(to, 443)); err != nil || said == "" {
			t.Errorf("%s: %q, %v", to, said, err)
		}
	}
	if err := l.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range l.Ledger.Since(mark) {
		if a.Remote.Addr() != lab.GuardAddr {
			t.Errorf("the far side saw %s, expected the host's own address %s", a.Remote, lab.GuardAddr)
		}
	}
	l.Resolver.Script("name.test", lab.Addresses(netip.MustParseAddr("45.33.32.10")))
	for _, network := range []string{"udp4", "tcp4"} {
		var found []string
		err := u.do(func() (err error) {
			r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (conn net.Conn, err error) {
				err = u.do(func() (err error) { conn, err = net.Dial(network, lab.ResolverAddr.String()); return err })
				return conn, err
			}}
			found, err = r.LookupHost(t.Context(), "name.test.")
			return err
		})
		if err != nil || !slices.Equal(found, []string{"45.33.32.10"}) {
			t.Errorf("name server by %s: %v, %v", network, found, err)
		}
	}
	if got, err := u.echo("8.8.8.8", "45.33.32.10"); err != nil || !slices.Equal(got, []string{"8.8.8.8"}) {
		t.Errorf("echo: %v, %v", got, err)
	}
}

// echo asks addresses whether they are there, as a program without capabilities
// does, and names those that answered before the last one, which must, did. What
// lies nearer than that one has answered by then.
func (u *Uplink) echo(to ...string) (answered []string, err error) {
	err = u.do(func() error {
		c, err := icmp.ListenPacket("udp4", "0.0.0.0")
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Seq: 1, Data: []byte("there?")}}
		text, err := m.Marshal(nil)
		if err != nil {
			return err
		}
		for _, each := range to {
			if _, err := c.WriteTo(text, &net.UDPAddr{IP: net.ParseIP(each)}); err != nil {
				return err
			}
		}
		for {
			b := make([]byte, 1500)
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return err
			}
			if got, err := icmp.ParseMessage(1, b[:n]); err != nil || got.Type != ipv4.ICMPTypeEchoReply {
				return fmt.Errorf("%s: %v, %v", from, got, err)
			}
			host := from.(*net.UDPAddr).IP.String()
			if host == to[len(to)-1] {
				return nil
			}
			answered = append(answered, host)
		}
	})
	return answered, err
}

// Two machines do not see each other, and many have each its own address.
func TestOpen_MachinesDoNotSeeEachOther(t *testing.T) {
	_, h := world(t)
	a, b := open(t, h, idA), open(t, h, idB)
	listener, err := b.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	to := listener.Addr().(*net.TCPAddr).AddrPort()
	if _, err := a.dial("tcp4", to); err == nil {
		t.Errorf("%s reached %s", a.Address(), to)
	}
	if got, err := a.echo(b.Address().String(), "45.33.32.10"); err != nil || len(got) > 0 {
		t.Errorf("a neighbour answers an echo: %v, %v", got, err)
	}
	if err := b.do(func() error { // live: the neighbour reaches itself there
		c, err := net.Dial("tcp4", to.String())
		if err == nil {
			c.Close()
		}
		return err
	}); err != nil {
		t.Errorf("not live, so nothing was shown: %v", err)
	}
	results := make(chan error, 16)
	seen := make(chan netip.Addr, 16)
	for i := range 16 {
		go func() {
			u, err := h.Open(fmt.Sprintf("%032x", i))
			if err == nil {
				seen <- u.Address()
				_, err = u.dial("tcp4", at("45.33.32.10", 443))
				err = errors.Join(err, u.Holds(), u.Close())
			}
			results <- err
		}()
	}
	for range 16 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	close(seen)
	addresses := map[netip.Addr]bool{a.Address(): true, b.Address(): true}
	for s := range seen {
		addresses[s] = true
	}
	if len(addresses) != 18 {
		t.Errorf("%d addresses for 18 machines", len(addresses))
	}
}

// Remove needs the id alone, and takes only what is its own.
func TestRemove_FromTheIDAlone(t *testing.T) {
	_, h := world(t)
	a := open(t, h, idA)
	b, err := h.Open(idB)
	if err != nil {
		t.Fatal(err)
	}
	b.inside.Close() // as with its process: the link goes, the table stays
	deadline := time.Now().Add(time.Minute)
	for slices.ContainsFunc(census(t, h), func(s string) bool { return s == "link "+b.device }) {
		if time.Now().After(deadline) {
			t.Fatal("the link outlives its namespace")
		}
		time.Sleep(time.Millisecond) // the kernel says nothing when it is done
	}
	if !slices.Contains(census(t, h), "table checkfu-"+idB) {
		t.Error("the fence went before it was removed")
	}
	for range 2 {
		if err := h.Remove(idB); err != nil {
			t.Error(err)
		}
	}
	if got, want := census(t, h), []string{"link " + a.device, "table checkfu-" + idA}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	if err := a.Holds(); err != nil {
		t.Error(err)
	}
}

// A host whose rules are loaded anew takes the fence along: the link is cut.
func TestWatch_NoFenceNoLink(t *testing.T) {
	_, h := world(t)
	u := open(t, h, idA)
	ticks, lost := make(chan time.Time), make(chan error, 1)
	tick := time.NewTicker(time.Hour)
	tick.C = ticks
	u.Watch(tick, func(err error) { lost <- err })
	for range 2 { // the second is taken once the first was judged
		ticks <- time.Time{}
	}
	if err := u.Holds(); err != nil {
		t.Fatal(err)
	}
	if err := h.within(func() error {
		c, err := tables()
		if err != nil {
			return err
		}
		c.FlushRuleset()
		return c.Flush()
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case ticks <- time.Time{}:
	case err := <-lost: // the second tick was judged after the flush
		lost <- err
	}
	select {
	case err := <-lost:
		if !strings.Contains(err.Error(), "table checkfu-"+idA) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody was told")
	}
	if left := census(t, h); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// The places of links are disjoint and in their block.
func TestEnds(t *testing.T) {
	seen := map[netip.Addr]bool{}
	for slot := range maxLinks {
		host, machine := ends(slot)
		block, _ := host.Prefix(30)
		if !links.Contains(host) || place(machine) != slot || !block.Contains(machine) || host.Next() != machine || seen[host] || policy.Public(machine) {
			t.Fatalf("slot %d: %s %s", slot, host, machine)
		}
		seen[host] = true
	}
	if !used(0, []netip.Prefix{netip.MustParsePrefix("198.18.0.0/24")}) || used(64, []netip.Prefix{netip.MustParsePrefix("198.18.0.0/24")}) {
		t.Error("what is somebody's is used, or what is nobody's is not")
	}
}

func (u *Uplink) listen() (l net.Listener, err error) {
	err = u.do(func() error {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(u.Address(), 0).String())
		return err
	})
	return l, err
}

// A fence is seen to hold, however many others come and go meanwhile.
func TestHolds_WhileOthersComeAndGo(t *testing.T) {
	_, h := world(t)
	u := open(t, h, idA)
	over := make(chan error, 4)
	for i := range cap(over) {
		go func() {
			var err error
			for range 10 {
				var other *Uplink
				if other, err = h.Open(fmt.Sprintf("%032x", i)); err == nil {
					err = other.Close()
				}
				if err != nil {
					break
				}
			}
			over <- err
		}()
	}
	looks := 0
	for left := cap(over); left > 0; looks++ {
		select {
		case err := <-over:
			if err != nil {
				t.Error(err)
			}
			left--
		default:
			if err := u.lost(); err != nil {
				t.Fatalf("after %d looks: %v", looks, err)
			}
		}
	}
	t.Logf("%d looks", looks)
}

// What an unrestricted network costs a start and an end.
func BenchmarkOpen(b *testing.B) {
	l, err := lab.Open(lab.SocketFile)
	if err != nil {
		b.Skip(err)
	}
	defer l.Close()
	h := &Host{Resolver: lab.ResolverAddr.Addr(), Within: l.Guard.Do}
	for b.Loop() {
		u, err := h.Open(idA)
		if err != nil {
			b.Fatal(err)
		}
		if err := u.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

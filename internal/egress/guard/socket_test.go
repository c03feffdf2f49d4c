package guard_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// mute opens a port of the far namespace at which a connection is never made,
// nor refused: the queue of its listener is full, and the kernel drops what comes.
func mute(t *testing.T) (port int64) {
	t.Helper()
	fd, err := inFar(func() (int, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{}), unix.Listen(fd, 0))
		}
		return fd, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port = int64(at.(*unix.SockaddrInet4).Port)
	first, err := net.Dial("tcp", net.JoinHostPort(pub, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	for waiting := uint32(0); waiting == 0; runtime.Gosched() { // the test's own time is the bound
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			t.Fatal(err)
		}
		waiting = info.Unacked // of a listener, how long its queue is
	}
	return port
}

// An origin that neither takes nor refuses a connection: each address has 5 s of
// the guard's clock, all together 15, and the lease and the guard may end before.
func TestAMuteOrigin(t *testing.T) {
	port := mute(t)
	many := []string{pub, pub2, "45.33.32.21", "45.33.32.22"}
	expired := "2026-11-30T12:00:02.000Z"
	for _, c := range []struct {
		name    string
		expires string
		end     func(*served, *fakeClock, <-chan bool)
		status  int
		reason  policy.Reason
		checked []string
	}{
		{"it is waited for", expires, func(_ *served, clock *fakeClock, judged <-chan bool) {
			for range 3 {
				<-judged
				clock.advance(5 * time.Second)
			}
		}, 504, policy.ReasonUpstreamFailed, many[:3]},
		{"the lease ends", expired, func(_ *served, clock *fakeClock, judged <-chan bool) {
			<-judged
			clock.advance(2 * time.Second)
		}, 403, policy.ReasonExpired, many[:1]},
		{"the guard ends", expires, func(s *served, _ *fakeClock, judged <-chan bool) {
			<-judged
			s.stop()
			<-s.done
		}, 503, policy.ReasonLimit, many[:1]},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, judged := newFakeClock(), make(chan bool, len(many))
			guarded := serve(t, func(o *guard.Options) {
				o.Clock, o.Config.ExpiresAt = clock, sandbox.Timestamp(c.expires)
				o.Config.Allow = []guard.Entry{{Host: "allowed.test", Ports: []int64{port}}}
				o.Alter = func(s *guard.Steps) {
					real := s.Socket
					s.Socket = func(host string, chosen, actual netip.AddrPort) error {
						judged <- true
						return real(host, chosen, actual)
					}
				}
			})
			internet.fresh(map[string][]string{"allowed.test.": many}, nil)
			conn := guarded.dial(t)
			conn.send(connect(fmt.Sprintf("allowed.test:%d", port)))
			c.end(guarded, clock, judged)
			if got := conn.status(); got != c.status && (got != 0 || c.status == 504) { // a guard that ended said nothing
				t.Errorf("status %d, want %d", got, c.status)
			}
			l := guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindDecision })
			if l.Reason != c.reason || !slices.Equal(l.Checked, c.checked) {
				t.Errorf("the log says %+v", l)
			}
		})
	}
}

// A resolver may be a neighbour on a link. Its link is looked for once, before
// the process is locked up.
func TestAResolverWithAZone(t *testing.T) {
	for zone, there := range map[string]bool{"lo": true, "1": true, "nowhere": false} {
		c := config()
		c.Resolver = "[fe80::1%" + zone + "]:53"
		_, err := guard.New(guard.Options{Config: c, Log: io.Discard})
		if refused, ok := errors.AsType[*sandbox.Invalid](err); there != (err == nil) || !there && (!ok || refused.Field != "resolver") {
			t.Errorf("%s: %v", zone, err)
		}
	}
}

// B37: what a cloud or a host says at an address of its own is out of reach: by
// its number, by a listed name that leads to it, and by one that leads to it from
// the second question on. All of it is live and answers who is not the guard.
func TestTheHostIsOutOfReach(t *testing.T) {
	near, err := net.Listen("tcp", "[::]:443") // the guard's own loopback and addresses
	if err != nil {
		t.Fatal(err)
	}
	took := make(chan string, 100)
	ended := make(chan struct{})
	t.Cleanup(func() { near.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			c, err := near.Accept()
			if err != nil {
				return
			}
			took <- c.LocalAddr().String()
			go func() { echo(c, c); c.Close() }()
		}
	}()
	addresses := []string{metadata, "fd00:ec2::254", "10.99.0.2", "fd99::2", "172.17.0.1", "0.0.0.0", "::", "127.0.0.1", "127.8.8.8", "::1", "10.99.0.1", guardPublic}
	locals := 0
	for _, a := range addresses {
		c, err := net.Dial("tcp", net.JoinHostPort(a, "443"))
		if err != nil {
			t.Fatalf("%s is not live: %v", a, err)
		}
		io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("%s is not live: %v", a, err)
		}
		c.Close()
		select {
		case <-took:
			locals++
		default:
		}
	}
	if locals != 7 {
		t.Fatalf("%d of the addresses are the guard's own, want 7", locals)
	}
	guarded := serve(t, nil)
	for _, a := range addresses {
		internet.fresh(nil, nil)
		for _, step := range []struct {
			how, target, leads string
			status             int
		}{
			{"by its number", net.JoinHostPort(a, "443"), "", 403},
			{"by a name", "allowed.test:443", a, 403},
			{"before the change", "allowed.test:443", pub, 200},
			{"after the change", "allowed.test:443", a, 403},
		} {
			internet.mu.Lock()
			internet.records["allowed.test."] = []string{step.leads}
			internet.mu.Unlock()
			conn := guarded.dial(t)
			conn.send(connect(step.target))
			if got := conn.status(); got != step.status {
				t.Errorf("%s, %s: status %d, want %d", a, step.how, got, step.status)
			}
			if step.status == 200 {
				conn.echoes("ping")
			}
			conn.Close()
		}
		if got := internet.ledger(t); !slices.Equal(got, []string{pub + ":443"}) {
			t.Errorf("%s: %q accepted", a, got)
		}
	}
	if c, err := net.Dial("tcp", "127.0.0.1:443"); err != nil { // behind whatever came before it
		t.Error(err)
	} else {
		c.Close()
		if at := <-took; at != "127.0.0.1:443" || len(took) > 0 {
			t.Errorf("%s accepted", at)
		}
	}
}

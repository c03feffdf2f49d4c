package guard_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// through opens a tunnel to a port of ports.test.
func (s *served) through(t testing.TB, port int) *client {
	t.Helper()
	conn := s.dial(t)
	conn.send(connect(fmt.Sprintf("ports.test:%d", port)))
	if got := conn.status(); got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	return conn
}

func (s *served) ended(after int64) guard.Line {
	return s.log.await(s.t, func(l guard.Line) bool { return l.Seq > after && l.Kind == guard.KindClose })
}

func portsTest() { internet.fresh(map[string][]string{"ports.test.": {pub}}, nil) }

// D31, D32, D33: what was sent before an end arrives, in order, whoever ends.
func TestEveryByteArrives(t *testing.T) {
	portsTest()
	guarded := serve(t, nil)

	t.Run("D31", func(t *testing.T) {
		conn := guarded.dial(t)
		conn.send(connect("allowed.test:443") + "pipelined ")
		if got := conn.status(); got != 200 {
			t.Fatalf("status %d, want 200", got)
		}
		conn.send("and more")
		conn.expect("pipelined and more")
	})
	t.Run("D32", func(t *testing.T) {
		conn := guarded.through(t, portAfter)
		conn.send("a request")
		conn.CloseWrite()
		if n, err := io.Copy(io.Discard, conn.r); n != large || err != nil {
			t.Errorf("got %d bytes (%v), want %d", n, err, large)
		}
	})
	t.Run("D33", func(t *testing.T) {
		conn := guarded.through(t, portLarge)
		guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindDecision && l.Port == portLarge })
		if n, err := io.Copy(io.Discard, conn.r); n != large || err != nil {
			t.Errorf("got %d bytes (%v), want %d", n, err, large)
		}
		conn.Close()
		end := guarded.log.await(t, func(l guard.Line) bool {
			return l.Kind == guard.KindClose && l.End == guard.EndDone && *l.DownBytes == large && *l.UpBytes == 0
		})
		if end.Request == 0 {
			t.Errorf("the log says %+v", end)
		}
	})
	t.Run("an early answer", func(t *testing.T) {
		// The origin answers, says that it is done and goes; the client, which
		// has more to say, must get the whole answer and an end, and no reset.
		seen := int64(len(guarded.log.lines(t)))
		conn := guarded.through(t, portEarly)
		if _, err := conn.Write(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		for range 64 {
			conn.Write(make([]byte, 4096))
		}
		if n, err := io.Copy(io.Discard, conn.r); n != early || err != nil {
			t.Errorf("got %d bytes (%v), want %d", n, err, early)
		}
		conn.Close()
		if end := guarded.ended(seen); end.End != guard.EndDone || *end.DownBytes != early {
			t.Errorf("the log says %s, %d bytes down", end.End, *end.DownBytes)
		}
	})
	t.Run("a client that goes", func(t *testing.T) {
		seen := int64(len(guarded.log.lines(t)))
		conn := guarded.through(t, portForever)
		io.CopyN(io.Discard, conn.r, large)
		conn.Close()
		if end := guarded.ended(seen); end.End != guard.EndReset { // or it would never end
			t.Errorf("the log says %s", end.End)
		}
	})
	t.Run("R08: a reset is no end", func(t *testing.T) {
		seen := int64(len(guarded.log.lines(t)))
		conn := guarded.through(t, portReset)
		conn.send("x")
		if _, err := io.Copy(io.Discard, conn.r); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client saw %v, want a reset", err)
		}
		if end := guarded.ended(seen); end.End != guard.EndReset {
			t.Errorf("the log says %s", end.End)
		}
		before := len(internet.questions(0))
		guarded.through(t, portReset)
		if after := len(internet.questions(before + 2)); after != before+2 {
			t.Errorf("%d questions for the second connection, want 2", after-before)
		}
	})
}

// Bytes of every size come back as they were, over TCP and a unix socket, both
// ways at once.
func TestBytesAreNotChanged(t *testing.T) {
	internet.fresh(nil, nil)
	dir := t.TempDir()
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			g, err := guard.New(guard.Options{Config: config(), Log: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(dir, "s")
			}
			ln, err := guard.Listen(t.Context(), network, address)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- g.Serve(ctx, ln) }()
			conn, err := net.Dial(network, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, connect("allowed.test:443"))
			answer := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
			if _, err := io.ReadFull(conn, answer); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200")) {
				t.Fatalf("%q: %v", answer, err)
			}
			sent := sha256.New()
			const total = 6 << 20
			go func() {
				random := rand.New(rand.NewPCG(1, 2))
				piece := make([]byte, 256<<10)
				for left := total; left > 0; {
					n := min(left, 1+random.IntN(len(piece)))
					mark := byte(random.Uint32())
					for i := range n {
						piece[i] = byte(i) ^ mark
					}
					sent.Write(piece[:n])
					if _, err := conn.Write(piece[:n]); err != nil {
						return
					}
					left -= n
				}
				conn.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got := sha256.New()
			if n, err := io.Copy(got, conn); n != total || err != nil {
				t.Fatalf("got %d bytes (%v), want %d", n, err, total)
			}
			if !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
				t.Error("other bytes came back")
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// D34, R09: idle, the lease, the end of the guard. The peer sees a reset: what
// was cut must not look complete.
func TestATunnelEndsInTime(t *testing.T) {
	portsTest()
	clock := newFakeClock()
	guarded := serve(t, func(o *guard.Options) {
		o.Clock = clock
		o.Config.ExpiresAt = "2026-11-30T13:00:00.000Z" // in an hour
	})
	cut := func(conn *client, end guard.End) {
		t.Helper()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the client saw %v, want a reset", end, err)
		}
		guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindClose && l.End == end })
	}
	conn := guarded.through(t, portBanner)
	conn.expect("220 hello\r\n")
	for range 3 { // each byte gives it the whole time again
		clock.advance(10*time.Minute - time.Second)
		conn.echoes("ping")
	}
	clock.advance(10 * time.Minute)
	cut(conn, guard.EndIdle)

	conn = guarded.through(t, portBanner)
	conn.expect("220 hello\r\n")
	for range 20 { // 12:39:57 to 12:59:57
		clock.advance(time.Minute)
		conn.echoes("ping")
	}
	late := guarded.dial(t)
	late.send("CONNECT ports.test:25 HTTP/1.1\r\n")
	clock.await(5 * time.Second)
	clock.advance(3 * time.Second)
	cut(conn, guard.EndExpired)
	late.send("\r\n")
	if got := late.status(); got != 403 {
		t.Errorf("status %d, want 403", got)
	}
	l := guarded.log.await(t, func(l guard.Line) bool { return l.Reason == policy.ReasonExpired })
	if l.Status != 403 || len(l.Answers) > 0 {
		t.Errorf("the log says %+v", l)
	}
}

func TestTheEndOfAGuardEndsItsTunnels(t *testing.T) {
	portsTest()
	guarded := serve(t, nil)
	conn, half := guarded.through(t, portSink), guarded.dial(t)
	half.send("CONNECT ")
	guarded.stop()
	<-guarded.done
	if guarded.err != nil {
		t.Error(guarded.err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client saw %v, want a reset", err)
	}
	if got := half.status(); got == 200 {
		t.Error("a request was let through")
	}
	lines := guarded.log.lines(t)
	if last := lines[len(lines)-1]; len(lines) != 3 && len(lines) != 4 || lines[2].End != guard.EndStopped && last.End != guard.EndStopped {
		t.Errorf("the log says %+v", lines)
	}
	if c, err := net.Dial("tcp", guarded.address.String()); err == nil {
		c.Close()
		t.Error("the listener is open")
	}
}

// A guard that has ended holds nothing: no descriptor, no pipe.
func TestAGuardLeavesNothing(t *testing.T) {
	portsTest()
	internet.settle()
	before := descriptors(t)
	guarded := serve(t, nil)
	for _, port := range []int{portLarge, portBanner, portSink, portReset} {
		conn := guarded.through(t, port)
		if port == portLarge { // cut off in the middle of a transfer
			io.CopyN(io.Discard, conn.r, large/2)
		}
		conn.Close()
	}
	internet.fresh(map[string][]string{"ports.test.": {pub, dead}, "allowed.test.": {private}}, nil)
	// Not listed; two addresses that refuse; one that is refused; no such name.
	for _, target := range []string{"other.test:443", "ports.test:9", "allowed.test:443", "xn--fa-hia.de:443"} {
		refused := guarded.dial(t)
		refused.send(connect(target))
		refused.end()
		refused.Close()
	}
	guarded.stop()
	<-guarded.done
	after := descriptors(t)
	for over := time.Now().Add(10 * time.Second); len(after) > len(before) && time.Now().Before(over); {
		internet.settle() // the far side closes when it comes to it
		after = descriptors(t)
	}
	if len(after) > len(before) {
		t.Errorf("%d descriptors, %d before: %q", len(after), len(before), after)
	}
}

func descriptors(t *testing.T) (out []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil {
			out = append(out, to)
		}
	}
	return out
}

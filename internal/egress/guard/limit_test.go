package guard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// D24: a head that comes a byte at a time has the time of a whole head.
func TestASlowHeadIsEnded(t *testing.T) {
	clock := newFakeClock()
	guarded := serve(t, func(o *guard.Options) { o.Clock = clock })
	conn := guarded.dial(t)
	clock.await(5 * time.Second)
	for _, b := range []string{"C", "O"} {
		conn.send(b)
		clock.advance(2 * time.Second)
	}
	conn.send("N")
	clock.advance(time.Second)
	// None, if the guard was not scheduled to read one of the bytes before.
	got := conn.status()
	if got != 0 && got != 408 {
		t.Errorf("status %d, want 408 or none", got)
	}
	conn.end()
	lines := guarded.log.lines(t)[1:]
	if got == 408 && (len(lines) != 1 || lines[0].Reason != policy.ReasonLimit || lines[0].Status != 408) {
		t.Errorf("the log says %+v", lines)
	}
	// A connection that says nothing is ended, too, and asks for no line.
	conn = guarded.dial(t)
	clock.await(5 * time.Second)
	clock.advance(5 * time.Second)
	if got := conn.end(); got != "" || len(guarded.log.lines(t)) != 1+len(lines) {
		t.Errorf("got %q, the log says %+v", got, guarded.log.lines(t))
	}
}

// D25: a flood of heads that never end costs a bounded number of them, and an
// honest request nothing.
func TestAFloodOfHeadsGivesWay(t *testing.T) {
	internet.fresh(nil, nil)
	guarded := serve(t, nil)
	const flood = 2000
	conns := make([]net.Conn, flood)
	for i := range conns {
		c, err := net.Dial("tcp", guarded.address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
		io.WriteString(c, "CONNECT allowed.te")
	}
	began := time.Now()
	conn := guarded.dial(t)
	conn.send(connect("allowed.test:443"))
	if got := conn.status(); got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	conn.echoes("ping")
	t.Logf("a request among %d half-open heads took %v", flood, time.Since(began))
	// The oldest had to go; the newest are still waited for.
	for _, c := range conns[:flood-guard.MaxHeads] {
		io.Copy(io.Discard, c)
	}
	newest := conns[flood-1]
	io.WriteString(newest, "st:443 HTTP/1.1\r\n\r\n")
	if line, _ := bufio.NewReader(newest).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 200") {
		t.Errorf("the newest head got %q", line)
	}
}

// Limits.Tunnels: refuse the new, keep the old.
func TestTunnelsAreCounted(t *testing.T) {
	portsTest()
	guarded := serve(t, func(o *guard.Options) { o.Config.Limits.Tunnels = 2 })
	first, second := guarded.through(t, portBanner), guarded.through(t, portBanner)
	third := guarded.dial(t)
	third.send(connect("ports.test:25"))
	if got := third.status(); got != 503 {
		t.Errorf("status %d, want 503", got)
	}
	for _, conn := range []*client{first, second} {
		conn.expect("220 hello\r\n")
		conn.echoes("ping")
	}
	first.Close()
	guarded.ended(0)
	guarded.through(t, portBanner).expect("220 hello\r\n")
}

// brokenLog takes some lines and then no more.
type brokenLog struct {
	logBuffer
	left      int
	deadlines int
}

func (l *brokenLog) Write(b []byte) (int, error) {
	if l.left == 0 {
		return 0, syscall.ENOSPC
	}
	l.left--
	return l.logBuffer.Write(b)
}

func (l *brokenLog) SetWriteDeadline(time.Time) error { l.deadlines++; return nil }

// D22: without a log nothing passes, and nothing that passed goes on.
func TestWithoutALogNothingPasses(t *testing.T) {
	portsTest()
	log := &brokenLog{logBuffer: logBuffer{}, left: 3} // start, two decisions
	log.grown = sync.NewCond(&log.mu)
	g, err := guard.New(guard.Options{Config: config(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := guard.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &served{t: t, address: ln.Addr(), log: &log.logBuffer}
	done := make(chan error)
	go func() { done <- g.Serve(ctx, ln) }()
	open := s.through(t, portBanner)
	open.expect("220 hello\r\n")
	s.through(t, portSink).Close() // its closing line is the one that is lost
	if _, err := open.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a tunnel that was open saw %v, want a reset", err)
	}
	internet.fresh(nil, nil)
	for _, head := range []string{connect("allowed.test:443"), connect("other.test:443"), "GET http://x/ HTTP/1.1\r\n\r\n"} {
		conn := s.dial(t)
		conn.send(head)
		if got := conn.status(); got != 503 {
			t.Errorf("%q: status %d, want 503", head, got)
		}
	}
	if took, asked := internet.ledger(t), internet.questions(0); len(took)+len(asked) > 0 {
		t.Errorf("%q accepted, the resolver heard %q", took, asked)
	}
	stop()
	var lost *guard.LogError
	if err := <-done; !errors.As(err, &lost) || lost.Seq != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Serve gave %v", err)
	}
	if lines := s.log.lines(t); len(lines) != 3 || log.deadlines != 4 {
		t.Errorf("the log says %+v; %d deadlines", lines, log.deadlines)
	}

	// The first line is the promise that there is a log.
	g, err = guard.New(guard.Options{Config: config(), Log: &brokenLog{}})
	if err != nil {
		t.Fatal(err)
	}
	if ln, err = guard.Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := g.Serve(t.Context(), ln); !errors.As(err, &lost) {
		t.Errorf("Serve gave %v", err)
	}
	if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		c.Close()
		t.Error("it listens")
	}
}

// D23: a guard without descriptors refuses the new and keeps the old. A tunnel
// has two, so of two limits in a row one leaves none for a client.
func TestWithoutDescriptorsTheOldTunnelsGoOn(t *testing.T) {
	portsTest()
	unheard := false
	for _, limit := range []string{"limit=60", "limit=61"} {
		t.Run(limit, func(t *testing.T) {
			guarded := serveChild(t, limit)
			var open []*client
			refused := 0
			for range 40 {
				conn := guarded.dial(t)
				io.WriteString(conn, connect("ports.test:25"))
				switch got := conn.status(); got {
				case 200:
					open = append(open, conn)
				case 503, 0: // 0: the answer was lost with what was not read
					refused++
					conn.Close()
				default:
					t.Fatalf("status %d", got)
				}
			}
			if refused == 0 || len(open) < 10 {
				t.Fatalf("%d refused, %d open: this shows nothing", refused, len(open))
			}
			for _, conn := range open {
				conn.expect("220 hello\r\n")
				conn.echoes(strings.Repeat("x", 100<<10)) // a buffer's worth, though there is no pipe
				conn.Close()
			}
			for range open {
				guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindClose })
			}
			for tries := 0; ; tries++ {
				conn := guarded.dial(t)
				io.WriteString(conn, connect("ports.test:25"))
				if conn.status() == 200 {
					break // there is room again
				}
				if conn.Close(); tries == 1000 {
					t.Fatal("it does not come back")
				}
			}
			for _, l := range guarded.log.lines(t) {
				if l.Decision == guard.Deny {
					unheard = unheard || l.Raw == ""
					if l.Reason != policy.ReasonLimit {
						t.Errorf("the log says %+v", l)
					}
				}
			}
		})
	}
	if !unheard {
		t.Error("nobody was turned away at the door: the spare descriptor was not needed")
	}
}

// Serve refuses what it cannot hold to its word, and serves once.
func TestAListenerIsPlain(t *testing.T) {
	var wrong *guard.ListenerError
	fresh := func() *guard.Guard {
		g, err := guard.New(guard.Options{Config: config(), Log: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	if fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 262); err != nil {
		t.Log("this kernel has no multipath TCP")
	} else {
		syscall.Close(fd)
		ln, err := net.Listen("tcp", "127.0.0.1:0") // multipath by default
		if err != nil {
			t.Fatal(err)
		}
		if err := fresh().Serve(t.Context(), ln); !errors.As(err, &wrong) {
			t.Errorf("Serve gave %v", err)
		}
	}
	if err := fresh().Serve(t.Context(), struct{ net.Listener }{plain(t)}); !errors.As(err, &wrong) {
		t.Errorf("Serve gave %v", err)
	}
	g := fresh()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := g.Serve(ctx, plain(t)); err != nil {
		t.Errorf("Serve gave %v", err)
	}
	if err := g.Serve(ctx, plain(t)); !errors.As(err, &wrong) {
		t.Errorf("Serve gave %v", err)
	}
}

func plain(t *testing.T) net.Listener {
	t.Helper()
	ln, err := guard.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// P87: an origin that speaks multipath TCP gets plain TCP from a guard.
func TestNoSecondPath(t *testing.T) {
	internet.fresh(nil, nil)
	d := net.Dialer{}
	d.SetMultipathTCP(true)
	control, err := d.Dial("tcp", pub+":443")
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	if multipath, err := control.(*net.TCPConn).MultipathTCP(); err != nil || !multipath {
		t.Skip("no multipath TCP between the namespaces: no live control")
	}
	conn := serve(t, nil).dial(t)
	conn.send(connect("allowed.test:443"))
	if got := conn.status(); got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	conn.echoes("ping")
	internet.mu.Lock()
	defer internet.mu.Unlock()
	if a := internet.accepts; len(a) != 2 || !a[0].multipath || a[1].multipath {
		t.Errorf("accepted %+v", a)
	}
}

// helperEnv names what a child of a test does instead of testing.
const helperEnv = "CHECKFU_GUARD_TEST_HELPER"

// helper is a guard in a process of its own: listener on descriptor 3, log on 4,
// until its standard input ends.
func helper() int {
	var limit uint64
	fmt.Sscanf(os.Getenv(helperEnv), "limit=%d", &limit)
	if limit > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fail(err)
		}
	}
	var c guard.Config
	if err := json.Unmarshal([]byte(os.Getenv("CHECKFU_GUARD_TEST_CONFIG")), &c); err != nil {
		return fail(err)
	}
	given := os.NewFile(3, "listener")
	ln, err := net.FileListener(given)
	if err != nil {
		return fail(err)
	}
	given.Close()
	g, err := guard.New(guard.Options{Config: c, Log: os.NewFile(4, "log")})
	if err != nil {
		return fail(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := g.Serve(ctx, ln); err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "helper:", err)
	return 1
}

// serveChild starts a guard in a child.
func serveChild(t testing.TB, how string) *served {
	t.Helper()
	ln, err := guard.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := config()
	c.Limits.Tunnels = 2000
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{helperEnv + "=" + how, "CHECKFU_GUARD_TEST_CONFIG=" + string(text)}
	cmd.ExtraFiles = []*os.File{file, w}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	log, copied := newLog(), make(chan struct{})
	go func() {
		defer close(copied)
		for in := bufio.NewReader(r); ; { // by lines: a reader of the log sees whole ones
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			log.Write(line)
		}
	}()
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		<-copied
		r.Close()
	})
	return &served{address: ln.Addr(), log: log, process: cmd.Process.Pid}
}

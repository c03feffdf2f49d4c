package guard_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/guard"
)

// Addresses of the far namespace. Every address of a block is one of its own:
// what listens there on all of them says which one was asked.
const (
	pub         = "45.33.32.10"
	pub2        = "45.33.32.20"
	pub6        = "2a00:1450:4001:10::10"
	private     = "10.77.0.10"
	unique      = "fd00:77::10"
	metadata    = "169.254.169.254"
	azure       = "168.63.129.16"
	resolverAt  = "45.33.32.53:53"
	planeAt     = "45.33.32.77"
	guardPublic = "45.33.99.1" // of the guard's own side
	dead        = "45.33.33.1" // unreachable
)

var farBlocks = []string{
	"45.33.32.0/24", "10.77.0.0/24", "169.254.169.254/32", "168.63.129.16/32",
	"172.17.0.1/32", "fd00:ec2::254/128",
	"2a00:1450:4001:10::/64", "fd00:77::/64", "64:ff9b::a4d:a/128", "2002:a4d:a::1/128",
}

// The ports of the far namespace, each on all its addresses.
const (
	portEcho    = 443  // what comes goes back
	portEcho2   = 8443 // the same
	portBanner  = 25   // says "220 hello" first, then echoes
	portLarge   = 8001 // sends large bytes and closes at once
	portAfter   = 8002 // reads to the end, then sends large bytes and closes
	portEarly   = 8003 // reads a byte, answers, says that it is done, and is gone
	portReset   = 8004 // sends a little, then breaks off
	portSink    = 8005 // reads, says nothing
	portForever = 8006 // sends without an end
)

const (
	large = 8 << 20
	early = 32 << 10
)

// unsent waits until the peer's kernel has all that c was given.
func unsent(c net.Conn) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	for n := 1; n > 0; {
		raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		if err != nil {
			return
		}
		runtime.Gosched()
	}
}

// farNet is the internet: a ledger of what was accepted and a resolver that
// answers by script and keeps what it was asked.
type farNet struct {
	mu      sync.Mutex
	accepts []*accepted
	asked   []string // "A allowed.test.", with "/tcp" behind it where it was
	records map[string][]string
	script  func(w dns.ResponseWriter, q *dns.Msg) bool

	connections atomic.Int64 // those that are open
}

// accepted is one connection that an address of ours took.
type accepted struct {
	address string // the one that was asked
	port    int

	multipath bool

	mu    sync.Mutex
	bytes bytes.Buffer // what came, at most 64 KiB of it
}

var internet farNet

func (n *farNet) open() error {
	for port, serve := range map[int]func(net.Conn, io.Reader){
		portEcho: echo, portEcho2: echo,
		portBanner: func(c net.Conn, r io.Reader) { io.WriteString(c, "220 hello\r\n"); echo(c, r) },
		portLarge:  func(c net.Conn, _ io.Reader) { send(c) },
		portAfter:  func(c net.Conn, r io.Reader) { io.Copy(io.Discard, r); send(c) },
		portEarly: func(c net.Conn, r io.Reader) {
			io.ReadFull(r, make([]byte, 1))
			c.Write(make([]byte, early))
			c.(*net.TCPConn).CloseWrite()
			unsent(c)
			c.(*net.TCPConn).SetLinger(0)
		},
		portReset: func(c net.Conn, r io.Reader) {
			c.Write(make([]byte, 1000))
			io.ReadFull(r, make([]byte, 1))
			c.(*net.TCPConn).SetLinger(0)
		},
		portForever: func(c net.Conn, _ io.Reader) {
			for piece := make([]byte, 64<<10); ; {
				if _, err := c.Write(piece); err != nil {
					return
				}
			}
		},
		portSink: func(c net.Conn, r io.Reader) { io.Copy(io.Discard, r) },
	} {
		ln, err := inFar(func() (net.Listener, error) { return net.Listen("tcp", fmt.Sprintf("[::]:%d", port)) })
		if err != nil {
			return err
		}
		go n.accept(ln, port, serve)
	}
	packet, err := inFar(func() (net.PacketConn, error) { return net.ListenPacket("udp", resolverAt) })
	if err != nil {
		return err
	}
	stream, err := inFar(func() (net.Listener, error) { return net.Listen("tcp", resolverAt) })
	if err != nil {
		return err
	}
	go (&dns.Server{PacketConn: packet, Handler: dns.HandlerFunc(n.answer)}).ActivateAndServe()
	go (&dns.Server{Listener: stream, Handler: dns.HandlerFunc(n.answer)}).ActivateAndServe()
	return nil
}

func (n *farNet) accept(ln net.Listener, port int, serve func(net.Conn, io.Reader)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		at := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		a := &accepted{address: at.String(), port: port}
		a.multipath, _ = c.(*net.TCPConn).MultipathTCP()
		n.mu.Lock()
		n.accepts = append(n.accepts, a)
		n.mu.Unlock()
		n.connections.Add(1)
		go func() {
			defer n.connections.Add(-1)
			defer c.Close()
			serve(c, io.TeeReader(c, a))
		}()
	}
}

// settle waits until no connection is open; the test's own time is the bound.
func (n *farNet) settle() {
	for n.connections.Load() > 0 {
		runtime.Gosched()
	}
}

// Write keeps what came.
func (a *accepted) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bytes.Len() < 64<<10 {
		a.bytes.Write(b)
	}
	return len(b), nil
}

func (a *accepted) got() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes.String()
}

func echo(c net.Conn, r io.Reader) { io.Copy(struct{ io.Writer }{c}, r) }

func send(c net.Conn) {
	piece := []byte(strings.Repeat("0123456789abcdef", 4096))
	for left := large; left > 0; left -= len(piece) {
		if _, err := c.Write(piece); err != nil {
			return
		}
	}
}

// answer says what the records of a name are: addresses, "CNAME name".
func (n *farNet) answer(w dns.ResponseWriter, q *dns.Msg) {
	asked := dns.TypeToString[q.Question[0].Qtype] + " " + q.Question[0].Name
	if _, tcp := w.RemoteAddr().(*net.TCPAddr); tcp {
		asked += "/tcp"
	}
	n.mu.Lock()
	n.asked = append(n.asked, asked)
	script := n.script
	n.mu.Unlock()
	if script != nil && script(w, q) {
		return
	}
	w.WriteMsg(n.reply(q))
}

func (n *farNet) reply(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	name := q.Question[0].Name
	n.mu.Lock()
	defer n.mu.Unlock()
	for range 12 {
		records, known := n.records[name]
		if !known {
			m.Rcode = dns.RcodeNameError
			return m
		}
		next := ""
		for _, r := range records {
			if to, ok := strings.CutPrefix(r, "CNAME "); ok {
				m.Answer = append(m.Answer, &dns.CNAME{Hdr: header(name, dns.TypeCNAME), Target: to})
				next = to
				continue
			}
			switch a := netip.MustParseAddr(r); {
			case a.Is4() && q.Question[0].Qtype == dns.TypeA:
				m.Answer = append(m.Answer, &dns.A{Hdr: header(name, dns.TypeA), A: a.AsSlice()})
			case a.Is6() && q.Question[0].Qtype == dns.TypeAAAA:
				m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: a.AsSlice()})
			}
		}
		if next == "" {
			return m
		}
		name = next
	}
	return m
}

func header(name string, t uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: t, Class: dns.ClassINET, Ttl: 0}
}

// fresh empties ledger and log and sets what the resolver says.
func (n *farNet) fresh(records map[string][]string, script func(dns.ResponseWriter, *dns.Msg) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.accepts, n.asked, n.script = nil, nil, script
	n.records = map[string][]string{"allowed.test.": {pub}, "allowed2.test.": {pub2}}
	for name, r := range records {
		n.records[name] = r
	}
}

// ledger is the addresses that accepted since fresh, in order. A direct
// connection to each port, which shows that the listener is live, goes behind
// whatever came before it: nothing is on its way when it is there.
func (n *farNet) ledger(t *testing.T) []string {
	t.Helper()
	const control = "45.33.32.200"
	for _, port := range []int{portEcho, portEcho2} {
		c, err := net.Dial("tcp", net.JoinHostPort(control, fmt.Sprint(port)))
		if err != nil {
			t.Fatalf("the live control of port %d: %v", port, err)
		}
		io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("the live control of port %d: %v", port, err)
		}
		c.Close()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, a := range n.accepts {
		if a.address != control {
			out = append(out, net.JoinHostPort(a.address, fmt.Sprint(a.port)))
		}
	}
	return out
}

// taken is what the accepted connection i got.
func (n *farNet) taken(i int) string {
	n.mu.Lock()
	a := n.accepts[i]
	n.mu.Unlock()
	return a.got()
}

// questions is what the resolver was asked since fresh, sorted. It waits for as
// many as are wanted: a guard that has read one bad answer does not wait for the
// other question to be heard.
func (n *farNet) questions(wanted int) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for over := time.Now().Add(10 * time.Second); len(n.asked) < wanted && time.Now().Before(over); {
		n.mu.Unlock()
		runtime.Gosched()
		n.mu.Lock()
	}
	out := slices.Clone(n.asked)
	slices.Sort(out)
	return out
}

// served is a guard at work.
type served struct {
	t       testing.TB
	address net.Addr
	stop    context.CancelFunc
	done    chan struct{}
	err     error
	process int        // of a child
	log     *logBuffer // what the guard wrote, unless a test gave it another log
}

type logBuffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
	grown *sync.Cond
}

func newLog() *logBuffer {
	l := &logBuffer{}
	l.grown = sync.NewCond(&l.mu)
	return l
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grown.Broadcast()
	return l.bytes.Write(b)
}

// lines are the lines so far, whose chain holds.
func (l *logBuffer) lines(t testing.TB) []guard.Line {
	t.Helper()
	l.mu.Lock()
	text := l.bytes.String()
	l.mu.Unlock()
	lines, err := guard.ReadLog(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the log: %v\n%s", err, text)
	}
	return lines
}

// await waits for the line that is wanted.
func (l *logBuffer) await(t testing.TB, wanted func(guard.Line) bool) guard.Line {
	t.Helper()
	for {
		l.mu.Lock()
		before := l.bytes.Len()
		l.mu.Unlock()
		for _, line := range l.lines(t) {
			if wanted(line) {
				return line
			}
		}
		l.mu.Lock()
		for l.bytes.Len() == before {
			l.grown.Wait() // the test's own time is the bound
		}
		l.mu.Unlock()
	}
}

const expires = "2099-01-01T00:00:00.000Z"

// config is what the tests' guards have, unless a test says otherwise.
func config() guard.Config {
	c := guard.Config{
		V: 1, Instance: "inst_1", PolicyRevision: "sha256:abababababababababababababababababababababababababababababababab",
		Resolver: resolverAt, ExpiresAt: expires, InfraAddrs: []string{planeAt},
		ReservedHosts: []string{"plane.checkfu.test"},
	}
	for _, host := range []string{"allowed.test", "allowed2.test", "xn--fa-hia.de"} {
		c.Allow = append(c.Allow, guard.Entry{Host: host, Ports: []int64{443}, Mode: "opaque"})
	}
	c.Allow = append(c.Allow,
		guard.Entry{Host: "tls.test", Ports: []int64{443}},
		guard.Entry{Host: "ports.test", Ports: []int64{portBanner, portLarge, portAfter, portEarly, portReset, portSink, portForever, 9}})
	return c
}

// serve starts a guard and ends it with the test, which fails if Serve does.
func serve(t *testing.T, change func(*guard.Options)) *served {
	t.Helper()
	log := newLog()
	o := guard.Options{Config: config(), Log: log}
	if change != nil {
		change(&o)
	}
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := guard.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &served{t: t, address: ln.Addr(), stop: stop, done: make(chan struct{}), log: log}
	go func() {
		s.err = g.Serve(ctx, ln)
		close(s.done)
	}()
	t.Cleanup(func() {
		stop()
		<-s.done
	})
	log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindStart })
	return s
}

// client is a connection to the guard.
type client struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
}

func (s *served) dial(t testing.TB) *client {
	t.Helper()
	c, err := net.Dial("tcp", s.address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{c.(*net.TCPConn), t, bufio.NewReader(c)}
}

// send writes bytes as they are.
func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// status reads the head of the answer, 0 if the connection ended without one.
func (c *client) status() int {
	c.t.Helper()
	var status int
	first := true
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return 0
		}
		if first {
			fmt.Sscanf(line, "HTTP/1.1 %d", &status)
			first = false
		}
		if line == "\r\n" {
			return status
		}
	}
}

// echoes shows that the way leads to something that answers.
func (c *client) echoes(text string) {
	c.t.Helper()
	c.send(text)
	c.expect(text)
}

func (c *client) expect(text string) {
	c.t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(c.r, got); err != nil || string(got) != text {
		c.t.Fatalf("got %q (%v), want %q", got[:n], err, text)
	}
}

// end reads to the end and returns what came.
func (c *client) end() string {
	c.t.Helper()
	all, _ := io.ReadAll(c.r)
	return string(all)
}

func (l *logBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes.String()
}

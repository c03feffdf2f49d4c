package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// holdLab makes the test binary build a lab, say which namespaces it has, and
// wait to be killed.
const holdLab = "CHECKFU_TEST_HOLD_LAB"

func TestMain(m *testing.M) {
	if os.Getenv(holdLab) != "" {
		l, err := Open(SocketFile)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		inodes, _ := l.Inodes()
		fmt.Println(l.dir, inodes)
		select {}
	}
	os.Exit(m.Run())
}

// open builds a lab whose end is proved.
func open(t *testing.T, topology Topology) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	l, err := Open(topology)
	if err != nil {
		t.Fatal(err)
	}
	inodes, err := l.Inodes()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dir := l.dir
		l.Close()
		l.Close() // again changes nothing
		if left := Census(inodes); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("left behind: %s", dir)
		}
	})
	return l
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// TestEveryAddressIsLive: an address that a guard must refuse has somebody there
// to be reached, and so has each that it must let through.
func TestEveryAddressIsLive(t *testing.T) {
	l := open(t, InsideListener)
	for _, row := range policy.Rows() {
		for _, p := range row.Prefixes() {
			if err := l.Live(t.Context(), netip.AddrPortFrom(Inside(p), 443)); err != nil {
				t.Errorf("%s %s: %v", row.Case, p, err)
			}
		}
	}
	for _, text := range []string{
		"9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0",
		"198.17.255.255", "198.20.0.0", "223.255.255.255", "2001:200::", "3fff:1000::", "2606:4700:4700::1111", "168.63.129.16",
	} {
		for _, p := range SinkPorts() {
			if err := l.Live(t.Context(), netip.AddrPortFrom(addr(text), p)); err != nil {
				t.Error(err)
			}
		}
	}
	if err := l.Live(t.Context(), netip.AddrPortFrom(NeighborAddr, 443)); err != nil {
		t.Error(err)
	}
	// Live says no where nobody is.
	if err := l.Live(t.Context(), netip.AddrPortFrom(PublicAddr, 444)); err == nil {
		t.Error("a port without a listener is called live")
	}
}

func TestTheLinksThatAreNotThere(t *testing.T) {
	l := open(t, InsideListener)
	planeMark := l.PlaneTap.Mark()
	for _, c := range []struct {
		from *Namespace
		to   netip.AddrPort
		want []error
	}{
		{l.Workload, netip.AddrPortFrom(PublicAddr, 443), []error{unix.ENETUNREACH}},
		{l.Workload, netip.AddrPortFrom(PublicAddr6, 443), []error{unix.ENETUNREACH}},
		{l.Workload, netip.AddrPortFrom(GuardAddr, 443), []error{unix.ENETUNREACH}},
		{l.Relay, netip.AddrPortFrom(PublicAddr, 443), []error{unix.ENETUNREACH}},
		{l.Guard, netip.AddrPortFrom(PlaneAddr, 443), []error{unix.EHOSTUNREACH, unix.ENETUNREACH}},
	} {
		conn, err := c.from.Dial(t.Context(), "tcp", c.to)
		if err == nil {
			conn.Close()
			t.Errorf("%s reached %s", c.from.Name, c.to)
			continue
		}
		found := false
		for _, want := range c.want {
			found = found || errors.Is(err, want)
		}
		if !found {
			t.Errorf("%s to %s: want %v, got %v", c.from.Name, c.to, c.want, err)
		}
	}
	if got := l.PlaneTap.Since(planeMark); len(got) > 0 {
		t.Errorf("arrived at the plane: %v", got)
	}
	// The control: the plane is there, for whoever has the link.
	mark := l.Ledger.Mark()
	conn, err := l.Relay.Dial(t.Context(), "tcp", netip.AddrPortFrom(PlaneAddr, 443))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := l.Ledger.wait(t.Context(), func() bool { return len(l.Ledger.since(mark)) > 0 }); err != nil {
		t.Fatal(err)
	}
	if got := l.Ledger.Since(mark); len(got) != 1 || got[0].In != "pl" {
		t.Errorf("want one accept in pl, got %v", got)
	}
	if err := l.PlaneTap.sees(t.Context(), PlaneAddr); err != nil {
		t.Error(err)
	}
}

func TestLedgerTapAndBehaviour(t *testing.T) {
	l := open(t, InsideListener)
	served := netip.AddrPortFrom(addr("45.33.32.30"), 80)
	l.Ledger.Serve(served, func(c net.Conn) { io.WriteString(c, "first") })
	mark, flows := l.Ledger.Mark(), l.Tap.Mark()
	conn, err := l.Guard.Dial(t.Context(), "tcp", netip.AddrPortFrom(PublicAddr, 443))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789", 10)
	io.WriteString(conn, text)
	conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != text {
		t.Errorf("no echo: %q %v", got, err)
	}
	conn.Close()
	conn, err = l.Guard.Dial(t.Context(), "tcp", served)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "first" {
		t.Errorf("want the behaviour, got %q %v", got, err)
	}
	conn.Close()
	if err := l.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := l.Ledger.Closed(t.Context(), mark)
	if err != nil || len(got) != 2 {
		t.Fatalf("want two accepts, got %v %v", got, err)
	}
	if got[0].Local != netip.AddrPortFrom(PublicAddr, 443) || got[0].Bytes != 100 || string(got[0].First) != text[:40] || got[0].Remote.Addr() != GuardAddr || got[0].In != "pub" {
		t.Errorf("accepted %+v", got[0])
	}
	udp, err := l.Guard.ListenPacket(at("0.0.0.0:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for range 3 {
		udp.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(at("10.77.0.10:53")))
	}
	if err := l.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	since := l.Tap.Since(flows)
	if n := since[Flow{Protocol: UDP, Source: GuardAddr, Destination: at("10.77.0.10:53")}]; n != 3 {
		t.Errorf("want 3 datagrams, got %d of %v", n, since)
	}
	if n := since[Flow{Protocol: TCP, Source: GuardAddr, Destination: netip.AddrPortFrom(PublicAddr, 443), SYN: true}]; n != 1 {
		t.Errorf("want one SYN, got %d of %v", n, since)
	}
	flows = l.Tap.Mark()
	if err := l.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if since := l.Tap.Since(flows); len(since) > 0 {
		t.Errorf("the lab counts itself: %v", since)
	}
}

func TestResolverAnswersAsScripted(t *testing.T) {
	l := open(t, InsideListener)
	l.Resolver.Script("a.test", Addresses(addr("45.33.32.10"), addr("10.77.0.10"), addr("fd00:77::10")))
	l.Resolver.Script("alias.test", Alias("other.test", addr("45.33.32.11")))
	l.Resolver.Script("flip.test", func(q Query, m *dns.Msg) []*dns.Msg {
		return Addresses(addr([]string{"45.33.32.10", "10.77.0.10"}[min(q.Nth, 1)]))(q, m)
	})
	l.Resolver.Script("mute.test", func(Query, *dns.Msg) []*dns.Msg { return nil })
	mark := l.Resolver.Mark()
	for _, c := range []struct {
		name  string
		kind  uint16
		tcp   bool
		want  []string
		rcode int
	}{
		{"a.test", dns.TypeA, false, []string{"45.33.32.10", "10.77.0.10"}, 0},
		{"A.test", dns.TypeAAAA, true, []string{"fd00:77::10"}, 0},
		{"alias.test", dns.TypeA, false, []string{"other.test.", "45.33.32.11"}, 0},
		{"flip.test", dns.TypeA, false, []string{"45.33.32.10"}, 0},
		{"flip.test", dns.TypeA, false, []string{"10.77.0.10"}, 0},
		{"nobody.test", dns.TypeA, false, nil, dns.RcodeNameError},
	} {
		client := &dns.Client{Timeout: 5 * time.Second}
		network := "udp"
		if c.tcp {
			network, client.Net = "tcp", "tcp"
		}
		conn, err := l.Guard.Dial(t.Context(), network, ResolverAddr)
		if err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg).SetQuestion(dns.Fqdn(c.name), c.kind)
		reply, _, err := client.ExchangeWithConn(m, &dns.Conn{Conn: conn})
		conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rr := range reply.Answer {
			fields := strings.Fields(rr.String())
			got = append(got, fields[len(fields)-1])
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) || reply.Rcode != c.rcode {
			t.Errorf("%s: want %v, got %v, code %d", c.name, c.want, got, reply.Rcode)
		}
	}
	log := l.Resolver.Since(mark)
	if len(log) != 6 || log[1] != (Query{Name: "a.test", Type: dns.TypeAAAA, Network: TCP}) || log[4].Nth != 1 {
		t.Errorf("logged %v", log)
	}
}

// TestEveryTopologyHasItsDoors: what is behind a door is reached, and a door
// with nobody behind it leads nowhere.
func TestEveryTopologyHasItsDoors(t *testing.T) {
	for _, topology := range Topologies() {
		t.Run(string(topology), func(t *testing.T) {
			l := open(t, topology)
			for name, open := range map[string]func() (*Door, error){"guard": l.GuardDoor, "relay": l.RelayDoor} {
				d, err := open()
				if err != nil {
					t.Fatal(err)
				}
				listener, err := net.FileListener(d.Listener)
				if err != nil {
					t.Fatal(err)
				}
				d.Listener.Close()
				conn, err := l.Workload.Dial(t.Context(), "tcp", d.Entry)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				io.WriteString(conn, "in")
				conn.(*net.TCPConn).CloseWrite()
				far, err := listener.Accept()
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(far); err != nil || string(got) != "in" {
					t.Errorf("%s: got %q %v", name, got, err)
				}
				io.WriteString(far, "out")
				far.Close()
				if got, err := io.ReadAll(conn); err != nil || string(got) != "out" {
					t.Errorf("%s: got %q %v", name, got, err)
				}
				conn.Close()
				listener.Close()
				if conn, err := l.Workload.Dial(t.Context(), "tcp", d.Entry); err == nil {
					if n, _ := conn.Read(make([]byte, 1)); n > 0 {
						t.Errorf("%s: somebody is behind a dead door", name)
					}
					conn.Close()
				}
				d.Close()
			}
			links, err := l.Workload.Interfaces()
			if err != nil {
				t.Fatal(err)
			}
			if topology != Veth && fmt.Sprint(links) != "[lo 127.0.0.1/8 ::1/128]" {
				t.Errorf("the workload has %v", links)
			}
		})
	}
}

// TestTheEdgeOfAVeth: what a workload sends to its guard's host but to the
// guard's port is dropped and counted, and so is what it wants carried on.
func TestTheEdgeOfAVeth(t *testing.T) {
	l := open(t, Veth)
	if err := l.Guard.Do(func() error { return setting("ipv4/ip_forward", "1") }); err != nil {
		t.Fatal(err)
	}
	if err := l.Workload.Route("0.0.0.0/0", guardEdge.String()); err != nil {
		t.Fatal(err)
	}
	flows := l.Tap.Mark()
	udp, err := l.Workload.ListenPacket(at("0.0.0.0:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, to := range []string{"45.33.32.10:443", "45.33.32.53:53", "10.99.0.1:443", "45.33.39.2:443"} {
		udp.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(at(to)))
	}
	// What was sent waits in the workload's namespace until its neighbour answers,
	// which nothing there settles.
	await(t, "2 of each counted", func() bool {
		counts, err := l.Edge.Counts()
		return err == nil && counts[CountEdgeInput] == 2 && counts[CountForward] == 2
	})
	if err := l.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if since := l.Tap.Since(flows); len(since) > 0 {
		t.Errorf("carried on: %v", since)
	}
	// The control: without the rules the same packets are carried on.
	if err := l.Edge.Unload(); err != nil {
		t.Fatal(err)
	}
	udp.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(at("45.33.32.10:443")))
	await(t, "the control arrived", func() bool { return len(l.Tap.Since(flows)) == 1 })
}

// await waits until something that others do has been done.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !done(); runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestTheGateRefusesWhatIsNotPublic(t *testing.T) {
	l := open(t, InsideListener)
	var special []netip.Prefix
	for _, row := range policy.Rows() {
		special = append(special, row.Prefixes()...)
	}
	gate, err := l.LoadGate(special)
	if err != nil {
		t.Fatal(err)
	}
	if digest := gate.Digest(); len(digest) != len("sha256:")+64 {
		t.Errorf("digest %q", digest)
	}
	for _, c := range []struct {
		to   string
		live bool
	}{
		{"45.33.32.10:443", true}, {"[2a00:1450:4001:10::10]:443", true}, {"45.33.32.53:53", true},
		{"10.77.0.10:443", false}, {"127.0.0.1:443", false}, {"[fd00:77::10]:443", false}, {"[64:ff9b::a4d:a]:443", false},
		{"[::1]:443", false}, {"198.18.0.1:443", false}, {"10.201.0.2:443", false},
	} {
		before, err := gate.Counts()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.Guard.Dial(t.Context(), "tcp", at(c.to))
		if err == nil {
			conn.Close()
		}
		if (err == nil) != c.live {
			t.Errorf("%s: %v", c.to, err)
		}
		after, err := gate.Counts()
		if err != nil || (after[CountSpecial] == before[CountSpecial]) != c.live {
			t.Errorf("%s: counters %v, then %v, %v", c.to, before, after, err)
		}
	}
	if err := gate.Unload(); err != nil {
		t.Fatal(err)
	}
	if err := l.Live(t.Context(), at("10.77.0.10:443")); err != nil {
		t.Error(err)
	}
}

// TestAKilledLabLeavesNothing: the kernel takes it away, and Sweep what has a
// name.
func TestAKilledLabLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), holdLab+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir, list, _ := strings.Cut(strings.TrimSpace(line), " ")
	var inodes []uint64
	for _, f := range strings.Fields(strings.Trim(list, "[]")) {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		inodes = append(inodes, n)
	}
	if left := Census(inodes); len(left) == 0 || len(inodes) != 7 {
		t.Errorf("the census does not see a live lab: %v", inodes)
	}
	t.Setenv("TMPDIR", dir[:strings.LastIndex(dir, "/")])
	if swept := Sweep(); len(swept) > 0 {
		t.Errorf("swept under a live lab: %v", swept)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if left := Census(inodes); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if swept := Sweep(); len(swept) != 1 || swept[0] != dir {
		t.Errorf("want %s swept, got %v", dir, swept)
	}
}

package guard_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

var bothAsked = []string{"A allowed.test.", "AAAA allowed.test."}

// What the resolver answers decides, and only what it answers to what it was
// asked. A denial means: nothing accepted.
func TestAnAnswerDecides(t *testing.T) {
	guarded := serve(t, nil)
	chain := func(n int, last string) map[string][]string {
		records := map[string][]string{"allowed.test.": {"CNAME c1.test."}}
		for i := 1; i < n; i++ {
			records[name("c", i)] = []string{"CNAME " + name("c", i+1)}
		}
		records[name("c", n)] = []string{last}
		return records
	}
	answer := func(records ...string) map[string][]string { return map[string][]string{"allowed.test.": records} }
	var many []string
	for i := range 33 {
		many = append(many, netip.AddrFrom4([4]byte{45, 33, 32, byte(100 + i)}).String())
	}
	for _, c := range []struct {
		id      string
		records map[string][]string
		script  func(dns.ResponseWriter, *dns.Msg) bool
		status  int
		reason  string
		at      []string // what accepted
		asked   []string // nil is bothAsked
	}{
		{id: "P03", records: answer(private), status: 403, reason: "answer_not_public"},
		{id: "P06", records: answer(metadata), status: 403, reason: "answer_not_public"},
		{id: "P30", records: answer("::ffff:" + private), status: 403, reason: "answer_not_public"},
		{id: "P31", records: answer("64:ff9b::a4d:a"), status: 403, reason: "answer_not_public"},
		{id: "P47", records: answer("2002:a4d:a::1"), status: 403, reason: "answer_not_public"},
		{id: "P51", records: answer(unique), status: 403, reason: "answer_not_public"},
		{id: "P54", records: answer(pub6), status: 200, at: []string{"[" + pub6 + "]:443"}},
		{id: "P68", records: answer(pub, private), status: 403, reason: "answer_not_public"},
		{id: "P68", records: answer(private, pub), status: 403, reason: "answer_not_public"},
		{id: "P69", records: answer(pub, unique), status: 403, reason: "answer_not_public"},
		{id: "P69", records: answer(private, pub6), status: 403, reason: "answer_not_public"},
		{id: "P70", records: chain(1, private), status: 403, reason: "answer_not_public"},
		{id: "P71", records: chain(1, pub2), status: 200, at: []string{pub2 + ":443"}},
		{id: "P72", records: chain(8, pub2), status: 200, at: []string{pub2 + ":443"}},
		{id: "P72", records: chain(9, pub2), status: 502, reason: "resolve_failed"},
		{id: "P72", records: chain(2, "CNAME c1.test."), status: 502, reason: "resolve_failed"},
		{id: "P72", records: answer("CNAME allowed.test."), status: 502, reason: "resolve_failed"},
		{id: "P72", records: answer("CNAME a.test.", "CNAME b.test."), status: 502, reason: "resolve_failed"},
		{id: "P76", records: answer(guardPublic), status: 403, reason: "infra_address"},
		{id: "P76", records: answer("10.99.0.1"), status: 403, reason: "infra_address"},
		{id: "P77", records: answer(strings.TrimSuffix(resolverAt, ":53")), status: 403, reason: "infra_address"},
		{id: "P77", records: answer(planeAt), status: 403, reason: "infra_address"},
		{id: "P77", records: answer(pub, planeAt), status: 403, reason: "infra_address"},
		{id: "P78", records: answer(azure), status: 403, reason: "answer_not_public"},
		{id: "P79 NXDOMAIN", script: code(dns.RcodeNameError), status: 502, reason: "resolve_failed"},
		{id: "P79 SERVFAIL", script: code(dns.RcodeServerFailure), status: 502, reason: "resolve_failed"},
		{id: "P79 REFUSED", script: code(dns.RcodeRefused), status: 502, reason: "resolve_failed"},
		{id: "P79 empty", records: answer(), status: 502, reason: "resolve_failed"},
		{id: "P79 one family fails", script: onlyFor(dns.TypeAAAA, code(dns.RcodeServerFailure)), status: 502, reason: "resolve_failed"},
		{id: "P80", script: truncated, status: 200, at: []string{pub + ":443"},
			asked: []string{"A allowed.test.", "A allowed.test./tcp", "AAAA allowed.test.", "AAAA allowed.test./tcp"}},
		{id: "P80 cut short by TCP too", script: func(w dns.ResponseWriter, q *dns.Msg) bool {
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			w.WriteMsg(m)
			return true
		}, status: 502, reason: "resolve_failed", asked: []string{"A allowed.test.", "AAAA allowed.test."}},
		{id: "P80 forged by TCP", script: func(w dns.ResponseWriter, q *dns.Msg) bool {
			if w.RemoteAddr().Network() == "udp" {
				return truncated(w, q)
			}
			m := new(dns.Msg).SetReply(q)
			m.Id++
			m.Answer = []dns.RR{a("allowed.test.", pub2)}
			w.WriteMsg(m)
			return true
		}, status: 502, reason: "resolve_failed", asked: []string{"A allowed.test.", "AAAA allowed.test."}},
		{id: "P81 wrong id", script: before(func(m *dns.Msg) { m.Id++ }), status: 200, at: []string{pub + ":443"}},
		{id: "P81 wrong question", script: before(func(m *dns.Msg) { m.Question[0].Name = "other.test." }), status: 200, at: []string{pub + ":443"}},
		{id: "P81 wrong type", script: before(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT }), status: 200, at: []string{pub + ":443"}},
		{id: "P81 two questions", script: before(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), status: 200, at: []string{pub + ":443"}},
		{id: "P81 no response", script: before(func(m *dns.Msg) { m.Response = false }), status: 200, at: []string{pub + ":443"}},
		{id: "P81 an empty message", script: func(w dns.ResponseWriter, _ *dns.Msg) bool { w.Write(nil); return false }, status: 200, at: []string{pub + ":443"}},
		{id: "P81 extra owner", script: with(a("other.test.", pub2)), status: 200, at: []string{pub + ":443"}},
		{id: "P81 only another owner", records: answer(), script: with(a("other.test.", pub2)), status: 502, reason: "resolve_failed"},
		{id: "P81 other class", records: answer(), script: with(&dns.A{Hdr: dns.RR_Header{Name: "allowed.test.", Rrtype: dns.TypeA, Class: dns.ClassCHAOS}, A: netip.MustParseAddr(pub2).AsSlice()}),
			status: 502, reason: "resolve_failed"},
		{id: "P81 other case", script: with(a("ALLOWED.test.", private)), status: 403, reason: "answer_not_public"},
		{id: "P82", script: with(&dns.HTTPS{SVCB: dns.SVCB{Hdr: header("allowed.test.", dns.TypeHTTPS), Priority: 1, Target: ".",
			Value: []dns.SVCBKeyValue{&dns.SVCBIPv4Hint{Hint: []net.IP{netip.MustParseAddr(private).AsSlice()}}}}}), status: 200, at: []string{pub + ":443"}},
		{id: "P85", records: answer(dead, pub2), status: 200, at: []string{pub2 + ":443"}},
		{id: "P85 all dead", records: answer(dead), status: 502, reason: "upstream_failed"},
		{id: "P86", records: answer(many...), status: 403, reason: "answer_not_public"},
		{id: "P86 32", records: answer(many[:32]...), status: 200, at: []string{many[0] + ":443"}},
	} {
		t.Run(c.id, func(t *testing.T) {
			internet.fresh(c.records, c.script)
			seen := len(guarded.log.lines(t))
			conn := guarded.dial(t)
			conn.send(connect("allowed.test:443"))
			if got := conn.status(); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
			if c.status == 200 {
				conn.echoes("ping")
			}
			conn.Close()
			if took := internet.ledger(t); !slices.Equal(took, c.at) {
				t.Errorf("%q accepted, want %q", took, c.at)
			}
			if c.asked == nil {
				c.asked = bothAsked
			}
			asked := internet.questions(len(c.asked))
			if strings.HasPrefix(c.id, "P80 ") { // whichever was cut short first was asked again
				asked = slices.DeleteFunc(asked, func(q string) bool { return strings.HasSuffix(q, "/tcp") })
			}
			if !slices.Equal(asked, c.asked) {
				t.Errorf("the resolver heard %q, want %q", asked, c.asked)
			}
			l := guarded.log.await(t, func(l guard.Line) bool { return l.Seq > int64(seen) && l.Kind == guard.KindDecision })
			if string(l.Reason) != c.reason || l.DNSMillis == nil {
				t.Errorf("the log says %+v, want %q", l, c.reason)
			}
			if c.status == 403 && len(l.Checked) > 0 {
				t.Errorf("a socket was made for %q", l.Checked)
			}
		})
	}
}

func name(prefix string, i int) string { return prefix + string(rune('0'+i)) + ".test." }

func a(owner, address string) dns.RR {
	return &dns.A{Hdr: header(owner, dns.TypeA), A: netip.MustParseAddr(address).AsSlice()}
}

func code(rcode int) func(dns.ResponseWriter, *dns.Msg) bool {
	return func(w dns.ResponseWriter, q *dns.Msg) bool {
		w.WriteMsg(new(dns.Msg).SetRcode(q, rcode))
		return true
	}
}

func onlyFor(qtype uint16, script func(dns.ResponseWriter, *dns.Msg) bool) func(dns.ResponseWriter, *dns.Msg) bool {
	return func(w dns.ResponseWriter, q *dns.Msg) bool { return q.Question[0].Qtype == qtype && script(w, q) }
}

// truncated sends what does not fit by TCP only.
func truncated(w dns.ResponseWriter, q *dns.Msg) bool {
	if w.RemoteAddr().Network() == "tcp" {
		return false
	}
	m := new(dns.Msg).SetReply(q)
	m.Truncated = true
	w.WriteMsg(m)
	return true
}

// before sends a forged message with a private address ahead of the true one.
func before(forge func(*dns.Msg)) func(dns.ResponseWriter, *dns.Msg) bool {
	return func(w dns.ResponseWriter, q *dns.Msg) bool {
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{a("allowed.test.", private)}
		forge(m)
		w.WriteMsg(m)
		return false
	}
}

// with adds a record to the true answer.
func with(extra dns.RR) func(dns.ResponseWriter, *dns.Msg) bool {
	return func(w dns.ResponseWriter, q *dns.Msg) bool {
		m := internet.reply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, extra)
		}
		w.WriteMsg(m)
		return true
	}
}

// P85: the dead address was a socket that was checked, too.
func TestDeadAddressesAreTriedInOrder(t *testing.T) {
	guarded := serve(t, func(o *guard.Options) {
		o.Config.Allow = []guard.Entry{{Host: "allowed.test", Ports: []int64{9}}} // nothing listens
	})
	internet.fresh(map[string][]string{"allowed.test.": {pub, pub2}}, nil)
	conn := guarded.dial(t)
	conn.send(connect("allowed.test:9"))
	if got := conn.status(); got != 502 {
		t.Errorf("status %d, want 502", got)
	}
	l := guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindDecision })
	if l.Reason != policy.ReasonUpstreamFailed || !slices.Equal(l.Checked, []string{pub, pub2}) {
		t.Errorf("the log says %+v", l)
	}
}

// P79, D20: a resolver that is not there, or says nothing. The clock is the
// test's, so the wait costs nothing.
func TestASilentResolverIsNotWaitedForLong(t *testing.T) {
	clock := newFakeClock()
	guarded := serve(t, func(o *guard.Options) { o.Clock = clock })
	heard := make(chan struct{}, 2)
	internet.fresh(nil, func(dns.ResponseWriter, *dns.Msg) bool { heard <- struct{}{}; return true })
	conn := guarded.dial(t)
	conn.send(connect("allowed.test:443"))
	<-heard
	<-heard
	clock.advance(5 * time.Second)
	if got := conn.status(); got != 504 {
		t.Errorf("status %d, want 504", got)
	}
	nobody := serve(t, func(o *guard.Options) { o.Config.Resolver = "45.33.32.54:53" })
	conn = nobody.dial(t)
	conn.send(connect("allowed.test:443"))
	if got := conn.status(); got != 504 {
		t.Errorf("status %d, want 504", got)
	}
	if took := internet.ledger(t); len(took) != 0 {
		t.Errorf("%q accepted", took)
	}
}

// A request that waits for the resolver does not outlive the guard or the lease.
func TestARequestOnItsWayIsInterrupted(t *testing.T) {
	heard := make(chan struct{}, 2)
	silent := func(dns.ResponseWriter, *dns.Msg) bool { heard <- struct{}{}; return true }
	for _, c := range []struct {
		name   string
		end    func(*served, *fakeClock)
		reason policy.Reason
		status int
	}{
		{"the lease ends", func(_ *served, clock *fakeClock) { clock.advance(2 * time.Second) }, policy.ReasonExpired, 403},
		{"the guard ends", func(s *served, _ *fakeClock) { s.stop(); <-s.done }, policy.ReasonLimit, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newFakeClock()
			guarded := serve(t, func(o *guard.Options) {
				o.Clock = clock
				o.Config.ExpiresAt = "2026-11-30T12:00:02.000Z"
			})
			internet.fresh(nil, silent)
			conn := guarded.dial(t)
			conn.send(connect("allowed.test:443"))
			<-heard
			<-heard
			c.end(guarded, clock)
			if got := conn.status(); got != c.status && got != 0 {
				t.Errorf("status %d, want %d", got, c.status)
			}
			l := guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindDecision })
			if l.Decision != guard.Deny || l.Reason != c.reason {
				t.Errorf("the log says %+v", l)
			}
		})
	}
}

// P73, R12, R04, R01: every connection is judged by what the resolver says then.
func TestEveryConnectionIsJudgedAnew(t *testing.T) {
	guarded := serve(t, nil)
	internet.fresh(nil, nil)
	for _, step := range []struct {
		id, target string
		records    []string
		status     int
	}{
		{"P73 first", "allowed.test:443", []string{pub}, 200},
		{"P73 rebound, R12", "allowed.test:443", []string{private}, 403},
		{"R04", "allowed2.test:443", []string{pub2}, 200},
		{"R01", "10.77.0.10:80", nil, 403},
		{"P73 back", "allowed.test:443", []string{pub}, 200},
	} {
		internet.mu.Lock()
		host, _, _ := strings.Cut(step.target, ":")
		internet.records[host+"."] = step.records
		internet.mu.Unlock()
		conn := guarded.dial(t)
		conn.send(connect(step.target))
		if got := conn.status(); got != step.status {
			t.Errorf("%s: status %d, want %d", step.id, got, step.status)
		}
		if step.status == 200 {
			conn.echoes("ping")
		}
		conn.Close()
	}
	if took := internet.ledger(t); !slices.Equal(took, []string{pub + ":443", pub2 + ":443", pub + ":443"}) {
		t.Errorf("%q accepted", took)
	}
	if asked := internet.questions(8); len(asked) != 8 {
		t.Errorf("the resolver heard %q, want one A and one AAAA for each connection", asked)
	}
}

// P74: a resolver that says something else each time is asked once.
func TestOneResolutionForEachConnection(t *testing.T) {
	guarded := serve(t, nil)
	n := 0
	internet.fresh(nil, func(w dns.ResponseWriter, q *dns.Msg) bool {
		if q.Question[0].Qtype != dns.TypeA {
			return false
		}
		n++
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{a("allowed.test.", []string{pub, private}[min(n-1, 1)])}
		w.WriteMsg(m)
		return true
	})
	conn := guarded.dial(t)
	conn.send(connect("allowed.test:443"))
	if got := conn.status(); got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	conn.echoes("ping")
	if took := internet.ledger(t); !slices.Equal(took, []string{pub + ":443"}) {
		t.Errorf("%q accepted", took)
	}
	if asked := internet.questions(2); !slices.Equal(asked, bothAsked) {
		t.Errorf("the resolver heard %q", asked)
	}
}

// P88, P90 and each step taken out: the case that finds it. With the step in
// its place the same case is refused.
func TestEachStepIsNeeded(t *testing.T) {
	smuggle := func(s *guard.Steps) { // an address that nobody judged
		s.Pin = func(context.Context, string, []netip.Addr) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(private)}, nil
		}
	}
	again := func(resolve func(context.Context, string) ([]netip.Addr, error)) func(*guard.Steps) {
		return func(s *guard.Steps) {
			real := s.Resolve
			s.Pin = func(ctx context.Context, host string, _ []netip.Addr) ([]netip.Addr, error) { return real(ctx, host) }
			_ = resolve
		}
	}
	noSocket := func(s *guard.Steps) {
		s.Socket = func(string, netip.AddrPort, netip.AddrPort) error { return nil }
		s.Peer = func(string, netip.AddrPort, netip.AddrPort, netip.AddrPort) error { return nil }
	}
	flips := func() func(dns.ResponseWriter, *dns.Msg) bool {
		n := 0
		return func(w dns.ResponseWriter, q *dns.Msg) bool {
			if q.Question[0].Qtype != dns.TypeA {
				return false
			}
			n++
			m := new(dns.Msg).SetReply(q)
			m.Answer = []dns.RR{a("allowed.test.", []string{pub, private}[min(n-1, 1)])}
			w.WriteMsg(m)
			return true
		}
	}
	for _, c := range []struct {
		name    string
		records []string
		script  func() func(dns.ResponseWriter, *dns.Msg) bool
		target  string
		alter   []func(*guard.Steps)
		status  int
		reason  policy.Reason
		at      []string
	}{
		{name: "P88: the socket's check stops what was smuggled in", alter: []func(*guard.Steps){smuggle}, status: 403, reason: policy.ReasonConnectNotPublic},
		{name: "P88: the peer's check, with the socket's gone", alter: []func(*guard.Steps){smuggle, func(s *guard.Steps) {
			s.Socket = func(string, netip.AddrPort, netip.AddrPort) error { return nil }
		}}, status: 403, reason: policy.ReasonConnectNotPublic, at: []string{private + ":443"}},
		{name: "P88: mutant without both", alter: []func(*guard.Steps){smuggle, noSocket}, status: 200, at: []string{private + ":443"}},
		{name: "P90: the peer is another", alter: []func(*guard.Steps){func(s *guard.Steps) {
			real := s.Peer
			s.Peer = func(host string, chosen, local, _ netip.AddrPort) error {
				return real(host, chosen, local, netip.MustParseAddrPort("45.33.32.99:443"))
			}
		}}, status: 403, reason: policy.ReasonConnectNotPublic, at: []string{pub + ":443"}},
		{name: "P76: the peer is this machine", alter: []func(*guard.Steps){func(s *guard.Steps) {
			real := s.Peer
			s.Peer = func(host string, chosen, _, remote netip.AddrPort) error {
				return real(host, chosen, chosen, remote)
			}
		}}, status: 403, reason: policy.ReasonInfraAddress, at: []string{pub + ":443"}},
		{name: "P03: mutant without a classifier", records: []string{private}, alter: []func(*guard.Steps){noSocket, func(s *guard.Steps) {
			s.Admit = func(string, []netip.Addr) error { return nil }
		}}, status: 200, at: []string{private + ":443"}},
		{name: "P68: mutant that judges the first answer", records: []string{pub, private}, alter: []func(*guard.Steps){func(s *guard.Steps) {
			real := s.Admit
			s.Admit = func(host string, all []netip.Addr) error { return real(host, all[:1]) }
		}}, status: 200, at: []string{pub + ":443"}},
		{name: "P74: mutant that asks again, caught at the socket", script: flips, alter: []func(*guard.Steps){again(nil)}, status: 403, reason: policy.ReasonConnectNotPublic},
		{name: "P74: mutant that asks again, without the socket's check", script: flips, alter: []func(*guard.Steps){again(nil), noSocket}, status: 200, at: []string{private + ":443"}},
		{name: "E03: mutant that matches suffixes", target: "sub.allowed.test:443", records: nil, alter: []func(*guard.Steps){func(s *guard.Steps) {
			real := s.Match
			s.Match = func(t policy.Target) (string, error) { t.Host = "allowed.test"; return real(t) }
		}}, status: 502, reason: policy.ReasonResolveFailed},
		{name: "E02: mutant that ignores the port", target: "allowed.test:8443", alter: []func(*guard.Steps){func(s *guard.Steps) {
			real := s.Match
			s.Match = func(t policy.Target) (string, error) { t.Port = 443; return real(t) }
		}}, status: 200, at: []string{pub + ":8443"}},
		{name: "P79: mutant that fails open", script: func() func(dns.ResponseWriter, *dns.Msg) bool { return code(dns.RcodeServerFailure) },
			alter: []func(*guard.Steps){func(s *guard.Steps) {
				s.Resolve = func(context.Context, string) ([]netip.Addr, error) {
					return []netip.Addr{netip.MustParseAddr(pub)}, nil
				}
			}}, status: 200, at: []string{pub + ":443"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			guarded := serve(t, func(o *guard.Options) {
				o.Alter = func(s *guard.Steps) {
					for _, alter := range c.alter {
						alter(s)
					}
				}
			})
			records := map[string][]string{}
			if c.records != nil {
				records["allowed.test."] = c.records
			}
			var script func(dns.ResponseWriter, *dns.Msg) bool
			if c.script != nil {
				script = c.script()
			}
			internet.fresh(records, script)
			target := c.target
			if target == "" {
				target = "allowed.test:443"
			}
			conn := guarded.dial(t)
			conn.send(connect(target))
			if got := conn.status(); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
			if c.status == 200 {
				conn.echoes("ping")
			}
			conn.Close()
			if took := internet.ledger(t); !slices.Equal(took, c.at) {
				t.Errorf("%q accepted, want %q", took, c.at)
			}
			l := guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindDecision })
			if l.Reason != c.reason {
				t.Errorf("the log says %+v, want %q", l, c.reason)
			}
			if l.Decision == guard.Deny {
				for i, a := range c.at {
					if got := internet.taken(i); got != "" {
						t.Errorf("%s got %q", a, got)
					}
				}
			}
		})
	}
}

package matrix

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

var unique = netip.MustParseAddr("fd00:77::10")

// answerCases are those about what a resolver says and when.
func answerCases() []Case {
	one := func(id, title string, facts []Fact, run func(*trial, string) error, lives ...netip.Addr) Case {
		host := caseHost(id)
		return Case{ID: id, Title: title, Facts: facts, hosts: []string{host}, live: live(lives...), run: func(t *trial) error { return run(t, host) }}
	}
	p := []Fact{Address}
	return []Case{
		one("P68", "one address is public and one private", p, func(t *trial, host string) error {
			return t.refusedAnswers(host, policy.ReasonAnswerNotPublic, []netip.Addr{public.Addr(), private}, []netip.Addr{private, public.Addr()})
		}, private),
		one("P69", "the IPv4 address is public, the IPv6 address is not", p, func(t *trial, host string) error {
			return t.refusedAnswers(host, policy.ReasonAnswerNotPublic, []netip.Addr{public.Addr(), unique}, []netip.Addr{private, lab.PublicAddr6})
		}, unique, private),
		one("P70", "an alias of a private name", p, func(t *trial, host string) error {
			t.lab.Resolver.Script(host, lab.Alias("inner.test", private))
			return t.resolves(host, policy.ReasonAnswerNotPublic, 403)
		}, private),
		one("P71", "an alias of a public name that is not listed", []Fact{Address, Exact}, func(t *trial, host string) error {
			t.lab.Resolver.Script(host, lab.Alias("unlisted.test", otherAddr))
			return t.passes(host+":443", netip.AddrPortFrom(otherAddr, 443))
		}),
		one("P72", "aliases in a circle, and too many", p, aliases),
		one("P73", "public at first, private when asked again", p, rebind, private),
		one("P74", "the resolver changes its mind within one request", p, flip, private),
		one("P75", "a private address with nobody there", p, func(t *trial, _ string) error { return deadTwin(t) }),
		one("P76", "the guard's own address", p, func(t *trial, host string) error {
			return t.refusedAnswers(host, policy.ReasonInfraAddress, []netip.Addr{lab.GuardAddr}, []netip.Addr{lab.GuardAddr6})
		}, lab.GuardAddr, lab.GuardAddr6),
		one("P77", "the address of the resolver, the plane, the relay", []Fact{Address, Authority}, func(t *trial, host string) error {
			return t.refusedAnswers(host, policy.ReasonInfraAddress,
				[]netip.Addr{lab.ResolverAddr.Addr()}, []netip.Addr{infraAddr}, []netip.Addr{lab.PlaneAddr}, []netip.Addr{lab.RelayAddr})
		}, lab.ResolverAddr.Addr(), infraAddr),
		one("P79", "no answer", []Fact{Address, Default}, noAnswer),
		one("P80", "an answer too long for a datagram", p, truncated),
		one("P81", "answers to another question", p, forged),
		one("P82", "an HTTPS record hints at a private address", p, hint, private),
		one("P85", "the first public address is dead", p, secondAddress),
		one("P86", "more than 32 answers", p, func(t *trial, host string) error {
			var many []netip.Addr
			for i := range 33 {
				many = append(many, netip.AddrFrom4([4]byte{45, 33, 33, byte(i)}))
			}
			return t.refusedAnswers(host, policy.ReasonAnswerNotPublic, many)
		}),
		one("P87", "an origin that speaks Multipath TCP", p, multipath),
	}
}

func aliases(t *trial, host string) error {
	t.scripts(host, func(_ lab.Query, m *dns.Msg) []*dns.Msg {
		m.Answer = append(m.Answer, lab.AliasRecord(host, "round.test"), lab.AliasRecord("round.test", host))
		return []*dns.Msg{m}
	})
	if err := t.resolves(host, policy.ReasonResolveFailed, 502); err != nil {
		return named("circle", err)
	}
	t.scripts(host, func(_ lab.Query, m *dns.Msg) []*dns.Msg {
		from := host
		for i := range 9 {
			to := fmt.Sprintf("hop%d.test", i)
			m.Answer = append(m.Answer, lab.AliasRecord(from, to))
			from = to
		}
		m.Answer = append(m.Answer, lab.Record(from, public.Addr()))
		return []*dns.Msg{m}
	})
	return named("nine in a row", t.resolves(host, policy.ReasonResolveFailed, 502))
}

// flips answers with the first address, and with the second from then on.
func (t *trial) flips(host string) {
	t.scripts(host, func(q lab.Query, m *dns.Msg) []*dns.Msg {
		a := public.Addr()
		if q.Nth > 0 {
			a = private
		}
		return lab.Addresses(a)(q, m)
	})
}

func rebind(t *trial, host string) error {
	t.flips(host)
	if err := t.passes(host+":443", public); err != nil {
		return named("first", err)
	}
	return named("second", t.resolves(host, policy.ReasonAnswerNotPublic, 403))
}

func flip(t *trial, host string) error {
	t.flips(host)
	return t.passes(host+":443", public)
}

func noAnswer(t *trial, host string) error {
	for _, c := range []struct {
		name   string
		answer lab.Answer
		status int
	}{
		{"NXDOMAIN", lab.Code(dns.RcodeNameError), 502}, {"SERVFAIL", lab.Code(dns.RcodeServerFailure), 502},
		{"REFUSED", lab.Code(dns.RcodeRefused), 502}, {"empty", lab.Addresses(), 502},
		{"silence", func(lab.Query, *dns.Msg) []*dns.Msg { return nil }, 504},
	} {
		t.lab.Resolver.Script(host, c.answer)
		err := t.request(connectHead(host+":443"), want{
			status: []int{c.status}, reason: policy.ReasonResolveFailed, asked: []string{host}, partly: c.status == 502,
		}, nil)
		if err != nil {
			return named(c.name, err)
		}
	}
	return nil
}

func truncated(t *trial, host string) error {
	t.scripts(host, func(q lab.Query, m *dns.Msg) []*dns.Msg {
		if q.Network == lab.UDP {
			m.Truncated = true
			return []*dns.Msg{m}
		}
		return lab.Addresses(public.Addr())(q, m)
	})
	return t.request(connectHead(host+":443"), want{
		status: []int{200}, accepts: at(public), questions: []string{host + " A", host + " A", host + " AAAA", host + " AAAA"},
	}, func(c *client) error { return c.greets(host) })
}

func forged(t *trial, host string) error {
	for name, forge := range map[string]func(m *dns.Msg){
		"another id":       func(m *dns.Msg) { m.Id++ },
		"another question": func(m *dns.Msg) { m.Question[0].Name = "other.test." },
		"another type":     func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT },
		"no answer at all": func(m *dns.Msg) { m.Response = false },
	} {
		t.scripts(host, func(q lab.Query, m *dns.Msg) []*dns.Msg {
			wrong := m.Copy()
			lab.Addresses(otherAddr)(q, wrong)
			forge(wrong)
			return append([]*dns.Msg{wrong}, lab.Addresses(public.Addr())(q, m)...)
		})
		if err := t.passes(host+":443", public); err != nil {
			return named(name, err)
		}
	}
	t.scripts(host, func(q lab.Query, m *dns.Msg) []*dns.Msg {
		q.Name = "other.test"
		return lab.Addresses(otherAddr)(q, m)
	})
	return named("another owner", t.resolves(host, policy.ReasonResolveFailed, 502))
}

func hint(t *trial, host string) error {
	t.scripts(host, func(q lab.Query, m *dns.Msg) []*dns.Msg {
		m.Answer = append(m.Answer, &dns.HTTPS{SVCB: dns.SVCB{
			Hdr:      dns.RR_Header{Name: dns.Fqdn(host), Rrtype: dns.TypeHTTPS, Class: dns.ClassINET},
			Priority: 1, Target: ".", Value: []dns.SVCBKeyValue{&dns.SVCBIPv4Hint{Hint: []net.IP{private.AsSlice()}}},
		}})
		return lab.Addresses(public.Addr())(q, m)
	})
	return t.passes(host+":443", public)
}

func secondAddress(t *trial, host string) error {
	t.answers(host, lab.DeadAddr, public.Addr())
	mark := t.guard.log.mark()
	err := t.request(connectHead(host+":443"), want{
		status: []int{200}, accepts: at(public), order: live(lab.DeadAddr), asked: []string{host},
	}, func(c *client) error { return c.greets(host) })
	if err != nil {
		return err
	}
	for _, l := range t.guard.log.since(mark) {
		if expected := []string{lab.DeadAddr.String(), public.Addr().String()}; !slices.Equal(l.Checked, expected) {
			return fmt.Errorf("log: expected checks of %v, got %v", expected, l.Checked)
		}
	}
	return nil
}

// multipath holds that the guard offers an origin no second path. The control is
// a client in the same namespace that does.
func multipath(t *trial, host string) error {
	seen := func(f func() error) (bool, error) {
		s, err := t.watch(f)
		if err != nil {
			return false, err
		}
		for flow := range s.flows {
			if flow.Multipath {
				return true, nil
			}
		}
		return false, nil
	}
	if control, err := seen(func() error { return t.dialMultipath(public) }); err != nil || !control {
		return errors.Join(err, blind(fmt.Errorf("the control offered no second path: %v", control)))
	}
	t.answers(host, public.Addr())
	offered, err := seen(func() error { return t.passes(host+":443", public) })
	if err == nil && offered {
		err = errors.New("a second path was offered")
	}
	return err
}

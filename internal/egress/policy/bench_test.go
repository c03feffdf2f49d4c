package policy_test

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// path is what one admitted CONNECT asks of this package.
type path struct {
	list   policy.List
	ours   policy.Infrastructure
	target policy.Target
	v4, v6 netip.Addr
}

func newPath(tb testing.TB) path {
	tb.Helper()
	var destinations []sandbox.Destination
	for i := range sandbox.MaxDestinations {
		destinations = append(destinations, sandbox.Destination{Host: "host" + strconv.Itoa(i) + ".allowed.test", Port: 443})
	}
	list, err := policy.Compile(destinations, []string{"plane.test"})
	if err != nil {
		tb.Fatal(err)
	}
	ours, err := policy.NewInfrastructure(addresses("45.33.32.53", "10.99.0.2"))
	if err != nil {
		tb.Fatal(err)
	}
	target, err := policy.ParseTarget("host512.allowed.test:443")
	if err != nil {
		tb.Fatal(err)
	}
	return path{list, ours, target, netip.MustParseAddr("45.33.32.10"), netip.MustParseAddr("2a00:1450:4001:10::10")}
}

// What is admitted costs no allocation, so that a flood of it costs no collector.
func TestTheAdmittedPathDoesNotAllocate(t *testing.T) {
	p := newPath(t)
	answers := []netip.Addr{p.v4, p.v6}
	if n := testing.AllocsPerRun(100, func() {
		target, err := policy.ParseTarget(p.target.Raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.list.Match(target); err != nil {
			t.Fatal(err)
		}
		if p.ours.Answers(answers) != nil || p.ours.Connect(p.v4) != nil || !policy.Public(p.v6) {
			t.Fatal("not admitted")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkParseTarget(b *testing.B) {
	for _, c := range []struct{ name, raw string }{
		{"admitted", "api.allowed.test:443"}, {"folded", "API.Allowed.test:443"}, {"longest", longName + ":65535"},
		{"literal", "45.33.32.11:443"}, {"syntax", "allowed.test:0443"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				policy.ParseTarget(c.raw)
			}
		})
	}
}

func BenchmarkMatch(b *testing.B) {
	p := newPath(b)
	other := policy.Target{Host: "other.test", Port: 443}
	for _, c := range []struct {
		name   string
		target policy.Target
	}{{"listed", p.target}, {"unlisted", other}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.list.Match(c.target)
			}
		})
	}
}

func BenchmarkPublic(b *testing.B) {
	p := newPath(b)
	for _, c := range []struct {
		name    string
		address netip.Addr
	}{{"v4", p.v4}, {"v6", p.v6}, {"private", netip.MustParseAddr("192.168.1.1")}, {"multicast", netip.MustParseAddr("ff02::1")}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				policy.Public(c.address)
			}
		})
	}
	b.Run("special", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			policy.Special(p.v6)
		}
	})
	b.Run("answers", func(b *testing.B) {
		answers := []netip.Addr{p.v4, p.v6}
		b.ReportAllocs()
		for b.Loop() {
			p.ours.Answers(answers)
		}
	})
}

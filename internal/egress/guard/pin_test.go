package guard_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// A host that is pinned is reached where its pin says and nowhere else, and no
// other host gains by it: not at its address, not at its port. The mutants are
// guards that are wrong about it, and the rows that name them say who finds them.
func TestAPinIsOfOneHost(t *testing.T) {
	pins := []guard.Pin{{Host: "allowed.test", Prefixes: []string{"10.77.0.0/28", "fd00:77::/64", "45.33.32.20/32"}}}
	judgedAs := func(pinned string) func(*guard.Steps) { // whoever asks
		return func(s *guard.Steps) {
			admit, socket, peer := s.Admit, s.Socket, s.Peer
			s.Admit = func(_ string, all []netip.Addr) error { return admit(pinned, all) }
			s.Socket = func(_ string, chosen, actual netip.AddrPort) error { return socket(pinned, chosen, actual) }
			s.Peer = func(_ string, chosen, local, remote netip.AddrPort) error { return peer(pinned, chosen, local, remote) }
		}
	}
	trusting := func(s *guard.Steps) { // a pinned host is whatever it says
		admit, socket, peer := s.Admit, s.Socket, s.Peer
		s.Admit = func(host string, all []netip.Addr) error {
			if host == "allowed.test" {
				return nil
			}
			return admit(host, all)
		}
		s.Socket = func(host string, chosen, actual netip.AddrPort) error {
			if host == "allowed.test" {
				return nil
			}
			return socket(host, chosen, actual)
		}
		s.Peer = func(host string, chosen, local, remote netip.AddrPort) error {
			if host == "allowed.test" {
				return nil
			}
			return peer(host, chosen, local, remote)
		}
	}
	inside := private
	for _, c := range []struct {
		name    string
		target  string
		answers []string
		alter   func(*guard.Steps)
		status  int
		reason  policy.Reason
		at      []string
	}{
		{name: "inside its pin", target: "allowed.test:443", answers: []string{inside}, status: 200, at: []string{inside + ":443"}},
		{name: "inside its pin, mapped", target: "allowed.test:443", answers: []string{"::ffff:" + inside}, status: 200, at: []string{inside + ":443"}},
		{name: "inside its pin by IPv6", target: "allowed.test:443", answers: []string{unique}, status: 200, at: []string{"[" + unique + "]:443"}},
		{name: "a public address of its pin", target: "allowed.test:443", answers: []string{pub2}, status: 200, at: []string{pub2 + ":443"}},
		{name: "beside its pin", target: "allowed.test:443", answers: []string{"10.77.0.16"}, status: 403, reason: policy.ReasonAnswerNotPinned},
		{name: "one inside and one beside", target: "allowed.test:443", answers: []string{inside, "10.77.0.16"}, status: 403, reason: policy.ReasonAnswerNotPinned},
		{name: "a public address beside its pin", target: "allowed.test:443", answers: []string{pub}, status: 403, reason: policy.ReasonAnswerNotPinned},
		{name: "a metadata service", target: "allowed.test:443", answers: []string{metadata}, status: 403, reason: policy.ReasonAnswerNotPinned},
		{name: "an address of ours", target: "allowed.test:443", answers: []string{planeAt}, status: 403, reason: policy.ReasonInfraAddress},
		{name: "no address", target: "allowed.test:443", status: 502, reason: policy.ReasonResolveFailed},
		{name: "another port", target: "allowed.test:8443", answers: []string{inside}, status: 403, reason: policy.ReasonPortNotAllowlisted},
		{name: "another host at its address", target: "allowed2.test:443", answers: []string{inside}, status: 403, reason: policy.ReasonAnswerNotPublic},
		{name: "another host as ever", target: "allowed2.test:443", answers: []string{pub}, status: 200, at: []string{pub + ":443"}},
		{name: "a host that is not listed", target: "other.test:443", answers: []string{inside}, status: 403, reason: policy.ReasonNotAllowlisted},

		{name: "mutant that gives every host the pin", target: "allowed2.test:443", answers: []string{inside}, alter: judgedAs("allowed.test"), status: 200, at: []string{inside + ":443"}},
		{name: "mutant that knows no pin", target: "allowed.test:443", answers: []string{inside}, alter: judgedAs("allowed2.test"), status: 403, reason: policy.ReasonAnswerNotPublic},
		{name: "mutant that believes a pinned host", target: "allowed.test:443", answers: []string{"10.77.0.16"}, alter: trusting, status: 200, at: []string{"10.77.0.16:443"}},
		{name: "mutant that judges answers alone by no pin", target: "allowed.test:443", answers: []string{"10.77.0.16"}, alter: func(s *guard.Steps) {
			s.Admit = func(string, []netip.Addr) error { return nil }
		}, status: 403, reason: policy.ReasonConnectNotPublic},
	} {
		t.Run(c.name, func(t *testing.T) {
			guarded := serve(t, func(o *guard.Options) { o.Config.Pins, o.Alter = pins, c.alter })
			target, err := policy.ParseTarget(c.target)
			if err != nil {
				t.Fatal(err)
			}
			internet.fresh(map[string][]string{target.Host + ".": c.answers}, nil)
			conn := guarded.dial(t)
			conn.send(connect(c.target))
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
			if l.Reason != c.reason || l.Pinned != (target.Host == "allowed.test" && target.Port == 443) {
				t.Errorf("the log says %+v, want %q", l, c.reason)
			}
			if start := guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindStart }); len(start.Pins) != 1 || start.Pins[0].Host != pins[0].Host || !slices.Equal(start.Pins[0].Prefixes, pins[0].Prefixes) {
				t.Errorf("the log begins with the pins %v", start.Pins)
			}
		})
	}
}

// No guard starts on a pin of what is not listed, or of what nobody may pin.
func TestAPinIsRefused(t *testing.T) {
	for _, c := range []struct {
		host, prefix, field string
	}{
		{"allowed.test", "10.0.0.0/8", ""},
		{"other.test", "10.0.0.0/8", "pins[0].host"},
		{"allowed.test", "10.0.0.1", "pins[0].prefixes[0]"},
		{"allowed.test", "127.0.0.0/8", "pins[0].prefixes[0]"},
		{"allowed.test", "169.254.169.254/32", "pins[0].prefixes[0]"},
	} {
		made := config()
		made.Pins = []guard.Pin{{Host: c.host, Prefixes: []string{c.prefix}}}
		data, err := made.Encode()
		if c.field != "" {
			if got := field(err); got != c.field {
				t.Errorf("%+v: %v, want a refusal of %q", c, err, c.field)
			}
			continue
		}
		if again, err := guard.ParseConfig(data); err != nil || len(again.Pins) != 1 {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func field(err error) string {
	if bad, ok := errors.AsType[*sandbox.Invalid](err); ok {
		return bad.Field
	}
	return ""
}

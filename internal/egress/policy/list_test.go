package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

func TestAListAdmitsExactlyWhatItNames(t *testing.T) {
	list, err := policy.Compile([]sandbox.Destination{
		{Host: "allowed.test", Port: 443},
		{Host: "allowed.test", Port: 5432},
		{Host: "allowed2.test", Port: 8443, Mode: "tls"},
		{Host: "opaque.test", Port: 443, Mode: "opaque"},
		{Host: "deep.allowed3.test", Port: 443},
		{Host: "localhost", Port: 1},
	}, []string{"plane.test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id, target string
		mode       string // "" is refused
		reason     policy.Reason
	}{
		{"E01", "allowed.test:443", "tls", ""},
		{"E01", "allowed.test:5432", "opaque", ""},
		{"E01", "allowed2.test:8443", "tls", ""},
		{"E06", "ALLOWED.test:443", "tls", ""},
		{"E51", "opaque.test:443", "opaque", ""},
		{"", "localhost:1", "opaque", ""},
		{"E02", "allowed.test:8443", "", policy.ReasonPortNotAllowlisted},
		{"E02", "allowed.test:44", "", policy.ReasonPortNotAllowlisted},
		{"E02", "allowed2.test:443", "", policy.ReasonPortNotAllowlisted},
		{"E03", "sub.allowed.test:443", "", policy.ReasonNotAllowlisted},
		{"E04", "evilallowed.test:443", "", policy.ReasonNotAllowlisted},
		{"E04", "llowed.test:443", "", policy.ReasonNotAllowlisted},
		{"E05", "allowed.test.evil.test:443", "", policy.ReasonNotAllowlisted},
		{"E05", "allowed.testx:443", "", policy.ReasonNotAllowlisted},
		{"E13", "xn--llowed-fuf.test:443", "", policy.ReasonNotAllowlisted},
		{"", "allowed3.test:443", "", policy.ReasonNotAllowlisted}, // the parent of a listed host
		{"", "test:443", "", policy.ReasonNotAllowlisted},
		{"", "plane.test:443", "", policy.ReasonNotAllowlisted},
	} {
		target, err := policy.ParseTarget(c.target)
		if err != nil {
			t.Fatal(err)
		}
		mode, err := list.Match(target)
		if mode != c.mode || (err == nil) != (c.reason == "") || err != nil && !errors.Is(err, c.reason) {
			t.Errorf("%s %s: got %q, %v; expected %q %s", c.id, c.target, mode, err, c.mode, c.reason)
		}
		if refusal := (*policy.Refusal)(nil); errors.As(err, &refusal) && refusal.Status != policy.StatusPolicy {
			t.Errorf("%s %s: status %d", c.id, c.target, refusal.Status)
		}
	}
	// Match does not fold: only what ParseTarget made is a target.
	if mode, err := list.Match(policy.Target{Host: "ALLOWED.test", Port: 443}); err == nil {
		t.Errorf("a host that was not folded has mode %q", mode)
	}
}

// D17: and so does a List that nobody compiled.
func TestAnEmptyListDeniesAll(t *testing.T) {
	empty, err := policy.Compile([]sandbox.Destination{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string]policy.List{"empty": empty, "zero": {}} {
		for _, target := range []policy.Target{{Host: "allowed.test", Port: 443}, {Host: "localhost", Port: 80}, {}} {
			if mode, err := list.Match(target); mode != "" || !errors.Is(err, policy.ReasonNotAllowlisted) {
				t.Errorf("%s: %+v: %q, %v", name, target, mode, err)
			}
		}
	}
}

// E32, A04, D18: a guard does not start on these.
func TestAListThatCannotBeMeantIsRefused(t *testing.T) {
	listed := func(host string, port int64) sandbox.Destination {
		return sandbox.Destination{Host: host, Port: port}
	}
	good := listed("allowed.test", 443)
	many := make([]sandbox.Destination, sandbox.MaxDestinations+1)
	for i := range many {
		many[i] = listed(fmt.Sprintf("host%d.test", i), 443)
	}
	if _, err := policy.Compile(many[1:], nil); err != nil {
		t.Errorf("%d destinations: %v", len(many)-1, err)
	}
	for _, c := range []struct {
		name         string
		destinations []sandbox.Destination
		reserved     []string
		field        string
	}{
		{"absent", nil, nil, "destinations"},
		{"too many", many, nil, "destinations"},
		{"wildcard", []sandbox.Destination{listed("*.allowed.test", 443)}, nil, "destinations[0].host"},
		{"any host", []sandbox.Destination{listed("*", 443)}, nil, "destinations[0].host"},
		{"leading dot", []sandbox.Destination{listed(".allowed.test", 443)}, nil, "destinations[0].host"},
		{"trailing dot", []sandbox.Destination{listed("allowed.test.", 443)}, nil, "destinations[0].host"},
		{"upper case", []sandbox.Destination{listed("Allowed.test", 443)}, nil, "destinations[0].host"},
		{"not ASCII", []sandbox.Destination{listed("\u00e4llowed.test", 443)}, nil, "destinations[0].host"},
		{"with a port", []sandbox.Destination{listed("allowed.test:443", 443)}, nil, "destinations[0].host"},
		{"empty host", []sandbox.Destination{listed("", 443)}, nil, "destinations[0].host"},
		{"IPv4", []sandbox.Destination{good, listed("45.33.32.10", 443)}, nil, "destinations[1].host"},
		{"short IPv4", []sandbox.Destination{good, listed("45.2171915", 443)}, nil, "destinations[1].host"},
		{"hex IPv4", []sandbox.Destination{good, listed("0x2d21200b", 443)}, nil, "destinations[1].host"},
		{"IPv6", []sandbox.Destination{good, listed("2a00:1450:4001:10::10", 443)}, nil, "destinations[1].host"},
		{"bracketed IPv6", []sandbox.Destination{good, listed("[::1]", 443)}, nil, "destinations[1].host"},
		{"port 0", []sandbox.Destination{good, listed("allowed2.test", 0)}, nil, "destinations[1].port"},
		{"negative port", []sandbox.Destination{listed("allowed.test", -65093)}, nil, "destinations[0].port"},
		{"port 65979", []sandbox.Destination{listed("allowed.test", 65979)}, nil, "destinations[0].port"},
		{"unknown mode", []sandbox.Destination{{Host: "allowed.test", Port: 443, Mode: "TLS"}}, nil, "destinations[0].mode"},
		{"twice", []sandbox.Destination{good, listed("other.test", 443), good}, nil, "destinations[2]"},
		{"twice with two modes", []sandbox.Destination{good, {Host: "allowed.test", Port: 443, Mode: "opaque"}}, nil, "destinations[1]"},
		{"the plane", []sandbox.Destination{good, listed("plane.test", 8443)}, []string{"other.test", "plane.test"}, "destinations[1].host"},
		{"a reserved host that reserves nothing", []sandbox.Destination{good}, []string{"plane.test", "Plane.test"}, "reserved_hosts[1]"},
		{"a reserved address", []sandbox.Destination{good}, []string{"10.0.0.1"}, "reserved_hosts[0]"},
		{"an empty reserved host", []sandbox.Destination{good}, []string{""}, "reserved_hosts[0]"},
		{"a long entry", []sandbox.Destination{listed(strings.Repeat("a", 100_000), 443)}, nil, "destinations[0].host"},
	} {
		list, err := policy.Compile(c.destinations, c.reserved)
		var bad *sandbox.Invalid
		if !errors.As(err, &bad) || bad.Field != c.field || bad.Expected == "" || len(bad.Got) > 210 {
			t.Errorf("%s: got %v, expected an error about %s", c.name, err, c.field)
		}
		if _, err := list.Match(policy.Target{Host: "allowed.test", Port: 443}); err == nil {
			t.Errorf("%s: what came with the error admits", c.name)
		}
	}
}

func TestTheModeIsWrittenOut(t *testing.T) {
	for d, want := range map[sandbox.Destination]string{
		{Port: 443}:                 policy.ModeTLS,
		{Port: 443, Mode: "opaque"}: policy.ModeOpaque,
		{Port: 80}:                  policy.ModeOpaque,
		{Port: 80, Mode: "tls"}:     policy.ModeTLS,
	} {
		if got := policy.ModeOf(d); got != want {
			t.Errorf("%+v: %s, expected %s", d, got, want)
		}
	}
}

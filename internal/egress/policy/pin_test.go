package policy_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// What may be pinned: blocks that a network of one's own is numbered from, and
// public ones; never one at which a machine meets itself or its cloud.
func TestPinnable(t *testing.T) {
	for text, good := range map[string]bool{
		"10.0.0.0/8": true, "10.1.2.3/32": true, "172.16.0.0/12": true, "192.168.1.0/24": true, "100.64.1.0/24": true, "198.18.0.0/15": true,
		"203.0.113.80/32": true, "192.0.2.0/24": true, "45.33.32.0/24": true, "fd00:1::/64": true, "2001:db8::/32": true, "2a00:1450::/32": true,
		"fc00::/8": true, "9.255.255.255/32": true,

		"0.0.0.0/0": false, "::/0": false, "0.0.0.0/8": false, "127.0.0.1/32": false, "127.0.0.0/8": false, "::1/128": false,
		"169.254.0.0/16": false, "169.254.169.254/32": false, "fe80::/10": false, "224.0.0.0/4": false, "239.1.1.1/32": false, "ff02::1/128": false,
		"240.0.0.0/4": false, "255.255.255.255/32": false, "192.0.0.0/24": false, "192.0.0.192/32": false, "168.63.129.16/32": false, "168.63.0.0/16": false,
		"100.100.100.200/32": false, "100.64.0.0/10": false, "fd00:ec2::254/128": false, "fd00::/8": false, "fc00::/7": false, "fd20:ce::254/128": false,
		"::ffff:10.0.0.0/104": false, "64:ff9b::/96": false, "2002::/16": false, "2001::/23": false, "8.0.0.0/5": false, "10.0.0.0/7": false,
		"10.0.0.1/8": false, "4000::/8": false,
	} {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := policy.Pinnable(p); (got == "") != good {
			t.Errorf("%s: %q, want pinnable %v", text, got, good)
		}
	}
	if policy.Pinnable(netip.Prefix{}) == "" {
		t.Error("no prefix is one")
	}
}

func TestCompilePins(t *testing.T) {
	list, err := policy.Compile([]sandbox.Destination{{Host: "a.test", Port: 443}, {Host: "b.test", Port: 443}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for field, pins := range map[string][]policy.Pin{
		"":                    {{Host: "a.test", Prefixes: ten}, {Host: "b.test", Prefixes: ten}},
		"pins":                make([]policy.Pin, policy.MaxPins+1),
		"pins[0].host":        {{Host: "c.test", Prefixes: ten}},
		"pins[1].host":        {{Host: "a.test", Prefixes: ten}, {Host: "a.test", Prefixes: ten}},
		"pins[0].prefixes":    {{Host: "a.test"}},
		"pins[0].prefixes[0]": {{Host: "a.test", Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
	} {
		_, err := policy.CompilePins(pins, list)
		bad, _ := errors.AsType[*sandbox.Invalid](err)
		if field == "" && err != nil || field != "" && (bad == nil || bad.Field != field) {
			t.Errorf("%v, want a refusal of %q", err, field)
		}
	}
}

// FuzzPinnable holds that no address at which anybody meets itself, its link or its
// cloud is ever inside a pin.
func FuzzPinnable(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "fd00::/8", "169.254.0.0/16", "::ffff:0.0.0.0/96", "2000::/3"} {
		p := netip.MustParsePrefix(s)
		f.Add(p.Addr().AsSlice(), uint8(p.Bits()))
	}
	never := addresses("127.0.0.1", "0.0.0.0", "::1", "::", "169.254.169.254", "224.0.0.1", "255.255.255.255", "fe80::1", "ff02::1", "168.63.129.16",
		"100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "192.0.0.192", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::")
	f.Fuzz(func(t *testing.T, data []byte, bits uint8) {
		a, ok := netip.AddrFromSlice(data)
		if !ok {
			return
		}
		p, err := a.Prefix(int(bits))
		if err != nil || policy.Pinnable(p) != "" {
			return
		}
		for _, a := range append(never, p.Addr()) {
			row, special := policy.Special(a)
			if p.Contains(a) && (special && row.Case != "P03" && row.Case != "P04" && row.Case != "P07" && row.Case != "P15" && row.Case != "P20" &&
				row.Case != "P22" && row.Case != "P23" && row.Case != "P24" && row.Case != "P46" && row.Case != "P49" && row.Case != "P51" || a != p.Addr()) {
				t.Fatalf("%s may be pinned, with %s in it (%s)", p, a, row.Name)
			}
		}
	})
}

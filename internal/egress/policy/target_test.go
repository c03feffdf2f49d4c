package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

var longName = strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 61) // 253 bytes

// The cases of the matrix that the grammar decides alone.
func TestATargetHasOneSpelling(t *testing.T) {
	for _, c := range []struct {
		id, raw string
		reason  policy.Reason // "" is admitted
		status  int
	}{
		{"E01", "allowed.test:443", "", 0},
		{"E02", "allowed.test:8443", "", 0},
		{"E06", "ALLOWED.test:443", "", 0},
		{"E07", "allowed.test.:443", policy.ReasonHostSyntax, 403},
		{"E08", ".allowed.test:443", policy.ReasonHostSyntax, 400},
		{"E08", "allowed..test:443", policy.ReasonHostSyntax, 400},
		{"E08", "allowed.test..:443", policy.ReasonHostSyntax, 400},
		{"E08", ".:443", policy.ReasonHostSyntax, 400},
		{"E09", "allowed\u3002test:443", policy.ReasonHostSyntax, 400},
		{"E09", "allowed\uff0etest:443", policy.ReasonHostSyntax, 400},
		{"E09", "allowed\uff61test:443", policy.ReasonHostSyntax, 400},
		{"E10", "\uff41llowed.test:443", policy.ReasonHostSyntax, 400},
		{"E10", "\u212aelvin.test:443", policy.ReasonHostSyntax, 400}, // the Kelvin sign folds to k
		{"E10", "\xe1llowed.test:443", policy.ReasonHostSyntax, 400},
		{"E11", "al\u00adlowed.test:443", policy.ReasonHostSyntax, 400},
		{"E11", "al\u200dlowed.test:443", policy.ReasonHostSyntax, 400},
		{"E12", "\u2460\u2461\u2466.0.0.1:443", policy.ReasonHostSyntax, 400},
		{"E13", "xn--llowed-fuf.test:443", "", 0},
		{"E14", "xn--fa-hia.de:443", "", 0},
		{"E15", "allowed%2etest:443", policy.ReasonHostSyntax, 400},
		{"E15", "allowed.test%00:443", policy.ReasonHostSyntax, 400},
		{"E15", "allowed.test:44%33", policy.ReasonHostSyntax, 400},
		{"E16", "other.test\x00.allowed.test:443", policy.ReasonHostSyntax, 400},
		{"E17", "allowed.test@other.test:443", policy.ReasonHostSyntax, 400},
		{"E18", "x@allowed.test:443", policy.ReasonHostSyntax, 400},
		{"E18", "x:y@allowed.test:443", policy.ReasonPortSyntax, 400},
		{"E19", "[allowed.test]:443", policy.ReasonHostSyntax, 400},
		{"E19", "[allowed.test:443", policy.ReasonHostSyntax, 400},
		{"E19", "allowed.test]:443", policy.ReasonHostSyntax, 400},
		{"E19", "[127.0.0.1]:443", policy.ReasonHostSyntax, 400},
		{"E19", "[]:443", policy.ReasonHostSyntax, 400},
		{"E20", "allowed.test:443/x", policy.ReasonPortSyntax, 400},
		{"E20", "allowed.test:443?x", policy.ReasonPortSyntax, 400},
		{"E20", "allowed.test:443#x", policy.ReasonPortSyntax, 400},
		{"E20", "allowed.test/:443", policy.ReasonHostSyntax, 400},
		{"E20", "http://allowed.test:443", policy.ReasonPortSyntax, 400},
		{"E21", "allowed.test", policy.ReasonPortSyntax, 400},
		{"E21", "allowed.test:", policy.ReasonPortSyntax, 400},
		{"E21", ":443", policy.ReasonHostSyntax, 400},
		{"E21", "", policy.ReasonPortSyntax, 400},
		{"E21", ":", policy.ReasonHostSyntax, 400},
		{"E22", "allowed.test:0", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test:00443", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test:0443", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test:+443", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test:-443", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test:4_43", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test:0x1bb", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test:https", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test: 443", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test:443 ", policy.ReasonPortSyntax, 400},
		{"E22", "allowed.test:\u0664\u0664\u0663", policy.ReasonPortSyntax, 400},
		{"E23", "allowed.test:65535", "", 0},
		{"E23", "allowed.test:65536", policy.ReasonPortSyntax, 400},
		{"E23", "allowed.test:65979", policy.ReasonPortSyntax, 400},
		{"E23", "allowed.test:4294967739", policy.ReasonPortSyntax, 400},
		{"E23", "allowed.test:18446744073709552059", policy.ReasonPortSyntax, 400},
		{"E24", "allowed.test:443:443", policy.ReasonPortSyntax, 400},
		{"E25", "45.33.32.11:443", policy.ReasonLiteral, 403},
		{"E27", "[2a00:1450:4001:10::10]:443", policy.ReasonLiteral, 403},
		{"E27", "[::ffff:127.0.0.1]:443", policy.ReasonLiteral, 403},
		{"E27", "[2a00:1450:4001:10::10]", policy.ReasonPortSyntax, 400},
		{"E27", "[2a00:1450:4001:10::10]443", policy.ReasonPortSyntax, 400},
		{"E27", "[2a00:1450:4001:10::10].:443", policy.ReasonPortSyntax, 400},
		{"E27", "2a00:1450:4001:10::10:443", policy.ReasonPortSyntax, 400},
		{"E28", "757145611:443", policy.ReasonLiteral, 403},
		{"E28", "0x2d21200b:443", policy.ReasonLiteral, 403},
		{"E28", "0X2D21200B:443", policy.ReasonLiteral, 403},
		{"E28", "055.041.040.013:443", policy.ReasonLiteral, 403},
		{"E28", "45.2171915:443", policy.ReasonLiteral, 403},
		{"E28", "allowed.test.0x7f:443", policy.ReasonLiteral, 403},
		{"E28", "127.1:443", policy.ReasonLiteral, 403},
		{"E28", "127.0.0.1.:443", policy.ReasonHostSyntax, 403},
		{"E29", "[fe80::1%25eth0]:443", policy.ReasonHostSyntax, 400},
		{"E29", "[fe80::1%eth0]:443", policy.ReasonHostSyntax, 400},
		{"E30", "[::ffff:1.2.3.4%x.allowed.test]:443", policy.ReasonHostSyntax, 400},
		{"E31", strings.Repeat("a", 63) + ".test:443", "", 0},
		{"E31", strings.Repeat("a", 64) + ".test:443", policy.ReasonHostSyntax, 400},
		{"E31", longName + ":443", "", 0},
		{"E31", longName + "b:443", policy.ReasonHostSyntax, 400},
		{"E32", "*.allowed.test:443", policy.ReasonHostSyntax, 400},
		{"E32", "*:443", policy.ReasonHostSyntax, 400},
		{"", "allowed_.test:443", policy.ReasonHostSyntax, 400},
		{"", " allowed.test:443", policy.ReasonHostSyntax, 400},
		{"", "allowed.test\x7f:443", policy.ReasonHostSyntax, 400},
		{"", "-allowed.test:443", policy.ReasonHostSyntax, 400},
		{"", "allowed-.test:443", policy.ReasonHostSyntax, 400},
		{"", "allowed.test:443\r\nHost: x", policy.ReasonPortSyntax, 400},
		{"", "allowed.test\\:443", policy.ReasonHostSyntax, 400},
		{"", "localhost:443", "", 0}, // a name like any other: it must be listed
	} {
		got, err := policy.ParseTarget(c.raw)
		var refusal *policy.Refusal
		if c.reason == "" {
			host, _, _ := strings.Cut(strings.ToLower(c.raw), ":")
			if err != nil || got.Host != host || got.Raw != c.raw {
				t.Errorf("%s %q: got %+v, %v", c.id, c.raw, got, err)
			}
			continue
		}
		if !errors.As(err, &refusal) || got != (policy.Target{}) {
			t.Errorf("%s %q: got %+v, %v", c.id, c.raw, got, err)
			continue
		}
		if refusal.Reason != c.reason || refusal.Status != c.status || !errors.Is(err, c.reason) {
			t.Errorf("%s %q: expected %s %d, got %d %v", c.id, c.raw, c.reason, c.status, refusal.Status, err)
		}
	}
}

// B33: every way to write an address as numbers: one to four parts, each in
// decimal, octal or hex, plain or padded. None is a name.
func TestNoSpellingOfAnAddressIsAName(t *testing.T) {
	bases := []string{"%d", "0%o", "000%o", "0x%x", "0X%X", "0x%08x", "%03d"}
	tried := 0
	for _, address := range [][4]uint32{{127, 0, 0, 1}, {169, 254, 169, 254}, {10, 77, 0, 10}, {45, 33, 32, 11}} {
		a, b, c, d := address[0], address[1], address[2], address[3]
		for _, parts := range [][]uint32{{a<<24 | b<<16 | c<<8 | d}, {a, b<<16 | c<<8 | d}, {a, b, c<<8 | d}, {a, b, c, d}} {
			for first := range bases {
				for rest := range bases {
					var text []string
					for i, n := range parts {
						base := bases[rest]
						if i == 0 {
							base = bases[first]
						}
						text = append(text, fmt.Sprintf(base, n))
					}
					raw := strings.Join(text, ".") + ":443"
					if target, err := policy.ParseTarget(raw); !errors.Is(err, policy.ReasonLiteral) {
						t.Errorf("%s: got %+v, %v", raw, target, err)
					}
					tried++
				}
			}
		}
	}
	if tried != 4*4*7*7 {
		t.Errorf("%d spellings tried", tried)
	}
	// What is a name, but not the listed one.
	list, err := policy.Compile([]sandbox.Destination{{Host: "allowed.test", Port: 443}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{"allowed.test.:443", "allowed.test%00:443", "xn--allowed-9xa.test:443", "xn--alowed-1db.test:443", "aLLowed.tesT.:443", "[fe80::1%25lo]:443", "[::ffff:127.0.0.1]:443"} {
		target, err := policy.ParseTarget(raw)
		if err == nil {
			_, err = list.Match(target)
		}
		if refusal := (*policy.Refusal)(nil); !errors.As(err, &refusal) {
			t.Errorf("%s: got %v", raw, err)
		}
	}
}

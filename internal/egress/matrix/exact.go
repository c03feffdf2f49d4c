package matrix

import (
	"fmt"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// denials are targets that are refused before anybody is asked about them.
var denials = []struct {
	id, title string
	facts     []Fact
	status    int
	reason    policy.Reason
	targets   []string
}{
	{"E02", "a listed host at a port that is not listed", []Fact{Exact}, 403, policy.ReasonPortNotAllowlisted, []string{"allowed.test:8443"}},
	{"E03", "a name below a listed one", []Fact{Exact}, 403, policy.ReasonNotAllowlisted, []string{"sub.allowed.test:443"}},
	{"E04", "a name that ends like a listed one", []Fact{Exact}, 403, policy.ReasonNotAllowlisted, []string{"evilallowed.test:443"}},
	{"E05", "a name that begins like a listed one", []Fact{Exact}, 403, policy.ReasonNotAllowlisted, []string{"allowed.test.evil.test:443"}},
	{"E07", "a dot at the end", []Fact{Exact}, 403, policy.ReasonHostSyntax, []string{"allowed.test.:443"}},
	{"E08", "an empty label", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{".allowed.test:443", "allowed..test:443"}},
	{"E09", "an ideographic full stop", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{"allowed\u3002test:443"}},
	{"E10", "a fullwidth letter", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{"\uff41llowed.test:443"}},
	{"E11", "a soft hyphen", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{"allo\u00adwed.test:443"}},
	{"E12", "an address in circled digits", []Fact{Exact, Address}, 400, policy.ReasonHostSyntax, []string{"\u2460\u2461\u2466.0.0.1:443"}},
	{"E13", "a homograph in its ASCII form", []Fact{Exact}, 403, policy.ReasonNotAllowlisted, []string{"xn--llowed-4nf.test:443"}},
	{"E15", "a percent escape", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{"allowed%2etest:443"}},
	{"E16", "a NUL before a listed name", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{"other.test\x00.allowed.test:443"}},
	{"E17", "a listed name as user information", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{"allowed.test@other.test:443"}},
	{"E18", "user information before a listed name", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{"x@allowed.test:443"}},
	{"E19", "a name in brackets", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{"[allowed.test]:443"}},
	{"E20", "a path, a query or a fragment", []Fact{Exact}, 400, policy.ReasonPortSyntax, []string{"allowed.test:443/x", "allowed.test:443?x", "allowed.test:443#x"}},
	{"E21", "no port", []Fact{Exact}, 400, policy.ReasonPortSyntax, []string{"allowed.test", "allowed.test:"}},
	{"E22", "a port in another spelling", []Fact{Exact}, 400, policy.ReasonPortSyntax, []string{"allowed.test:0", "allowed.test:0443", "allowed.test:+443", "allowed.test:https"}},
	{"E23", "a port that is 443 in 16 bits", []Fact{Exact}, 400, policy.ReasonPortSyntax, []string{"allowed.test:65979"}},
	{"E24", "two ports", []Fact{Exact}, 400, "", []string{"allowed.test:443:443"}},
	{"E25", "an address", []Fact{Exact}, 403, policy.ReasonLiteral, []string{"45.33.32.11:443"}},
	{"E26", "the address of a listed host", []Fact{Exact}, 403, policy.ReasonLiteral, []string{"45.33.32.10:443"}},
	{"E27", "an IPv6 address", []Fact{Exact}, 403, policy.ReasonLiteral, []string{"[2a00:1450:4001:10::10]:443"}},
	{"E28", "an address in another spelling", []Fact{Exact, Address}, 403, policy.ReasonLiteral, []string{"757145611:443", "0x2d21200b:443", "055.041.040.013:443", "45.2171915:443"}},
	{"E29", "an address with an escaped zone", []Fact{Exact, Address}, 400, "", []string{"[fe80::1%25eth0]:443"}},
	{"E30", "a listed name as a zone", []Fact{Exact}, 400, "", []string{"[::ffff:1.2.3.4%x.allowed.test]:443"}},
	{"E31", "a label or a name that is too long", []Fact{Exact}, 400, policy.ReasonHostSyntax, []string{
		strings.Repeat("a", 64) + ".allowed.test:443", strings.Repeat("a.", 127) + "allowed.test:443"}},
}

// exactCases are those whose target itself decides.
func exactCases() []Case {
	cases := []Case{
		{ID: "E01", Title: "a listed host and port", Facts: []Fact{Exact}, run: func(t *trial) error { return t.passes("allowed.test:443", public) }},
		{ID: "E06", Title: "a listed host in capitals", Facts: []Fact{Exact}, run: folded},
		{ID: "E14", Title: "a listed name in its ASCII form", Facts: []Fact{Exact}, hosts: []string{"xn--fa-hia.de"}, run: func(t *trial) error {
			t.answers("xn--fa-hia.de", public.Addr())
			return t.passes("xn--fa-hia.de:443", public)
		}},
	}
	for _, d := range denials {
		cases = append(cases, Case{ID: d.id, Title: d.title, Facts: d.facts, run: func(t *trial) error {
			for _, target := range d.targets {
				// What is refused here is refused without its meaning: a
				// Host header would be wrong too.
				err := t.request("CONNECT "+target+" HTTP/1.1\r\n\r\n", want{status: []int{d.status}, reason: d.reason, anyReason: d.reason == ""}, nil)
				if err != nil {
					return named(target, err)
				}
			}
			return nil
		}})
	}
	return cases
}

// folded holds that the log has the target both as it came and as it was judged.
func folded(t *trial) error {
	mark := t.guard.log.mark()
	if err := t.passes("ALLOWED.test:443", public); err != nil {
		return err
	}
	for _, l := range t.guard.log.since(mark) {
		if l.Raw != "ALLOWED.test:443" || l.Host != allowed {
			return fmt.Errorf("log: expected ALLOWED.test:443 and %s, got %s and %s", allowed, l.Raw, l.Host)
		}
	}
	return nil
}

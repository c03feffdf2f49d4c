package matrix

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// inside are the addresses that stand for a row where its second one would be
// one of another row, or where others say more.
var inside = map[string][]string{
	"P03": {"10.77.0.10"},
	"P06": {"169.254.169.254"},
	"P08": {"192.0.0.100"},
	"P25": {"240.0.0.1", "255.255.255.254"},
	"P27": {"224.0.0.1", "239.255.255.250"},
	"P30": {"::ffff:10.77.0.10"},
	"P31": {"64:ff9b::a4d:a", "64:ff9b::2d21:200a"},
	"P35": {"2001:100::1"},
	"P47": {"2002:a4d:a::1"},
	"P51": {"fd00:77::10", "fc00::1"},
	"P53": {"200::1", "4000::1", "fec0::1", "ff02::1"},
}

// neighbours are the addresses beside the rows, which must be let through.
var neighbours = []string{
	"9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0",
	"198.17.255.255", "198.20.0.0", "223.255.255.255", "2001:200::", "3fff:1000::", "2606:4700:4700::1111",
}

// rowAddresses are what stands for a row.
func rowAddresses(row policy.Row) []netip.Addr {
	var out []netip.Addr
	for _, text := range inside[row.Case] {
		out = append(out, netip.MustParseAddr(text))
	}
	if out == nil {
		for _, p := range row.Prefixes() {
			out = append(out, lab.Inside(p))
		}
	}
	return out
}

func live(addresses ...netip.Addr) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range addresses {
		out = append(out, netip.AddrPortFrom(a, 443))
	}
	return out
}

// caseHost is the name that a case has on the list.
func caseHost(id string) string { return strings.ToLower(id) + ".test" }

// addressCases are one for each row of the tables and one for each neighbour.
func addressCases() []Case {
	var cases []Case
	for _, row := range policy.Rows() {
		addresses, host := rowAddresses(row), caseHost(row.Case)
		cases = append(cases, Case{
			ID: row.Case, Title: fmt.Sprintf("a listed name leads to %s (%s)", addresses[0], row.Name), Facts: []Fact{Address},
			hosts: []string{host}, live: live(addresses...),
			run: func(t *trial) error {
				for _, a := range addresses {
					reason := policy.ReasonAnswerNotPublic
					if a.IsLoopback() {
						reason = policy.ReasonInfraAddress // it is the guard's own, before it is not public
					}
					t.answers(host, a)
					if err := t.resolves(host, reason, 403); err != nil {
						return named(a.String(), err)
					}
				}
				return nil
			},
		})
	}
	for i, text := range neighbours {
		id, a := fmt.Sprintf("P%d", 54+i), netip.MustParseAddr(text)
		host := caseHost(id)
		cases = append(cases, Case{
			ID: id, Title: "a listed name leads to " + text, Facts: []Fact{Address}, hosts: []string{host}, live: live(a),
			run: func(t *trial) error {
				t.answers(host, a)
				return t.passes(host+":443", netip.AddrPortFrom(a, 443))
			},
		})
	}
	return append(cases, answerCases()...)
}

// deadTwin is the twin of P01 with nobody behind the address. Its answer is the
// same, which is why answers alone prove nothing.
func deadTwin(t *trial) error {
	if err := t.lab.Live(t.ctx, netip.AddrPortFrom(lab.DeadPrivate, 443)); err == nil {
		return errors.New("the dead address is live")
	}
	// What was just sent there must not be taken for the guard's.
	if err := t.lab.Settle(t.ctx); err != nil {
		return blind(err)
	}
	t.answers("p75.test", lab.DeadPrivate)
	return t.resolves("p75.test", policy.ReasonAnswerNotPublic, 403)
}

// refusedAnswers are answers for which a request must be refused, whatever else
// is in them.
func (t *trial) refusedAnswers(host string, reason policy.Reason, answers ...[]netip.Addr) error {
	for _, addresses := range answers {
		t.answers(host, addresses...)
		if err := t.resolves(host, reason, 403); err != nil {
			return named(fmt.Sprint(addresses), err)
		}
	}
	return nil
}

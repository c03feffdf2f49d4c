package policy_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"code.dny.dev/ssrf"
	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// golden is testdata/addresses.json: the tables once more, and for each block
// its first and last address and both neighbours, for tests in any language.
type golden struct {
	Rows []struct {
		Case      string           `json:"case"`
		Prefixes  []netip.Prefix   `json:"prefixes"`
		RFC       int              `json:"rfc"`
		Reachable policy.Reachable `json:"reachable"`
	} `json:"rows"`
	Vectors []struct {
		Address netip.Addr `json:"address"`
		Public  bool       `json:"public"`
		Row     string     `json:"row"` // the case of the narrowest row, "" of a public address
		Why     string     `json:"why"`
	} `json:"vectors"`
}

func readGolden(t testing.TB) (g golden) {
	t.Helper()
	data, err := os.ReadFile("testdata/addresses.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTheRowsAreThoseOfTheRegistries(t *testing.T) {
	g, rows := readGolden(t), policy.Rows()
	if len(rows) != 54 || len(g.Rows) != len(rows) {
		t.Fatalf("%d rows, %d in the golden file; expected 54", len(rows), len(g.Rows))
	}
	for i, want := range g.Rows {
		got := rows[i]
		if got.Case != want.Case || !slices.Equal(got.Prefixes(), want.Prefixes) || got.RFC != want.RFC || got.Reachable != want.Reachable || got.Name == "" {
			t.Errorf("row %d: got %+v, expected %+v", i, got, want)
		}
		for _, p := range got.Prefixes() {
			if p != p.Masked() {
				t.Errorf("%s: %s has bits behind its length", got.Case, p)
			}
		}
	}
	// What a caller does to its copy is its own affair.
	rows[0].Prefixes()[0] = netip.Prefix{}
	rows[0] = policy.Row{}
	if policy.Public(netip.MustParseAddr("0.1.2.3")) || policy.Rows()[0].Case != "P01" {
		t.Error("the rows can be changed from outside")
	}
}

func TestEveryVectorIsJudgedAsWritten(t *testing.T) {
	for _, v := range readGolden(t).Vectors {
		row, special := policy.Special(v.Address)
		if public := policy.Public(v.Address); public != v.Public || special == v.Public || row.Case != v.Row {
			t.Errorf("%s (%s): public %v in row %q; expected %v in row %q", v.Address, v.Why, public, row.Case, v.Public, v.Row)
		}
	}
}

// The file would prove little if it missed an edge.
func TestTheVectorsHaveEveryEdge(t *testing.T) {
	why := map[netip.Addr]string{}
	public := 0
	for _, v := range readGolden(t).Vectors {
		if _, twice := why[v.Address]; twice {
			t.Errorf("%s stands twice", v.Address)
		}
		why[v.Address] = v.Why
		if v.Public {
			public++
		}
	}
	if public < 50 {
		t.Errorf("%d public vectors: they show that not all is refused", public)
	}
	for _, row := range policy.Rows() {
		for _, p := range row.Prefixes() {
			first, last := p.Addr(), lastOf(p)
			for word, a := range map[string]netip.Addr{"first of": first, "last of": last, "before": first.Prev(), "after": last.Next()} {
				if a.IsValid() && !strings.Contains(why[a], word+" "+row.Case) {
					t.Errorf("no vector says that %s is %s %s", a, word, row.Case)
				}
			}
		}
	}
	for _, id := range []string{"P54", "P55", "P56", "P57", "P58", "P59", "P60", "P61", "P62", "P63", "P64", "P65", "P66", "P67"} {
		found := false
		for _, v := range readGolden(t).Vectors {
			found = found || v.Public && slices.Contains(strings.Split(v.Why, "; "), id)
		}
		if !found {
			t.Errorf("no public vector is %s", id)
		}
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As16()
	bits := p.Bits() + 128 - p.Addr().BitLen()
	for i := bits; i < 128; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	if p.Addr().Is4() {
		return netip.AddrFrom16(b).Unmap()
	}
	return netip.AddrFrom16(b)
}

func TestOneAddressHasOneVerdict(t *testing.T) {
	for _, v := range readGolden(t).Vectors {
		a := v.Address
		if a.Is4() {
			// Whatever form an answer has, the socket goes to the same place.
			a = netip.AddrFrom16(a.As16())
			if policy.Public(a) != v.Public {
				t.Errorf("%s: mapped, public is %v", a, !v.Public)
			}
		}
		// A prefix contains no address with a zone: fe80::1%eth0 would be in no row.
		a = a.WithZone("eth0")
		if row, _ := policy.Special(a); policy.Public(a) != v.Public || row.Case != v.Row {
			t.Errorf("%s: with a zone, row %q, public %v", a, row.Case, !v.Public)
		}
	}
	if row, ok := policy.Special(netip.Addr{}); ok || policy.Public(netip.Addr{}) {
		t.Errorf("no address at all: row %q, public %v", row.Case, policy.Public(netip.Addr{}))
	}
}

// differences from the table of another author, made from the registries by a
// program: every one is by intent.
var differences = []struct {
	why  string
	only func(netip.Addr) bool
}{
	{"Azure's platform service is in no registry: we refuse it by number", func(a netip.Addr) bool {
		return a.Unmap() == netip.MustParseAddr("168.63.129.16") && !policy.Public(a)
	}},
	{"an IPv4-mapped address is IPv6 to them and outside 2000::/3; we judge the IPv4 address in it, to which a socket goes", func(a netip.Addr) bool {
		return a.Is4In6() && policy.Public(a) == policy.Public(a.Unmap())
	}},
}

// TestAnotherTableAgrees compares with every vector, and with 100,000 addresses
// of each family: a third anywhere, a third in 2000::/3 or its like, a third
// within 256 addresses of an edge of a row.
func TestAnotherTableAgrees(t *testing.T) {
	other, met := ssrf.New(ssrf.WithAnyNetwork(), ssrf.WithAnyPort()), map[string]int{}
	compare := func(a netip.Addr) {
		if policy.Public(a) == (other.SafeAddr(a) == nil) {
			return
		}
		for _, d := range differences {
			if d.only(a) {
				met[d.why]++
				return
			}
		}
		t.Errorf("%s: public here %v, there %v", a, policy.Public(a), !policy.Public(a))
	}
	var edges []netip.Addr
	for _, v := range readGolden(t).Vectors {
		compare(v.Address)
		edges = append(edges, v.Address)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 200_000 {
		var b [16]byte
		for j := range b {
			b[j] = byte(random.Uint32())
		}
		switch {
		case i%3 == 1:
			b[0] = b[0]&0x1f | 0x20
		case i%3 == 2:
			b = edges[random.IntN(len(edges))].As16()
			b[15] = byte(random.Uint32())
		}
		a := netip.AddrFrom16(b)
		if i%2 == 0 {
			a = netip.AddrFrom4([4]byte(b[12:]))
		}
		compare(a)
		if i < 10_000 && special(a) == policy.Public(a) {
			t.Errorf("%s: special and public are both %v", a, special(a))
		}
	}
	for _, d := range differences {
		if met[d.why] == 0 {
			t.Errorf("no address shows the difference %q any more", d.why)
		}
	}
}

func special(a netip.Addr) bool {
	_, ok := policy.Special(a)
	return ok
}

func TestTheNarrowestRowIsNamed(t *testing.T) {
	got := map[string]string{}
	for _, a := range []string{"192.0.0.3", "192.0.0.9", "192.0.0.100", "2001:1::3", "2001:0:1::", "2001:1ff::", "::1", "::2", "255.255.255.255", "255.255.255.254"} {
		row, _ := policy.Special(netip.MustParseAddr(a))
		got[a] = row.Case
	}
	want := map[string]string{"192.0.0.3": "P09", "192.0.0.9": "P11", "192.0.0.100": "P08", "2001:1::3": "P39", "2001:0:1::": "P36",
		"2001:1ff::": "P35", "::1": "P28", "::2": "P53", "255.255.255.255": "P26", "255.255.255.254": "P25"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

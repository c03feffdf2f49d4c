package policy

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// MaxPins is how many hosts may be pinned, and MaxPinPrefixes how many prefixes
// one pin may have; both ours.
const (
	MaxPins        = 64
	MaxPinPrefixes = 16
)

// Pin says where one listed host lives: its addresses are accepted inside the
// prefixes, also if they are not public, and nowhere else, also if they are. It
// is for the mirror of a company, which is at home in its inner network.
//
// Only whoever builds images pins, from the operator's settings: a Run's own
// allowlist has no field for it.
type Pin struct {
	Host     string         // as sandbox.Destination has it
	Prefixes []netip.Prefix // at least one, masked, disjoint from what Pinnable refuses
}

// Pins are the pins of one guard by host. The zero value pins nothing.
type Pins struct {
	hosts map[string][]netip.Prefix
}

// CompilePins makes Pins.
// Errors: a *sandbox.Invalid that names the entry, for a host that list does not
// have or that stands twice, and for a prefix that Pinnable refuses. The caller
// does not start a guard on it.
func CompilePins(pins []Pin, list List) (Pins, error) {
	if len(pins) > MaxPins {
		return Pins{}, invalid("pins", "at most "+strconv.Itoa(MaxPins), strconv.Itoa(len(pins)))
	}
	out := Pins{hosts: make(map[string][]netip.Prefix, len(pins))}
	for i, p := range pins {
		if list.hosts[p.Host] == nil {
			return Pins{}, invalid(at("pins", i)+".host", "a listed host", p.Host)
		}
		if out.hosts[p.Host] != nil {
			return Pins{}, invalid(at("pins", i)+".host", "no second pin of a host", p.Host)
		}
		if err := p.check(); err != nil {
			return Pins{}, inside(at("pins", i), err)
		}
		out.hosts[p.Host] = slices.Clone(p.Prefixes)
	}
	return out, nil
}

// Validate checks one pin by itself: the form of the host, and the prefixes.
// Errors: a *sandbox.Invalid.
func (p Pin) Validate() error {
	if err := (sandbox.Destination{Host: p.Host, Port: 443}).Validate(); err != nil {
		return err
	}
	return p.check()
}

func (p Pin) check() error {
	if len(p.Prefixes) == 0 || len(p.Prefixes) > MaxPinPrefixes {
		return invalid("prefixes", "1 to "+strconv.Itoa(MaxPinPrefixes), strconv.Itoa(len(p.Prefixes)))
	}
	for i, prefix := range p.Prefixes {
		if expected := Pinnable(prefix); expected != "" {
			return invalid(at("prefixes", i), expected, prefix.String())
		}
	}
	return nil
}

// pinnable are the rows that a network of one's own is numbered from: private
// use, shared, benchmarking, documentation, unique local.
var pinnable = map[string]bool{
	"P03": true, "P04": true, "P07": true, "P15": true, "P20": true, "P22": true,
	"P23": true, "P24": true, "P46": true, "P49": true, "P51": true,
}

// metadata are the addresses inside of pinnable rows at which a cloud gives a
// machine's credentials to whoever asks. That of most clouds, 169.254.169.254,
// is link local, and no link-local address can be pinned.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("fd00:42::42"),
}

// Pinnable says what is wrong with a prefix that cannot be pinned, "" if it can:
// it lies in one block that networks of one's own have, or is public as a whole.
// Loopback, link-local, multicast, mapped and translated addresses never can be.
func Pinnable(p netip.Prefix) string {
	if !p.IsValid() || p != p.Masked() {
		return "a prefix without host bits"
	}
	for _, a := range metadata {
		if p.Contains(a) {
			return "no metadata address (" + a.String() + ")"
		}
	}
	// Rows nest: of those that p lies in the narrowest decides, and none may lie in p.
	var in Row
	narrowest := -1
	for _, r := range rows {
		for _, q := range r.prefixes {
			switch {
			case !p.Overlaps(q):
			case q.Bits() > p.Bits():
				return "no address of " + q.String() + " (" + r.Name + ")"
			case q.Bits() > narrowest:
				in, narrowest = r, q.Bits()
			}
		}
	}
	if narrowest >= 0 && !pinnable[in.Case] {
		return "no address of " + in.Name
	}
	return ""
}

// Of reports whether host is pinned.
func (p Pins) Of(host string) bool { return p.hosts[host] != nil }

func (p Pins) contains(host string, a netip.Addr) bool {
	a = plain(a)
	for _, q := range p.hosts[host] {
		if q.Contains(a) {
			return true
		}
	}
	return false
}

// Answers judges all addresses of the answer for host together: by its pin, if it
// has one, else by ours. An address of our own machinery is in no pin's power.
// Errors: those of ours; a *Refusal with ReasonAnswerNotPinned.
func (p Pins) Answers(ours Infrastructure, host string, addresses []netip.Addr) error {
	if !p.Of(host) {
		return ours.Answers(addresses)
	}
	if err := counted(addresses); err != nil {
		return err
	}
	for _, a := range addresses {
		if ours.Contains(a) {
			return refuse(ReasonInfraAddress, StatusPolicy, "answers", "no address of ours", a.String())
		}
		if !p.contains(host, a) {
			return refuse(ReasonAnswerNotPinned, StatusPolicy, "answers", "addresses of the pin of "+host, a.String())
		}
	}
	return nil
}

// Connect judges the address that a socket for host is about to connect to, or is
// connected to, as Infrastructure.Connect does.
// Errors: a *Refusal with ReasonConnectNotPublic.
func (p Pins) Connect(ours Infrastructure, host string, a netip.Addr) error {
	if !p.Of(host) {
		return ours.Connect(a)
	}
	if ours.Contains(a) || !p.contains(host, a) {
		return refuse(ReasonConnectNotPublic, StatusPolicy, "address", "an address of the pin of "+host, a.String())
	}
	return nil
}

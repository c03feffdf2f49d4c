package policy

import (
	"net/netip"
	"slices"
)

// Reachable is what a registry says of a block's column Globally Reachable.
// It decides nothing here: a block that is reachable by every router (NAT64,
// anycast relays) still leads to an address that nobody judged.
type Reachable string

// The marks. The zero value is a block of another registry, without the column.
const (
	ReachableTrue          Reachable = "true"
	ReachableFalse         Reachable = "false"
	ReachableNotApplicable Reachable = "not_applicable" // depends on the address embedded in it
	ReachableWithdrawn     Reachable = "withdrawn"      // the assignment ended, the row stands
)

// Row is one block of addresses that are not public.
type Row struct {
	// Case is the case of the matrix that resolves a listed name into the row:
	// P01 to P53 in the order of the tables, and P78.
	Case string
	Name string
	RFC  int // the number of the document that sets it apart, 0 if none does

	Reachable Reachable

	prefixes []netip.Prefix
}

// Prefixes returns the blocks of the row, disjoint and of one family: one, but
// for what lies outside 2000::/3, which is three. The caller owns the result.
func (r Row) Prefixes() []netip.Prefix { return slices.Clone(r.prefixes) }

// Rows returns every block that is not public: the special-purpose registries
// for IPv4 and IPv6 in their order, multicast, what lies outside the global
// unicast block of IPv6, and one address that is public by its number only.
// The caller owns the result. Blocks nest: 192.0.0.9/32 lies in 192.0.0.0/29,
// and that in 192.0.0.0/24.
//
// Source: IANA "IPv4 Special-Purpose Address Registry" and "IPv6
// Special-Purpose Address Registry" (last updated 2025-10-09); RFC 6890, RFC 8190.
func Rows() []Row { return slices.Clone(rows) }

func row(id, name, prefix string, rfc int, reachable Reachable) Row {
	return Row{Case: id, Name: name, RFC: rfc, Reachable: reachable, prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}}
}

var rows = []Row{
	row("P01", "this network", "0.0.0.0/8", 791, ReachableFalse),
	row("P02", "this host on this network", "0.0.0.0/32", 1122, ReachableFalse),
	row("P03", "private use", "10.0.0.0/8", 1918, ReachableFalse),
	row("P04", "shared address space", "100.64.0.0/10", 6598, ReachableFalse),
	row("P05", "loopback", "127.0.0.0/8", 1122, ReachableFalse),
	row("P06", "link local", "169.254.0.0/16", 3927, ReachableFalse),
	row("P07", "private use", "172.16.0.0/12", 1918, ReachableFalse),
	row("P08", "IETF protocol assignments", "192.0.0.0/24", 6890, ReachableFalse),
	row("P09", "IPv4 service continuity", "192.0.0.0/29", 7335, ReachableFalse),
	row("P10", "IPv4 dummy address", "192.0.0.8/32", 7600, ReachableFalse),
	row("P11", "port control protocol anycast", "192.0.0.9/32", 7723, ReachableTrue),
	row("P12", "TURN anycast", "192.0.0.10/32", 8155, ReachableTrue),
	row("P13", "NAT64/DNS64 discovery", "192.0.0.170/32", 8880, ReachableFalse),
	row("P14", "NAT64/DNS64 discovery", "192.0.0.171/32", 8880, ReachableFalse),
	row("P15", "documentation", "192.0.2.0/24", 5737, ReachableFalse),
	row("P16", "AS112", "192.31.196.0/24", 7535, ReachableTrue),
	row("P17", "AMT", "192.52.193.0/24", 7450, ReachableTrue),
	row("P18", "6to4 relay anycast", "192.88.99.0/24", 7526, ReachableWithdrawn),
	row("P19", "6a44 relay anycast", "192.88.99.2/32", 6751, ReachableFalse),
	row("P20", "private use", "192.168.0.0/16", 1918, ReachableFalse),
	row("P21", "AS112 direct delegation", "192.175.48.0/24", 7534, ReachableTrue),
	row("P22", "benchmarking", "198.18.0.0/15", 2544, ReachableFalse),
	row("P23", "documentation", "198.51.100.0/24", 5737, ReachableFalse),
	row("P24", "documentation", "203.0.113.0/24", 5737, ReachableFalse),
	row("P25", "reserved", "240.0.0.0/4", 1112, ReachableFalse),
	row("P26", "limited broadcast", "255.255.255.255/32", 919, ReachableFalse),
	row("P27", "multicast", "224.0.0.0/4", 5771, ""),

	row("P28", "loopback", "::1/128", 4291, ReachableFalse),
	row("P29", "unspecified", "::/128", 4291, ReachableFalse),
	row("P30", "IPv4-mapped", "::ffff:0:0/96", 4291, ReachableFalse), // see Special
	row("P31", "NAT64", "64:ff9b::/96", 6052, ReachableTrue),
	row("P32", "local NAT64", "64:ff9b:1::/48", 8215, ReachableFalse),
	row("P33", "discard only", "100::/64", 6666, ReachableFalse),
	row("P34", "dummy prefix", "100:0:0:1::/64", 9780, ReachableFalse),
	row("P35", "IETF protocol assignments", "2001::/23", 2928, ReachableFalse),
	row("P36", "Teredo", "2001::/32", 4380, ReachableNotApplicable),
	row("P37", "port control protocol anycast", "2001:1::1/128", 7723, ReachableTrue),
	row("P38", "TURN anycast", "2001:1::2/128", 8155, ReachableTrue),
	row("P39", "DNS-SD registration anycast", "2001:1::3/128", 9665, ReachableTrue),
	row("P40", "benchmarking", "2001:2::/48", 5180, ReachableFalse),
	row("P41", "AMT", "2001:3::/32", 7450, ReachableTrue),
	row("P42", "AS112", "2001:4:112::/48", 7535, ReachableTrue),
	row("P43", "ORCHID, first version", "2001:10::/28", 4843, ReachableWithdrawn),
	row("P44", "ORCHID, second version", "2001:20::/28", 7343, ReachableTrue),
	row("P45", "drone remote identification", "2001:30::/28", 9374, ReachableTrue),
	row("P46", "documentation", "2001:db8::/32", 3849, ReachableFalse),
	row("P47", "6to4", "2002::/16", 3056, ReachableNotApplicable),
	row("P48", "AS112 direct delegation", "2620:4f:8000::/48", 7534, ReachableTrue),
	row("P49", "documentation", "3fff::/20", 9637, ReachableFalse),
	row("P50", "segment routing identifiers", "5f00::/16", 9602, ReachableFalse),
	row("P51", "unique local", "fc00::/7", 4193, ReachableFalse),
	row("P52", "link local", "fe80::/10", 4291, ReachableFalse),
	// IPv6 addresses are assigned to networks from 2000::/3. What lies outside is
	// unassigned or something else, and both are refused.
	{Case: "P53", Name: "outside 2000::/3", RFC: 4291, prefixes: []netip.Prefix{
		netip.MustParsePrefix("::/3"), netip.MustParsePrefix("4000::/2"), netip.MustParsePrefix("8000::/1")}},

	// A cloud's own service answers here, to whichever machine asks.
	row("P78", "Azure platform service", "168.63.129.16/32", 0, ""),
}

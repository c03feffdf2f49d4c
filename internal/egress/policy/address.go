package policy

import (
	"net/netip"
	"slices"
)

// Special returns the narrowest row that a lies in, and false if it lies in
// none. The zone is dropped first, because a prefix contains no address with a
// zone, and an IPv4-mapped address is judged as the IPv4 address that a socket
// connects to, never as its block: whoever dials must dial a.Unmap() as well.
// For a valid address it is the opposite of Public.
// Source: grading "The five facts, and the three that cannot be self-attested", connect_time_public_address.
func Special(a netip.Addr) (Row, bool) {
	a = plain(a)
	best, bits := -1, -1
	for i := range rows {
		for _, p := range rows[i].prefixes {
			if p.Bits() > bits && p.Contains(a) {
				best, bits = i, p.Bits()
			}
		}
	}
	if best < 0 {
		return Row{}, false
	}
	return rows[best], true
}

// Public reports whether a may be connected to: a valid address in no row. It
// says nothing of who owns the address.
// Source: grading "The five facts, and the three that cannot be self-attested", connect_time_public_address.
func Public(a netip.Addr) bool {
	a = plain(a)
	blocks := outer6
	if a.Is4() {
		blocks = outer4
	}
	for _, p := range blocks {
		if p.Contains(a) {
			return false
		}
	}
	return a.IsValid()
}

// plain is the one form in which an address is judged.
func plain(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

// The blocks of each family that lie in no other: of nested rows the outermost
// decides, and most of the rows are nested.
var outer4, outer6 = outermost(true), outermost(false)

func outermost(v4 bool) (blocks []netip.Prefix) {
	var all []netip.Prefix
	for _, r := range rows {
		all = append(all, r.prefixes...)
	}
	for _, p := range all {
		nested := slices.ContainsFunc(all, func(q netip.Prefix) bool { return q.Bits() < p.Bits() && q.Contains(p.Addr()) })
		if !nested && p.Addr().Is4() == v4 {
			blocks = append(blocks, p)
		}
	}
	return blocks
}

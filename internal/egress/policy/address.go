package policy

import "net/netip"

// Special returns the narrowest row that a lies in, and false if it lies in
// none. The zone is dropped first, because a prefix contains no address with a
// zone, and an IPv4-mapped address is judged as the IPv4 address that a socket
// connects to, never as its block: whoever dials must dial a.Unmap() as well.
// For an address that is valid, Special is the opposite of Public.
// Source: grading "The five facts, and the three that cannot be self-attested", connect_time_public_address.
func Special(a netip.Addr) (Row, bool) {
	a = a.WithZone("").Unmap()
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

// Public reports whether a may be connected to: a valid address in no row, and
// for IPv6 in 2000::/3. It says nothing of who owns the address.
// Source: grading "The five facts, and the three that cannot be self-attested", connect_time_public_address.
func Public(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if !a.IsValid() || a.Is6() && !global.Contains(a) {
		return false
	}
	for i := range rows {
		for _, p := range rows[i].prefixes {
			if p.Contains(a) {
				return false
			}
		}
	}
	return true
}

package policy

import (
	"net/netip"
	"strings"
)

// Target is the destination of one CONNECT, in its one spelling.
type Target struct {
	Host string // lower-case ASCII name, at most 253 bytes, no trailing dot
	Port uint16 // never 0
	Raw  string // what was asked, byte for byte, for the log
}

// ParseTarget reads the authority form of a CONNECT: a name of ASCII letters,
// digits and hyphens, a colon, a decimal port. Upper case is folded; nothing
// else is mapped, decoded, trimmed or guessed, because whatever two readers may
// read in two ways is how a filter is passed. A host that it admits is one that
// a sandbox.Destination can name, and the other way round.
//
// Errors: a *Refusal. What has no such form has StatusSyntax. StatusPolicy has
// what is well formed and never admitted: an address in any spelling
// (ReasonLiteral), and a name with a trailing dot, which is the same name to a
// resolver and another one to a certificate (ReasonHostSyntax).
// Source: grading "The five facts, and the three that cannot be self-attested", exact_destination_match.
func ParseTarget(raw string) (Target, error) {
	// Before all else: a zone may end like a listed name
	// ([::ffff:10.0.0.1%x.allowed.test]), and %2e is a dot to whoever decodes.
	if strings.IndexByte(raw, '%') >= 0 {
		return Target{}, refuse(ReasonHostSyntax, StatusSyntax, "host", "no percent sign", raw)
	}
	if strings.HasPrefix(raw, "[") {
		return Target{}, bracketed(raw)
	}
	name, digits, ok := strings.Cut(raw, ":")
	if !ok {
		return Target{}, refuse(ReasonPortSyntax, StatusSyntax, "port", "host:port", raw)
	}
	host, dotted := name, false
	if len(name) > 1 && name[len(name)-1] == '.' {
		host, dotted = name[:len(name)-1], true
	}
	if expected := nameFault(host); expected != "" {
		return Target{}, refuse(ReasonHostSyntax, StatusSyntax, "host", expected, raw)
	}
	port, ok := parsePort(digits)
	switch {
	case !ok:
		return Target{}, refuse(ReasonPortSyntax, StatusSyntax, "port", portForm, raw)
	case dotted:
		return Target{}, refuse(ReasonHostSyntax, StatusPolicy, "host", "no trailing dot", raw)
	case literal(host):
		return Target{}, refuse(ReasonLiteral, StatusPolicy, "host", "a name, no address", raw)
	}
	return Target{Host: strings.ToLower(host), Port: port, Raw: raw}, nil
}

const portForm = "a decimal port from 1 to 65535 without leading zero"

// bracketed refuses what begins with a bracket: an IPv6 address as an address,
// anything else ([allowed.test], which some unwrap) as no target.
func bracketed(raw string) *Refusal {
	inside, after, ok := strings.Cut(raw[1:], "]")
	if a, err := netip.ParseAddr(inside); !ok || err != nil || !a.Is6() {
		return refuse(ReasonHostSyntax, StatusSyntax, "host", "no brackets", raw)
	}
	digits, ok := strings.CutPrefix(after, ":")
	if _, valid := parsePort(digits); !ok || !valid {
		return refuse(ReasonPortSyntax, StatusSyntax, "port", portForm, raw)
	}
	return refuse(ReasonLiteral, StatusPolicy, "host", "a name, no address", raw)
}

// nameFault returns what a host breaks of the form of a name, "" if nothing. Its
// alphabet is what keeps out NUL, which ends a name in C; the @ of user
// information; and U+3002, fullwidth letters, soft hyphens and circled digits,
// which become dots, letters, nothing and digits wherever somebody maps them.
func nameFault(host string) string {
	if len(host) > 253 {
		return "a name of at most 253 bytes"
	}
	start := 0
	for i := 0; i <= len(host); i++ {
		if i < len(host) && host[i] != '.' {
			if c := host[i] | 0x20; (c < 'a' || c > 'z') && (host[i] < '0' || host[i] > '9') && host[i] != '-' {
				return "letters, digits, hyphens and dots"
			}
			continue
		}
		switch n := i - start; {
		case n == 0:
			return "no empty label"
		case n > 63:
			return "labels of at most 63 bytes"
		case host[start] == '-' || host[i-1] == '-':
			return "no hyphen at the end of a label"
		}
		start = i + 1
	}
	return ""
}

// literal reports whether a well-formed host may be read as an IPv4 address by
// anybody: decimal, octal, hex, short. All of them begin their last label with
// a digit, and no top-level domain does.
func literal(host string) bool {
	c := host[strings.LastIndexByte(host, '.')+1]
	return c >= '0' && c <= '9'
}

// parsePort takes one to five digits without a leading zero. A longer number
// is refused by its length: 65979 must not become 443 in sixteen bits.
func parsePort(digits string) (uint16, bool) {
	if len(digits) == 0 || len(digits) > 5 || digits[0] == '0' {
		return 0, false
	}
	n := 0
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		n = n*10 + int(digits[i]-'0')
	}
	return uint16(n), n <= 65535
}

package lab

import (
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// The names of the counters.
const (
	CountEdgeInput = "edge-input"   // packets from the workload to anything but the guard's port
	CountForward   = "edge-forward" // packets that somebody wanted carried on
	CountSpecial   = "special"      // the guard's own packets to addresses that are not public
	CountRest      = "rest"         // the guard's own packets to anything else it has no business with
)

// LoadEdge installs what makes a link between workload and guard safe: the
// workload reaches the guard's port and nothing else, and nothing is carried on,
// also not on a host that forwards. Without it GuardDoor opens no door.
// Errors: *Error.
func (l *Lab) LoadEdge() (err error) {
	guard := netip.PrefixFrom(guardEdge, 32)
	l.Edge, err = l.Guard.load("checkfu-edge",
		chain{"input", nftables.ChainHookInput, nftables.ChainPolicyAccept, []rule{
			{match: []match{from(edgeLink), to(guard), protocol(unix.IPPROTO_TCP), port(GuardPort)}, end: accept},
			{name: CountEdgeInput, match: []match{from(edgeLink)}, end: drop},
		}},
		chain{"forward", nftables.ChainHookForward, nftables.ChainPolicyDrop, []rule{
			{name: CountForward, end: drop},
		}},
	)
	return err
}

// LoadGate puts the kernel behind the guard: what the guard's namespace sends
// goes to its resolver, to its workload in answer, and to public addresses; all
// else is refused and counted. special are the addresses that are not public,
// besides everything outside 2000::/3.
// Ownership: unload it before the next one is loaded.
// Errors: *Error.
func (l *Lab) LoadGate(special []netip.Prefix) (*Gate, error) {
	rules := []rule{
		{match: []match{over(edgeLink), established()}, end: accept},
		{match: []match{over("lo"), protocol(unix.IPPROTO_TCP), reset()}, end: accept}, // of refuse, to the guard
	}
	for _, p := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		rules = append(rules, rule{match: []match{to(netip.PrefixFrom(ResolverAddr.Addr(), 32)), protocol(p), port(ResolverAddr.Port())}, end: accept})
	}
	no := func(m match) {
		rules = append(rules, rule{name: CountSpecial, match: []match{m, protocol(unix.IPPROTO_TCP)}, end: refuse})
		rules = append(rules, rule{name: CountSpecial, match: []match{m}, end: drop})
	}
	// A neighbour is asked for by multicast: without that there is no IPv6 at
	// all. 58 is ICMPv6, which a guard without raw sockets cannot send itself.
	rules = append(rules, rule{match: []match{over(upLink), protocol(unix.IPPROTO_ICMPV6)}, end: accept})
	for _, p := range special {
		no(to(p))
	}
	no(outside(netip.MustParsePrefix("2000::/3")))
	rules = append(rules,
		rule{match: []match{over(upLink), protocol(unix.IPPROTO_TCP)}, end: accept},
		rule{name: CountRest, end: drop},
	)
	return l.Guard.load("checkfu-gate", chain{"output", nftables.ChainHookOutput, nftables.ChainPolicyDrop, rules})
}

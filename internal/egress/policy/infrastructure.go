package policy

import (
	"net/netip"
	"strconv"
)

// MaxAnswers is how many addresses the answer for one name may have, and
// MaxInfrastructure how many addresses an Infrastructure may have; both ours.
const (
	MaxAnswers        = 32
	MaxInfrastructure = 4096
)

// Infrastructure is the addresses of our own machinery: those of every local
// interface, the resolver, the plane, the relay. A listed name must not lead
// to one, also if it is public by its number. The zero value names none, and
// still refuses what is not public.
type Infrastructure struct {
	addresses map[netip.Addr]bool
}

// NewInfrastructure makes the set. It does not find addresses by itself.
// Errors: a *sandbox.Invalid for the zero address, which would match nothing,
// and for more than MaxInfrastructure. The caller does not start a guard on it.
// Source: grading "The five facts, and the three that cannot be self-attested", authority_separation.
func NewInfrastructure(addresses []netip.Addr) (Infrastructure, error) {
	if len(addresses) > MaxInfrastructure {
		return Infrastructure{}, invalid("infra_addrs", "at most "+strconv.Itoa(MaxInfrastructure), strconv.Itoa(len(addresses)))
	}
	set := make(map[netip.Addr]bool, len(addresses))
	for i, a := range addresses {
		if !a.IsValid() {
			return Infrastructure{}, invalid(at("infra_addrs", i), "an address", a.String())
		}
		set[plain(a)] = true
	}
	return Infrastructure{set}, nil
}

// Contains reports whether a is of the set, whatever its zone and also mapped.
func (f Infrastructure) Contains(a netip.Addr) bool {
	return f.addresses[plain(a)]
}

// Answers judges all addresses of the answer for one name together. One that is
// not public refuses them all: a resolver that mixes them is being used.
// Errors: a *Refusal with ReasonInfraAddress, ReasonAnswerNotPublic (also for
// more than MaxAnswers), or ReasonResolveFailed with status 502 for none.
// Source: grading "The five facts, and the three that cannot be self-attested", connect_time_public_address.
func (f Infrastructure) Answers(addresses []netip.Addr) error {
	if err := counted(addresses); err != nil {
		return err
	}
	for _, a := range addresses {
		if f.Contains(a) {
			return refuse(ReasonInfraAddress, StatusPolicy, "answers", "no address of ours", a.String())
		}
		if !Public(a) {
			return refuse(ReasonAnswerNotPublic, StatusPolicy, "answers", "public addresses", a.String())
		}
	}
	return nil
}

func counted(addresses []netip.Addr) error {
	if len(addresses) == 0 {
		return refuse(ReasonResolveFailed, 502, "answers", "an address", "none")
	}
	if len(addresses) > MaxAnswers {
		return refuse(ReasonAnswerNotPublic, StatusPolicy, "answers", "at most "+strconv.Itoa(MaxAnswers), strconv.Itoa(len(addresses)))
	}
	return nil
}

// Connect judges the address that a socket is about to connect to, or is
// connected to. After Answers it can only fail if another address got in
// between, so the guard calls it where nothing can: in the dialer's hook.
// Errors: a *Refusal with ReasonConnectNotPublic.
// Source: grading "The five facts, and the three that cannot be self-attested", connect_time_public_address.
func (f Infrastructure) Connect(a netip.Addr) error {
	if f.Contains(a) || !Public(a) {
		return refuse(ReasonConnectNotPublic, StatusPolicy, "address", "a public address, none of ours", a.String())
	}
	return nil
}

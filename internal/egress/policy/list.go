package policy

import (
	"errors"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// The modes of a destination: what the guard demands of the first bytes.
const (
	ModeTLS    = "tls"    // a ClientHello that names the host
	ModeOpaque = "opaque" // nothing; the port speaks something else
)

// ModeOf returns the mode of d, the default written out: tls on port 443, else
// opaque.
// Source: design "The contract in Go".
func ModeOf(d sandbox.Destination) string {
	switch {
	case d.Mode != "":
		return d.Mode
	case d.Port == 443:
		return ModeTLS
	}
	return ModeOpaque
}

// List is the destinations of one policy revision. The zero List denies all,
// and so does a list of nothing.
type List struct {
	hosts map[string]map[uint16]string // host, port, mode
}

// Compile makes a List. An empty list of destinations is a policy that denies
// all; an absent one (nil) is no policy. reserved are hosts that must not be
// listed, the plane's, in the form of a destination's host.
//
// Errors: a *sandbox.Invalid that names the entry, for a wildcard, an address, a
// name that is not in its one spelling, port 0, a host and port that stand
// twice, a reserved host, more than sandbox.MaxDestinations entries. The caller
// does not start a guard on it.
// Source: grading "The five facts, and the three that cannot be self-attested",
// exact_destination_match and authority_separation.
func Compile(destinations []sandbox.Destination, reserved []string) (List, error) {
	if destinations == nil {
		return List{}, invalid("destinations", "a list, possibly empty", "absent")
	}
	if len(destinations) > sandbox.MaxDestinations {
		return List{}, invalid("destinations", "at most "+strconv.Itoa(sandbox.MaxDestinations), strconv.Itoa(len(destinations)))
	}
	plane := make(map[string]bool, len(reserved))
	for i, host := range reserved {
		// One that is not in the one spelling would never be equal to a listed
		// host, and so reserve nothing.
		if err := (sandbox.Destination{Host: host, Port: 443}).Validate(); err != nil {
			return List{}, invalid(at("reserved_hosts", i), "a lower-case DNS name", host)
		}
		plane[host] = true
	}
	list := List{hosts: make(map[string]map[uint16]string, len(destinations))}
	for i, d := range destinations {
		entry := at("destinations", i)
		if err := d.Validate(); err != nil {
			return List{}, inside(entry, err)
		}
		if plane[d.Host] {
			return List{}, invalid(entry+".host", "no host of the plane", d.Host)
		}
		ports := list.hosts[d.Host]
		if ports == nil {
			ports = map[uint16]string{}
			list.hosts[d.Host] = ports
		}
		// With two entries it would be open whose mode holds.
		if _, twice := ports[uint16(d.Port)]; twice {
			return List{}, invalid(entry, "no second entry for a host and port", d.Host+":"+strconv.FormatInt(d.Port, 10))
		}
		ports[uint16(d.Port)] = ModeOf(d)
	}
	return list, nil
}

// Match returns the mode of t if its host and its port are listed together,
// exactly.
// Errors: a *Refusal with ReasonNotAllowlisted or ReasonPortNotAllowlisted.
func (l List) Match(t Target) (mode string, err error) {
	ports, ok := l.hosts[t.Host]
	if !ok {
		return "", refuse(ReasonNotAllowlisted, StatusPolicy, "host", "a listed host", t.Host)
	}
	if mode, ok = ports[t.Port]; !ok {
		return "", refuse(ReasonPortNotAllowlisted, StatusPolicy, "port", "a listed port of "+t.Host, strconv.Itoa(int(t.Port)))
	}
	return mode, nil
}

func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func invalid(field, expected, got string) *sandbox.Invalid {
	const most = 200
	if len(got) > most {
		got = got[:most]
	}
	return &sandbox.Invalid{Field: field, Expected: expected, Got: got}
}

// inside names the entry in front of the field that Validate named.
func inside(entry string, err error) error {
	var bad *sandbox.Invalid
	if errors.As(err, &bad) {
		return &sandbox.Invalid{Field: entry + "." + bad.Field, Expected: bad.Expected, Got: bad.Got}
	}
	return err
}

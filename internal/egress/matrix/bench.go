package matrix

import (
	"context"
	"net/netip"
	"sync/atomic"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// Configuration says which layers stand between the workload and an address.
type Configuration string

// The three configurations. Layers hide each other's faults, so each is judged
// alone too.
const (
	GuardOnly  Configuration = "guard"  // the guard, without the kernel's gate
	KernelOnly Configuration = "kernel" // the gate, behind a guard whose classifier is gone
	Both       Configuration = "both"
)

// Configurations returns all three.
func Configurations() []Configuration { return []Configuration{GuardOnly, KernelOnly, Both} }

// Names and addresses that cases share. Every other name is of one case alone.
const (
	allowed   = "allowed.test"
	allowed2  = "allowed2.test"
	other     = "other.test" // there, and not listed
	opaque    = "opaque.test"
	planeHost = "plane.test"
)

var (
	public    = netip.AddrPortFrom(lab.PublicAddr, 443)
	public2   = netip.MustParseAddrPort("45.33.32.12:443")
	otherAddr = netip.MustParseAddr("45.33.32.11")
	private   = netip.MustParseAddr("10.77.0.10")
	infraAddr = netip.MustParseAddr("45.33.32.77")
)

// bench is one lab in one configuration, with the guard's settings.
type bench struct {
	lab           *lab.Lab
	configuration Configuration
	start         starter
	base          string // the faults that start has
	allow         []guard.Entry
	live          map[netip.AddrPort]error // what the controls said of each address
	loose         *atomic.Bool             // something was sent that nobody watched
	plane         *plane                   // who answers for models
	providers     []Provider               // that real machines are had of
	environment   map[string]string        // that a mutant lays on that of a real machine
	began         *[]*process              // where a mutant's guards are kept, for how they end
}

// trial is one case at a bench.
type trial struct {
	*bench
	ctx   context.Context
	guard *subject
}

// judged reports whether the guard's own judgement of addresses is in force.
func (b *bench) judged() bool { return b.configuration != KernelOnly }

// special is every block that the gate refuses: all that is not public, and the
// addresses of our own machinery.
func special() []netip.Prefix {
	var out []netip.Prefix
	for _, row := range policy.Rows() {
		for _, p := range row.Prefixes() {
			// A mapped address is an IPv4 one on every wire.
			if !p.Addr().Is4In6() {
				out = append(out, p)
			}
		}
	}
	for _, a := range []netip.Addr{lab.GuardAddr, lab.GuardAddr6, lab.ResolverAddr.Addr(), lab.PlaneAddr, lab.RelayAddr, infraAddr} {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// list compiles what the cases may reach by name.
func list(cases []Case) []guard.Entry {
	out := []guard.Entry{
		{Host: allowed, Ports: []int64{443}},
		{Host: allowed2, Ports: []int64{443}},
		{Host: opaque, Ports: []int64{443, 8443}, Mode: "opaque"},
	}
	for _, c := range cases {
		for _, host := range c.hosts {
			out = append(out, guard.Entry{Host: host, Ports: []int64{443}})
		}
	}
	return out
}

// script sets what the resolver says of the shared names.
func (b *bench) script() {
	for name, a := range map[string]netip.Addr{
		allowed: public.Addr(), allowed2: public2.Addr(), other: otherAddr, opaque: public.Addr(), planeHost: lab.PlaneAddr,
	} {
		b.lab.Resolver.Script(name, lab.Addresses(a))
	}
}

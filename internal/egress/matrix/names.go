package matrix

import (
	"errors"
	"net/netip"

	"github.com/miekg/dns"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/launch"
)

// answers scripts the addresses of a name.
func (t *trial) answers(name string, addresses ...netip.Addr) {
	t.lab.Resolver.Script(name, lab.Addresses(addresses...))
}

// scripts sets the whole answer of a name.
func (t *trial) scripts(name string, answer func(q lab.Query, m *dns.Msg) []*dns.Msg) {
	t.lab.Resolver.Script(name, answer)
}

func at(a ...netip.AddrPort) []netip.AddrPort { return a }

// noBeginning holds that an error is a guard's own refusal to begin.
func noBeginning(err error) error {
	var start *launch.StartError
	if errors.As(err, &start) {
		return nil
	}
	return err
}

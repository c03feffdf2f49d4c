package matrix

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/miekg/dns"

	"github.com/checkfu/checkfu/internal/egress/daemon"
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

// noBeginning holds that an error is a guard's own refusal to begin: it ended by
// itself, by the code for that, with one line that says why. One that was too slow
// or that crashed has refused nothing.
func noBeginning(err error) error {
	start, ok := errors.AsType[*launch.StartError](err)
	if !ok {
		return err
	}
	exit, ok := errors.AsType[*exec.ExitError](start.Err)
	said := strings.TrimSpace(start.Said)
	if !ok || exit.ExitCode() != daemon.ExitUsage || !strings.HasPrefix(said, string(start.Program)+": ") || strings.Contains(said, "\n") {
		return blind(fmt.Errorf("expected a guard that refuses to begin, got one that did not begin: %w", err))
	}
	return nil
}

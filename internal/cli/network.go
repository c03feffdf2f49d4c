package cli

import (
	"fmt"

	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/sandbox"
)

// openWarning is said before every unrestricted machine, also with --quiet: what
// it means is not to be found out later.
const openWarning = "checkfu: warning: --network unrestricted: what runs in the machine can send whatever it can read to anybody on the internet"

// letOut says what an unrestricted network is, and why this host cannot give one:
// its provider would only say that it has none to offer. host is nil where the
// machines lie elsewhere.
func (a *app) letOut(policy sandbox.NetworkPolicy, host all.Host) error {
	if policy.Mode != sandbox.NetworkUnrestricted {
		return nil
	}
	if host != nil {
		if err := host.Unrestricted(); err != nil {
			return fmt.Errorf("--network unrestricted cannot be had here: %w", err)
		}
	}
	_, err := fmt.Fprintln(a.stderr, openWarning)
	return err
}

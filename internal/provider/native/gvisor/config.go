package gvisor

import (
	"fmt"
	"path/filepath"

	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// flags are the runsc flags of a machine, name by name. What is not here keeps
// upstream's default; nothing can be overridden from the spec.
func (d *Driver) flags(s machine.Spec) map[string]string {
	f := map[string]string{
		"root":               d.root,
		"platform":           "systrap",
		"network":            "none",
		"overlay2":           "none",
		"directfs":           "true",
		"file-access":        "exclusive",
		"host-settings":      "ignore",
		"host-uds":           "none",
		"panic-log":          filepath.Join(s.StateDir, "panic.log"),
		"log":                errorLog(s), // what a part of the sandbox says as it gives up
		"watchdog-action":    "log",
		"ref-leak-mode":      "disabled",
		"cpu-num-from-quota": "true",
		// Never exclusive for mounts: the host changes files under a machine.
		"file-access-mounts": "shared",
	}
	if d.rootless {
		f["cpu-num-from-quota"] = "false" // there is none
	}
	// What a machine has written into its root is read on the host when it is gone:
	// nothing may be left in the sentry.
	if s.Build || s.Twin.WritableRoot {
		f["file-access"] = "shared"
	}
	if s.Twin.NewPrivileges {
		f["allow-suid"] = "true"
	}
	if s.Netns != "" {
		// The sentry's own network stack takes the links of the namespace over.
		f["network"] = "sandbox"
	}
	if s.Twin.HostNetwork {
		f["network"] = "host"
	}
	if len(s.Forwards) > 0 {
		// Connect only. What a machine can name are the provider's binds: no
		// image and no staged file is a socket, and none made inside reaches
		// the host.
		f["host-uds"] = "open"
	}
	return f
}

func newConfig(flags map[string]string) (*config.Config, error) {
	set := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(set)
	for name, value := range flags {
		if err := set.Set(name, value); err != nil {
			return nil, fmt.Errorf("runsc flag %s: %w", name, err)
		}
	}
	return config.NewFromFlags(set)
}

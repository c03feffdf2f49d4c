package gvisor

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// buildCapabilities are what a command of a build machine holds. They are bounded
// and inherited too, so that no program gets more by being started; ambient they
// need not be, for it is root.
func buildCapabilities() *auth.TaskCapabilities {
	var all []linux.Capability
	for _, name := range machine.BuildCapabilities() {
		if one, known := linux.CapabilityFromString(name); known {
			all = append(all, one)
		}
	}
	set := auth.CapabilitySetOfMany(all)
	return &auth.TaskCapabilities{PermittedCaps: set, EffectiveCaps: set, BoundingCaps: set, InheritableCaps: set}
}

package gvisor

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	sentry "gvisor.dev/gvisor/runsc/boot/filter"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

// gVisor's own releases carry their seccomp filters as finished programs; its
// Go module carries the tables empty, and every sentry and gofer would compile
// its filter anew: 25 ms of a start, and garbage that stays in its memory. The
// tables have no other door than their names.
var (
	//go:linkname sentryFilters gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
	sentryFilters map[string]precompiledseccomp.Program
	//go:linkname goferFilters gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
	goferFilters map[string]precompiledseccomp.Program
)

// offerFilters fills the tables with the programs of this architecture. The
// entry for a set of options is found by all that shapes its rules; any other
// set is compiled from its rules as before. TestFilters compares the programs
// with what the rules compile to, instruction by instruction.
func offerFilters() {
	// Asking makes a table.
	sentry.ListPrecompiled()
	gofer.ListPrecompiled()
	for name, p := range sentryPrograms {
		sentryFilters[name] = p
	}
	for name, p := range goferPrograms {
		goferFilters[name] = p
	}
}

//go:build !amd64

package gvisor

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// Without programs the filters are compiled at every start.
var sentryPrograms, goferPrograms map[string]precompiledseccomp.Program

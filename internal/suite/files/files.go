// Package files is the deeper suite of reading, writing and listing: containment
// under a live swapper, special files, odd names, the edges of the bounds.
//
// Trusts: nothing of the target; every negative check has a control.
// Source: contract.
package files

import (
	"fmt"
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

const (
	admits = `contract "Paths, mounts, and what the Runner admits first"`
	bounds = `contract "Bounds"`
	paths  = `docs/divergences.md row 7`
)

// Probes returns the suite.
func Probes() []probe.Probe {
	return slices.Concat(swapped(), special(), odd(), large())
}

// agreed is the status by which a script answers that something is so: no
// shell gives it by itself.
const agreed = 7

// sees reports whether condition, a shell command, holds for the workload. It
// has long enough for what is large.
func sees(m *probe.Machine, condition string) bool {
	c := probe.Command("cd " + sandbox.OutputPath + " && " + condition + fmt.Sprintf(" && exit %d; exit 1", agreed))
	c.TimeoutSeconds = m.Request.Profile.ResourceLimits.MaxDurationSeconds
	return probe.Code(m.Run(c)) == agreed
}

// made is sees as a control.
func made(t *probe.T, m *probe.Machine, script string) {
	t.Control("workload-writes", sees(m, script), "the workload could not make what is to be read")
}

// secret is a directory outside of every root with one file, which the
// workload can read and the trusted port must not.
func secret(t *probe.T, m *probe.Machine, name string) (directory, content string) {
	directory, content = sandbox.HomePath+"/"+t.Nonce(), t.Nonce()
	t.Control("secret-made", sees(m, "mkdir "+directory+" && printf "+content+" > "+directory+"/"+name), "the workload cannot use its home directory")
	return directory, content
}

func suite(probes []probe.Probe) []probe.Probe {
	for i := range probes {
		probes[i].Suite = report.Files
	}
	return probes
}

package gvisor

import (
	"fmt"
	"os"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
)

// outside says why there is no machine of an ordinary user in this process, nothing
// where it is inside.
func outside() []machine.Lack {
	lacks := userns.Lacks()
	if len(lacks) == 0 && !userns.Inside() {
		lacks = append(lacks, machine.Lack{What: "this process is not in namespaces of the user's own, which checkfu run alone makes", Remedy: "use checkfu run"})
	}
	return lacks
}

// expendable makes this process, and with it the sandbox that it starts, the first to
// go where the host runs out of memory: without a cgroup nothing else keeps a machine
// from being what the host's other programs are ended for.
func expendable() error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return fmt.Errorf("become what the kernel ends first: %w", err)
	}
	return nil
}

package gvisor

import (
	"io"
	"os"
	"strings"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// createName is the argv[0] of the helper that creates one sandbox.
const createName = "runsc-create"

// Dispatch must be the first thing in main and in TestMain. Where this process
// was started as a part of a sandbox it acts as that part and does not return;
// else it returns at once.
func Dispatch() {
	switch name := os.Args[0]; {
	case name == createName:
		createMain()
	case name == "runsc", strings.HasPrefix(name, "runsc-"),
		// The sentry's umount child runs under this very name; without it
		// starting the root container fails with nothing but EOF.
		name == "/proc/self/exe":
		offerFilters()
		if name == "runsc-sandbox" {
			args, err := sentryArgs(os.Args)
			if err != nil {
				os.Exit(1) // its parent sees a sentry that does not come up
			}
			os.Args = args
		}
		cli.Run(nil, commands(), nil)
		os.Exit(0)
	}
}

// commands holds only what a sandbox needs of itself. The upstream table would
// also bring an opaque prebuilt binary along.
func commands() map[util.SubCommand]string {
	const internal = "internal use only"
	return map[util.SubCommand]string{
		new(sentrycmd.Boot):   internal,
		new(cmd.Gofer):        internal,
		new(sentrycmd.Umount): internal,
	}
}

// silence keeps gVisor's log away from the user's terminal: by default it goes
// to standard error, also when runsc is used as a library.
func silence() {
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
}

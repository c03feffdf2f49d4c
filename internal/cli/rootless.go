package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
)

// entered is the end of a command that was carried out by this program in namespaces
// of the user's own, with its exit code.
type entered struct{ code int }

func (e *entered) Error() string { return fmt.Sprintf("exit %d", e.code) }

// enter carries a command of an ordinary user out in namespaces of their own, where it
// is one that works there; what it returns then ends this process. A command that needs
// them is refused without; one that looks after what they leave behind, and in them can
// remove what belongs to the machines' users, goes on without as it can.
// Errors: *entered; *argument.Error, which says what is missing.
func (a *app) enter(cmd *cobra.Command, args []string) error {
	needs := false
	if flag := namesRootless(cmd, args); flag != "" {
		if cmd.Name() != "run" {
			return argument.Wrong("%s: expected another provider: machines of %s end with their command, so checkfu run alone has them", flag, all.NativeRootless)
		}
		for _, limit := range []string{"memory", "cpus"} {
			if cmd.Flags().Changed(limit) {
				return argument.Wrong("--%s: %s cannot hold its machines to it, and takes no limit that does not hold; leave it out", limit, all.NativeRootless)
			}
		}
		needs = true
	}
	if userns.Inside() || !needs && (os.Geteuid() == 0 || !tends(cmd)) {
		return nil
	}
	if lacks := userns.Lacks(); len(lacks) > 0 {
		if needs {
			return argument.Wrong("--provider: %s cannot run here: %s: %s; checkfu doctor says what else is missing", all.NativeRootless, lacks[0].What, lacks[0].Remedy)
		}
		return nil
	}
	code, err := userns.Run(cmd.Context(), a.args, a.stdin, a.stdout, a.stderr)
	if err != nil {
		return err
	}
	return &entered{code}
}

// namesRootless is where a command line names the provider whose machines need such
// namespaces, to run something on it; "" where it does not.
func namesRootless(cmd *cobra.Command, args []string) string {
	if cmd.Name() == "envelope" { // which only tells of it
		return ""
	}
	if f := cmd.Flags().Lookup("provider"); f != nil && slices.Contains(strings.Split(f.Value.String(), ","), all.NativeRootless) {
		return "--provider"
	}
	if len(args) > 0 && cmd.CommandPath() == "checkfu sandbox test" && args[0] == "builtin:"+all.NativeRootless {
		return "TARGET"
	}
	return ""
}

// tends reports whether a command looks at or removes what such machines and the image
// store leave.
func tends(cmd *cobra.Command) bool {
	switch cmd.CommandPath() {
	case "checkfu doctor", "checkfu sweep", "checkfu prune",
		"checkfu image build-base", "checkfu image import", "checkfu image pull", "checkfu image rm", "checkfu image verify":
		return true
	}
	return false
}

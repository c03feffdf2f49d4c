package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is the version of this program; a release build sets it.
var Version = "0.1.0-dev"

// versions says what this program is made of.
func versions() map[string]string {
	v := map[string]string{"checkfu": Version, "go": runtime.Version(), "os": runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, dep := range info.Deps {
		if dep.Path == "gvisor.dev/gvisor" {
			v["gvisor"] = dep.Version
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v["commit"] = s.Value
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print what this program is made of", Example: "  checkfu version", Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			v := versions()
			for _, key := range []string{"checkfu", "commit", "go", "os", "gvisor"} {
				if v[key] != "" {
					fmt.Fprintf(a.stdout, "%-8s %s\n", key, v[key])
				}
			}
			return nil
		},
	}
}

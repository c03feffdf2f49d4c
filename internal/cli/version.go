package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

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
			var text strings.Builder
			for _, key := range []string{"checkfu", "commit", "go", "os", "gvisor"} {
				if v[key] != "" {
					fmt.Fprintf(&text, "%-8s %s\n", key, v[key])
				}
			}
			_, err := io.WriteString(a.stdout, text.String())
			return err
		},
	}
}

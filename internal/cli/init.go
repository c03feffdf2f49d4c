package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/scaffold"
)

// initCommand makes the skeleton of a provider.
func (a *app) initCommand() *cobra.Command {
	o := scaffold.Options{}
	cmd := &cobra.Command{
		Use: "init DIR", Short: "Make the skeleton of a sandbox provider, which runs", Args: oneArgument("DIR"),
		Long: `Write a provider that runs as it is, the author kit, a Makefile and a script for
any CI into DIR, which is made, or is empty. Needs no network.

  minimum   no mounts, no reads, no optional member: skips six of the nine cases
  day-one   mounts, reads, listings, live processes: skips four
  durable   snapshots too: skips one`,
		Example: "  checkfu sandbox init acme --lang python --name acme && checkfu sandbox test exec:acme/run",
		RunE: func(_ *cobra.Command, args []string) error {
			err := scaffold.Write(args[0], o)
			if wrong := (*scaffold.OptionError)(nil); errors.As(err, &wrong) {
				if wrong.Option != "DIR" {
					wrong.Option = "--" + wrong.Option
				}
				return argument.Wrong("%v", wrong)
			}
			if err != nil {
				return err
			}
			return a.print(fmt.Appendf(nil, "%s is a provider: checkfu sandbox test exec:%s/run\n", o.Name, args[0]))
		},
	}
	cmd.Flags().StringVar(&o.Language, "lang", "", "the language: "+strings.Join(scaffold.Languages(), " or "))
	cmd.Flags().StringVar(&o.Tier, "tier", "", "what it offers: minimum, day-one (the default) or durable")
	cmd.Flags().StringVar(&o.Name, "name", "", "the provider's name: lower-case letters, digits, '.', '_' and '-'")
	return cmd
}

package cli

import (
	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
)

// egressCommand is what concerns the way out of a machine.
func (a *app) egressCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "egress", Short: "Test the egress guard, and read receipts of what a machine can reach",
		Example: "  sudo checkfu egress test\n  checkfu egress receipt verify receipt.json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return argument.Unexpected("egress", "one of test, receipt", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.testEgressCommand(), a.receiptCommand())
	return cmd
}

// Command checkfu runs untrusted work on a repository inside a checked sandbox.
package main

import (
	"context"
	"os"

	"github.com/checkfu/checkfu/internal/cli"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
)

func main() {
	gvisor.Dispatch()
	os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Command checkfu runs untrusted work on a repository inside a checked sandbox.
package main

import (
	"context"
	"os"

	"github.com/checkfu/checkfu/internal/cli"
	"github.com/checkfu/checkfu/internal/egress/matrix"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
)

func main() {
	gvisor.Dispatch()
	userns.Dispatch()
	if code, was := matrix.Main(); was {
		os.Exit(code)
	}
	os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

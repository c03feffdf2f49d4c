// The runtime would keep a file of the control group open, to follow its limit.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command checkfu-relay is the model relay of one sandbox: the small static
// program that leads five shapes of request to the model gateway. It is a program
// of its own because what it must not hold it must not link.
package main

import (
	"os"

	"github.com/checkfu/checkfu/internal/egress/daemon"
)

func main() {
	os.Exit(daemon.Main(daemon.Program{
		Name:    "checkfu-relay",
		Summary: "leads requests for models to the model gateway, and nothing to anywhere else.",
		Prepare: prepare,
	}, os.Args[1:]))
}

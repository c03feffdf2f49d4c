// The runtime would keep a file of the control group open, to follow its limit.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command checkfu-guard is the egress guard of one sandbox: the small static
// program that leads CONNECT requests to listed destinations. It is a program of
// its own because what it must not hold it must not link.
package main

import (
	"os"
	"runtime"

	"github.com/checkfu/checkfu/internal/egress/daemon"
)

func main() {
	// One sandbox gets two cores of its host for this, however many there are: its
	// tunnels are moved by the kernel, at several GB a second. With one, two large
	// transfers wait for each other; with more, threads wake each other for
	// nothing, and each costs memory.
	runtime.GOMAXPROCS(min(2, runtime.GOMAXPROCS(0)))
	os.Exit(daemon.Main(daemon.Program{
		Name:    "checkfu-guard",
		Summary: "leads CONNECT requests to listed hosts and ports, and to nothing else.",
		Prepare: prepare,
	}, os.Args[1:]))
}

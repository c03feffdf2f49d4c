// Command checkfu-init is the guest init: the small static program that is
// PID 1 of every machine and the trusted pass over what only the guest can
// see. It is a convenience inside the machine, never a witness.
package main

import (
	"os"

	"github.com/checkfu/checkfu/internal/guest"
)

func main() {
	os.Exit(guest.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

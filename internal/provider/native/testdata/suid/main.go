// Command suid exits 0 if it runs as root: what a setuid-root file is for.
package main

import "os"

func main() {
	if os.Geteuid() != 0 {
		os.Exit(1)
	}
}

package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// splice waits in the middle of a write to path for something to come out of a pipe
// that it never puts anything into. The kernel lets no filesystem come to rest
// meanwhile in which somebody writes.
func splice(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		if _, err := unix.Splice(ends[0], nil, int(f.Fd()), nil, 1, 0); err != unix.EINTR {
			return err
		}
	}
}

package logstore

import (
	"os"
	"syscall"
)

// datasync waits until the bytes of file are durable, and no more of it than they
// need.
func datasync(file *os.File) error {
	for {
		if err := syscall.Fdatasync(int(file.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

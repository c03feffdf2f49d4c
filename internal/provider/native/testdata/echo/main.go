// Command echo asks one address whether it is there, as a program without
// capabilities may, and exits with 0 if it says so within ten seconds.
package main

import (
	"net/netip"
	"os"
	"syscall"
)

func main() {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, syscall.IPPROTO_ICMP)
	failed(err)
	failed(syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 10}))
	// An echo request; the kernel fills in the identifier and the sum.
	failed(syscall.Sendto(fd, []byte{8, 0, 0, 0, 0, 0, 0, 1}, 0, &syscall.SockaddrInet4{Addr: netip.MustParseAddr(os.Args[1]).As4()}))
	b := make([]byte, 1500)
	n, _, err := syscall.Recvfrom(fd, b, 0)
	failed(err)
	if n < 1 || b[0] != 0 {
		os.Exit(2)
	}
}

func failed(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

package daemon

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// inherited refuses a descriptor that the starter did not pass: its number may
// be one that the runtime opened for itself.
func inherited(descriptors ...int) error {
	for _, fd := range descriptors {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			return fmt.Errorf("descriptor %d: expected to be passed, got none", fd)
		}
	}
	return nil
}

// readConfig reads descriptor 3 to its end and closes it.
func readConfig() ([]byte, error) {
	f := os.NewFile(configFD, "config")
	defer f.Close()
	config, err := io.ReadAll(io.LimitReader(f, MaxConfig+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("descriptor %d: expected a configuration, got: %w", configFD, err)
	case len(config) > MaxConfig:
		return nil, fmt.Errorf("descriptor %d: expected at most %d bytes, got more", configFD, MaxConfig)
	}
	return config, nil
}

// takeListener makes descriptor 5 a listener of this process's own.
func takeListener() (net.Listener, error) {
	f := os.NewFile(listenerFD, "listener")
	defer f.Close() // what FileListener answers has a descriptor of its own
	// FileListener takes any socket.
	if listens, err := unix.GetsockoptInt(listenerFD, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens != 1 {
		return nil, fmt.Errorf("descriptor %d: expected a listening socket, got something else", listenerFD)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: expected a listening socket, got: %w", listenerFD, err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the socket file is the starter's, and out of reach
	}
	return l, nil
}

// takeLog makes descriptor 4 a log of this process's own.
func takeLog() *announced {
	// Only what is not blocking can have a deadline, and then the runtime minds it.
	// A plain file has none whatever it is.
	_ = unix.SetNonblock(logFD, true)
	return &announced{log: os.NewFile(logFD, "log"), to: os.Stdout}
}

// announced is the log, whose first line the starter is shown too once it is
// written.
type announced struct {
	log *os.File
	to  io.Writer
}

// Write writes one line.
func (a *announced) Write(line []byte) (int, error) {
	n, err := a.log.Write(line)
	if err == nil && a.to != nil {
		_, _ = a.to.Write(line) // a starter that is gone ends this process anyway
		a.to = nil
	}
	return n, err
}

// SetWriteDeadline bounds a Write whose reader stalls.
func (a *announced) SetWriteDeadline(t time.Time) error { return a.log.SetWriteDeadline(t) }

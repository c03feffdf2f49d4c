package guest

import (
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// DialCommand is what to start in a machine for one connection to a TCP port of
// its own loopback address; init is where the guest init lies there. Standard
// input is what is said to who listens, standard output what comes back; each ends
// by itself. Standard error tells how it stands. A Connection is the other end.
func DialCommand(init string, port int) []string {
	return []string{init, "dial", strconv.Itoa(port)}
}

// What "dial" says on its standard error: no text begins so.
const (
	dialConnected = 1
	dialEnded     = 2
)

// runDial is the "dial" mode. IPv4 is tried first; much that listens on
// "localhost" listens on IPv6 alone.
func runDial(arg string, in io.Reader, out, status io.Writer) error {
	port, err := strconv.Atoi(arg)
	if err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != arg {
		return &WireError{Field: "port", Want: "1 to 65535", Got: arg}
	}
	// It has the workload's user, and an end outside. Nobody else in there may
	// have that, or live on in its place.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl PR_SET_DUMPABLE", err)
	}
	conn, err := dialLoopback(port)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := status.Write([]byte{dialConnected}); err != nil {
		return err
	}
	failed := make(chan error, 2)
	var both sync.WaitGroup
	both.Go(func() {
		_, err := io.Copy(conn, struct{ io.Reader }{in})
		if err == nil {
			hangUp(conn, unix.SHUT_WR)
			return
		}
		failed <- err
	})
	both.Go(func() {
		_, err := io.Copy(out, struct{ io.Reader }{conn})
		if err == nil {
			_, err = status.Write([]byte{dialEnded})
		}
		if c, ok := out.(io.Closer); ok && err == nil {
			err = c.Close()
		}
		if err != nil {
			failed <- err
		}
	})
	done := make(chan struct{})
	go func() {
		both.Wait()
		close(done)
	}()
	select {
	case err := <-failed:
		return err // the other direction may never end
	case <-done:
		return nil
	}
}

// dialLoopback connects to a port of this machine's own.
func dialLoopback(port int) (*os.File, error) {
	conn, err := dialTo(unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err != nil {
		six := &unix.SockaddrInet6{Port: port}
		six.Addr[15] = 1
		if again, sixErr := dialTo(unix.AF_INET6, six); sixErr == nil {
			return again, nil
		}
	}
	return conn, err
}

// dialTo connects, or gives up when whoever listens has no room for longer than
// fullBound.
func dialTo(family int, to unix.Sockaddr) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = unix.Connect(fd, to)
	for begin := time.Now(); err == unix.EINPROGRESS; {
		left := fullBound - time.Since(begin)
		if left <= 0 {
			err = unix.ETIMEDOUT
			break
		}
		n, pollErr := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		if pollErr != nil && pollErr != unix.EINTR {
			err = pollErr
		} else if n > 0 {
			code, optErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if err = optErr; err == nil && code != 0 {
				err = unix.Errno(code)
			}
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return os.NewFile(uintptr(fd), "connection"), nil
}

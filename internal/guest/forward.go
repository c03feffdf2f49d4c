package guest

import (
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ReadyFDEnv names the environment variable that holds the number of the
// inherited descriptor to which "init" writes one byte once every forward
// listens. Without it nobody is told.
const ReadyFDEnv = "CHECKFU_READY_FD"

const (
	// maxForwards bounds the forwards of one machine.
	maxForwards = 8
	// maxTunnels bounds the connections of one forward that are open at a time;
	// what is more waits in the backlog. Buffers of init are memory of the machine.
	maxTunnels = 256
	// tunnelBuffer is what one direction of a tunnel holds.
	tunnelBuffer = 32 << 10
	// fullBound is how long a connection waits while the socket's backlog is full.
	fullBound = 10 * time.Second
)

// forward is one loopback port whose connections go to one socket file. It is
// the only thing outside that the machine can speak to, and knows nothing of
// what is spoken: whoever is behind the socket decides.
// Source: design "Egress" (socket file).
type forward struct {
	port   int
	socket string
}

// parseForward reads PORT=SOCKET: a port of 1 to 65535 without leading zeros
// and a clean absolute path that fits a socket address.
func parseForward(arg string) (forward, error) {
	port, socket, _ := strings.Cut(arg, "=")
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return forward{}, &WireError{Field: "forward port", Want: "1 to 65535", Got: port}
	}
	if len(socket) < 2 || len(socket) > 107 || socket[0] != '/' || strings.IndexByte(socket, 0) >= 0 {
		return forward{}, &WireError{Field: "forward socket", Want: "an absolute path of at most 107 bytes", Got: socket}
	}
	return forward{port: n, socket: socket}, nil
}

// startForwards listens on every port and then serves each in the background,
// for as long as the process lives. On error none is served.
func startForwards(args []string) error {
	if len(args) > maxForwards {
		return refuse("forwards", "at most "+strconv.Itoa(maxForwards), len(args))
	}
	var listening []*listener
	for _, arg := range args {
		f, err := parseForward(arg)
		if err != nil {
			return err
		}
		l, err := f.listen()
		if err != nil {
			return err
		}
		listening = append(listening, l)
	}
	for _, l := range listening {
		go l.serve()
	}
	return nil
}

// listener is one forward that listens.
type listener struct {
	forward
	file *os.File
	raw  syscall.RawConn
	room chan struct{} // holds a token for each open tunnel
}

func (f forward) listen() (*listener, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "forward "+strconv.Itoa(f.port))
	if err = unix.Bind(fd, &unix.SockaddrInet4{Port: f.port, Addr: [4]byte{127, 0, 0, 1}}); err == nil {
		err = unix.Listen(fd, 1024)
	}
	var raw syscall.RawConn
	if err == nil {
		raw, err = file.SyscallConn()
	}
	if err != nil {
		file.Close()
		return nil, os.NewSyscallError("listen on "+strconv.Itoa(f.port), err)
	}
	return &listener{forward: f, file: file, raw: raw, room: make(chan struct{}, maxTunnels)}, nil
}

// serve takes connections until the listener is closed.
func (l *listener) serve() {
	for {
		l.room <- struct{}{}
		var fd int
		var err error
		if closed := l.raw.Read(func(s uintptr) bool {
			fd, _, err = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return err != unix.EAGAIN && err != unix.EINTR
		}); closed != nil {
			return
		}
		if err != nil {
			// The connection went meanwhile, or the workload took what there is
			// of memory or descriptors. It gets better or it does not; init, the
			// machine with it, must not end of it.
			<-l.room
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			defer func() { <-l.room }()
			tunnel(fd, l.socket)
		}()
	}
}

// tunnel connects one accepted connection to the socket and passes bytes both
// ways until both have ended. Where nobody listens behind the socket the
// connection is reset, so that nobody takes it for an empty answer.
func tunnel(accepted int, socket string) {
	outside, err := dial(socket)
	if err != nil {
		unix.SetsockoptLinger(accepted, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		unix.Close(accepted)
		return
	}
	inside := os.NewFile(uintptr(accepted), "inside")
	var both sync.WaitGroup
	both.Go(func() { pass(outside, inside) })
	pass(inside, outside)
	both.Wait()
	inside.Close()
	outside.Close()
}

// dial connects to a socket file. Not a blocking connect: each would hold a
// thread, and a process of the machine's limit, for as long as the other end
// has no room.
func dial(socket string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket})
		if err == unix.EAGAIN && time.Since(begin) < fullBound || err == unix.EINTR {
			continue
		}
		break
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "outside"), nil
}

// pass copies from to to until from ends, and then says to to that no more
// comes: its other direction goes on. When it fails, both end.
func pass(to, from *os.File) {
	buffer := make([]byte, tunnelBuffer)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				hangUp(from, unix.SHUT_RDWR)
				hangUp(to, unix.SHUT_RDWR)
				return
			}
		}
		if err == io.EOF {
			hangUp(to, unix.SHUT_WR)
			return
		}
		if err != nil {
			hangUp(from, unix.SHUT_RDWR)
			hangUp(to, unix.SHUT_RDWR)
			return
		}
	}
}

// hangUp shuts directions of a connection; the file stays open for the other
// goroutine that uses it.
func hangUp(f *os.File, how int) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), how) })
	}
}

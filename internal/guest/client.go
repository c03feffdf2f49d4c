package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerBound is how long the guest init may take over one answer. A machine
// whose init takes longer is broken, and is ended.
const answerBound = 15 * time.Second

// ErrClosed is the reason of a Client that was closed by its owner.
var ErrClosed = errors.New("guest: closed")

// Client is the host's end of one machine's "serve" socket. When the machine
// breaks the protocol, or goes, every call returns the reason and every Wait
// ends with it.
// Ownership: the Client owns the socket. Closing it ends the machine.
// Concurrency: all methods may be called by many goroutines at once.
type Client struct {
	socket *socket
	hello  chan struct{} // closed at hello
	done   chan struct{} // closed when the socket is of no more use

	sending sync.Mutex

	mu       sync.Mutex
	reason   error
	greeted  bool
	last     uint32
	commands map[uint32]*Command
}

// Pair makes the two ends: the Client's and the one to hand to the guest init
// as an inherited descriptor. The caller closes the second after that.
func Pair() (*Client, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "guest init")
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		theirs.Close()
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	conn, err := newSocket(os.NewFile(uintptr(fds[0]), "guest"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	c := &Client{
		socket:   conn,
		hello:    make(chan struct{}),
		done:     make(chan struct{}),
		commands: map[uint32]*Command{},
	}
	go c.read()
	return c, theirs, nil
}

// Ready returns once the guest init serves.
func (c *Client) Ready(ctx context.Context) error {
	select {
	case <-c.hello:
		return nil
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done is closed when the machine can no longer be talked to.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is the reason once Done is closed, before that nil.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// Close closes the socket, upon which the guest init ends.
func (c *Client) Close() { c.fail(ErrClosed) }

func (c *Client) fail(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason != nil {
		return
	}
	c.reason = reason
	c.socket.file.Close()
	close(c.done)
}

// Start is a command to start. Argv[0] is looked up in PATH of Env if it holds
// no slash; Dir is an absolute guest path. A nil stream is /dev/null. Cgroup,
// if any, is the cgroup2 directory that the command is born in.
type Start struct {
	Argv    []string
	Env     []string
	Dir     string
	Streams [3]*os.File
	Cgroup  *os.File
}

// Command is one started command.
type Command struct {
	client *Client
	name   uint32
	answer chan struct{} // closed when started or failed
	failed *StartFailure
	ended  chan struct{} // closed when exit is known
	exit   Exit
	acks   []chan struct{} // one for each signal on its way
}

// Start starts a command and returns when it runs. The streams are set to
// blocking mode, as programs expect them, and stay the caller's. The answer is
// awaited even when ctx is done, for answerBound at most: so that the caller
// always knows whether there is a command to kill.
// Errors: *StartFailure; *WireError for a request that no program could mean;
// else the machine is gone.
func (c *Client) Start(ctx context.Context, s Start) (*Command, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	request := startRequest{cgroup: s.Cgroup != nil, dir: s.Dir, argv: s.Argv, env: s.Env}
	var files []*os.File
	for i, f := range s.Streams {
		if request.null[i] = f == nil; f != nil {
			files = append(files, f)
		}
	}
	if s.Cgroup != nil {
		files = append(files, s.Cgroup)
	}
	body, err := request.encode()
	if err != nil {
		return nil, err
	}

	p := &Command{client: c, answer: make(chan struct{}), ended: make(chan struct{})}
	c.mu.Lock()
	if c.reason == nil && c.last == ^uint32(0) {
		c.mu.Unlock()
		return nil, refuse("command", "a number that was not used before", 0)
	}
	c.last++
	p.name = c.last
	c.commands[p.name] = p
	c.mu.Unlock()

	b := message(kindStart, p.name, len(files), body)
	if err := withFDs(files, nil, func(fds []int) error {
		for i := range fds[:len(fds)-int(boolByte(request.cgroup))] {
			if err := unix.SetNonblock(fds[i], false); err != nil {
				return os.NewSyscallError("stream", err)
			}
		}
		return c.send(b, fds)
	}); err != nil {
		c.mu.Lock()
		delete(c.commands, p.name)
		c.mu.Unlock()
		return nil, err
	}
	if err := c.await(p.answer); err != nil {
		return nil, err
	}
	if p.failed != nil {
		return nil, p.failed
	}
	return p, nil
}

// withFDs calls use with the descriptors of files, all of them held open.
func withFDs(files []*os.File, fds []int, use func([]int) error) error {
	if len(files) == 0 {
		return use(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) {
		inner = withFDs(files[1:], append(fds, int(fd)), use)
	}); err != nil {
		return err
	}
	return inner
}

// send writes one message whole, or breaks the connection.
func (c *Client) send(b []byte, fds []int) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.socket.file.SetWriteDeadline(time.Now().Add(answerBound))
	if err := c.socket.write(b, fds); err != nil {
		c.fail(err)
		return c.Err()
	}
	return nil
}

// await waits for an answer, for as long as one may take.
func (c *Client) await(answer <-chan struct{}) error {
	bound := time.NewTimer(answerBound)
	defer bound.Stop()
	select {
	case <-answer:
		return nil
	case <-c.done:
		return c.Err()
	case <-bound.C:
		c.fail(&WireError{Field: "answer", Want: "one within " + answerBound.String(), Got: "none"})
		return c.Err()
	}
}

// Wait blocks until the command ended, the machine went (then the exit is
// unknown) or ctx is done. It may be called again.
func (p *Command) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.ended:
		return p.exit, nil
	default:
	}
	select {
	case <-p.ended:
		return p.exit, nil
	case <-p.client.done:
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
	// The exit may have been the last thing that was said.
	select {
	case <-p.ended:
		return p.exit, nil
	default:
		return Exit{}, p.client.Err()
	}
}

// Ended is closed when the exit is known.
func (p *Command) Ended() <-chan struct{} { return p.ended }

// Signal sends a signal to the command alone and returns once it was sent; nil
// if the command has already ended.
func (p *Command) Signal(ctx context.Context, signal syscall.Signal) error {
	if signal < 1 || signal > 64 {
		return refuse("signal", "one of 1 to 64", int(signal))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	default:
	}
	ack := make(chan struct{})
	c := p.client
	// Answers come in the order of the requests: so the two orders must agree.
	c.sending.Lock()
	c.mu.Lock()
	p.acks = append(p.acks, ack)
	c.commands[p.name] = p
	c.mu.Unlock()
	c.socket.file.SetWriteDeadline(time.Now().Add(answerBound))
	err := c.socket.write(message(kindSignal, p.name, 0, []byte{byte(signal)}), nil)
	c.sending.Unlock()
	if err != nil {
		c.fail(err)
		return c.Err()
	}
	return c.await(ack)
}

func (c *Client) read() {
	for {
		h, body, _, err := c.socket.read(false, maxAnswer)
		if err == nil {
			err = c.take(h, body)
		}
		if err == io.EOF || errors.Is(err, syscall.ECONNRESET) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// take applies one message. Whatever could not come from our init is refused.
func (c *Client) take(h header, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.kind == kindHello {
		if c.greeted || h.command != 0 || len(body) != 1 || body[0] != version {
			return refuse("hello", "one, of version 1", len(body))
		}
		c.greeted = true
		close(c.hello)
		return nil
	}
	p, ok := c.commands[h.command]
	if !ok || !c.greeted {
		return refuse("command", "one that is running", int(h.command))
	}
	answered, ended := isClosed(p.answer), isClosed(p.ended)
	switch h.kind {
	case kindStarted:
		if answered || len(body) != 0 {
			return refuse("started", "one, with no body", len(body))
		}
		close(p.answer)
	case kindFailed:
		failed, err := parseFailure(body)
		if err != nil {
			return err
		}
		if answered {
			return refuse("failed", "one answer", 2)
		}
		p.failed = failed
		delete(c.commands, h.command)
		close(p.answer)
	case kindExited:
		exit, err := parseExit(body)
		if err != nil {
			return err
		}
		if !answered || ended {
			return refuse("exited", "one, of a started command", int(h.command))
		}
		p.exit = exit
		close(p.ended)
		if len(p.acks) == 0 {
			delete(c.commands, h.command)
		}
	case kindSignalled:
		if len(p.acks) == 0 || len(body) != 0 {
			return refuse("signalled", "one for a signal", len(body))
		}
		close(p.acks[0])
		p.acks = p.acks[1:]
		if ended && len(p.acks) == 0 {
			delete(c.commands, h.command)
		}
	default:
		return refuse("kind", "an answer", int(h.kind))
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

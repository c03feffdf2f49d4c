package guest

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"
)

// ErrCut says that a connection ended before its other end had said all.
var ErrCut = errors.New("guest: the connection was cut")

const (
	// dialAnswerBound is how long "dial" may take to begin and to connect.
	dialAnswerBound = fullBound + answerBound
	// dialTextBound bounds what is read of why it did not connect.
	dialTextBound = 512
)

// DialError says that nobody in the machine took a connection.
type DialError struct {
	// Said is why, in the machine's own words, at most 512 bytes: show it as what
	// it is.
	Said string
}

func (e *DialError) Error() string {
	if e.Said == "" {
		return "guest: not connected"
	}
	return "guest: not connected: " + e.Said
}

// Connection is the host's end of one "dial": a connection to a server in a
// machine, over the three pipes of that process. All that comes is the
// workload's word: also that there was a connection, or that it ended in order.
// Ownership: the pipes are the Connection's; its Close closes them.
// Concurrency: one may read while another writes; Close may come at any time.
type Connection struct {
	in, out, status *os.File
	end             error // what Read says from now on
}

// NewConnection takes over the pipes that lead to standard input, and from
// standard output and standard error, of DialCommand.
func NewConnection(in, out, status *os.File) *Connection {
	return &Connection{in: in, out: out, status: status}
}

// Connected waits until somebody in the machine took the connection, for at most
// 25 s. It is called once, before all else.
// Errors: *DialError where nobody did; the pipe's.
func (c *Connection) Connected() error {
	c.status.SetReadDeadline(time.Now().Add(dialAnswerBound))
	var first [1]byte
	_, err := c.status.Read(first[:])
	switch {
	case err == io.EOF:
		return &DialError{}
	case err != nil:
		return err
	case first[0] == dialConnected:
		return nil
	}
	// Whatever of it comes until it ends, or does not.
	text, _ := io.ReadAll(io.LimitReader(c.status, dialTextBound-1))
	said := strings.TrimPrefix(string(first[:])+string(text), "checkfu-init: ")
	return &DialError{Said: strings.TrimSpace(said)}
}

// Read gives what comes from the machine.
// Errors: io.EOF where that ended in order; ErrCut where it did not; the pipe's.
func (c *Connection) Read(p []byte) (int, error) {
	if c.end != nil {
		return 0, c.end
	}
	n, err := c.out.Read(p)
	if err != io.EOF {
		return n, err
	}
	// It said so before it closed its output, or is gone and says nothing more.
	c.status.SetReadDeadline(time.Now().Add(answerBound))
	c.end = ErrCut
	var last [1]byte
	if _, err := c.status.Read(last[:]); err == nil && last[0] == dialEnded {
		c.end = io.EOF
	}
	return n, c.end
}

// Write passes bytes to the machine.
// Errors: the pipe's, of whose other end nobody reads any more.
func (c *Connection) Write(p []byte) (int, error) { return c.in.Write(p) }

// CloseWrite says that nothing more is written.
func (c *Connection) CloseWrite() error { return c.in.Close() }

// Close lets go of the pipes, upon which "dial" ends. It may be called again.
func (c *Connection) Close() error {
	var failed error
	for _, f := range []*os.File{c.in, c.out, c.status} {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

package matrix

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/lab"
)

// patience bounds every single wait of a case. Nothing in a lab takes long; it is
// generous for a machine that has other work.
const patience = 20 * time.Second

// client is a connection of the workload to its guard, driven byte by byte.
type client struct {
	net.Conn
	in   *bufio.Reader
	stop func() bool // of the context's hold on it
}

// Close ends it; again changes nothing.
func (c *client) Close() error {
	c.stop()
	return c.Conn.Close()
}

// Read reads what came behind the answer.
func (c *client) Read(p []byte) (int, error) { return c.in.Read(p) }

// late is an error of a wait that was too long, so perhaps of a machine that has
// other work.
func late(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, unix.ETIMEDOUT)
}

// dial connects to a door from inside the workload.
func dial(ctx context.Context, l *lab.Lab, to netip.AddrPort) (*client, error) {
	conn, err := l.Workload.Dial(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(patience))
	// Whoever interrupts the run waits for no bound of the guard.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	return &client{conn, bufio.NewReader(conn), stop}, nil
}

// closed is the status of a connection that ended without an answer.
const closed = 0

// status reads the head of an answer.
// Errors: of the operating system; *StatusError for an answer that is none.
func (c *client) status() (int, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		if line == "" && ended(err) {
			return closed, nil
		}
		return closed, fmt.Errorf("read an answer, got %q: %w", line, err)
	}
	fields := strings.Fields(line)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/1.") {
		return closed, fmt.Errorf("expected a status line, got %q", line)
	}
	code, err := strconv.Atoi(fields[1])
	if err != nil {
		return closed, fmt.Errorf("expected a status, got %q", line)
	}
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return code, fmt.Errorf("read the head of an answer: %w", err)
		}
		if line == "\r\n" {
			return code, nil
		}
	}
}

// ask sends a head and reads the answer.
func (c *client) ask(head string) (int, error) {
	if _, err := io.WriteString(c.Conn, head); err != nil && !ended(err) {
		return closed, err
	}
	return c.status()
}

// dribbles sends a head that never ends, a byte now and then, until it is
// answered.
func (c *client) dribbles() (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := c.Write([]byte("a")); err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	status, err := c.status()
	cancel()
	<-done
	return status, err
}

// echoes sends bytes and reads them again.
func (c *client) echoes(data []byte) error {
	if _, err := c.Write(data); err != nil {
		return fmt.Errorf("send %d bytes: %w", len(data), err)
	}
	back := make([]byte, len(data))
	if n, err := io.ReadFull(c.in, back); err != nil {
		return fmt.Errorf("read %d bytes again, got %d: %w", len(data), n, err)
	}
	if !bytes.Equal(back, data) {
		return errors.New("what came back is something else")
	}
	return nil
}

// greets sends a ClientHello for a host and reads it again: the sinks of the lab
// are echoes.
func (c *client) greets(host string) error {
	data, err := sni(host)
	if err != nil {
		return err
	}
	return c.echoes(data)
}

// ends waits for the end of the connection and returns what came until then.
func (c *client) ends() ([]byte, error) {
	got, err := io.ReadAll(c.in)
	if err != nil && !ended(err) {
		return got, fmt.Errorf("wait for the end of the connection: %w", err)
	}
	return got, nil
}

// closeWrite ends what is sent.
func (c *client) closeWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// connectHead is an ordinary request for a tunnel.
func connectHead(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

// hostOf is the host of a target as its ClientHello says it.
func hostOf(target string) string {
	host, _, _ := strings.Cut(target, ":")
	return strings.ToLower(host)
}

// ended is an error of a connection that the other side ended, however.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

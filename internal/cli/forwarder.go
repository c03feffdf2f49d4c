package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/keeper"
)

// maxForwarded bounds the connections that are open at a time for one command: each
// is a process of the machine.
const maxForwarded = 32

// forwarder passes connections of this host on to servers in a machine.
type forwarder struct {
	tunnel func(ctx context.Context, port int) (*keeper.Tunnel, error)
	room   chan struct{} // holds a token for each open connection

	mu  sync.Mutex
	log io.Writer // nil is nobody
}

// serve takes connections until ctx is done, and returns when all have ended.
func (f *forwarder) serve(ctx context.Context, l *net.TCPListener, port int) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			f.say(port, "no connection: %v", err)
			select {
			case <-time.After(100 * time.Millisecond): // no descriptors: it gets better, or does not
			case <-ctx.Done():
			}
			continue
		}
		select {
		case f.room <- struct{}{}:
		case <-ctx.Done():
			_ = c.Close()
			return
		}
		all.Go(func() {
			defer func() { <-f.room }()
			f.connection(ctx, c, port)
		})
	}
}

// connection is one, from its beginning to its end.
func (f *forwarder) connection(ctx context.Context, c *net.TCPConn, port int) {
	began, who := time.Now(), c.RemoteAddr().String()
	to, from, err := f.pass(ctx, c, port)
	took := time.Since(began).Round(time.Millisecond)
	refused, isRefusal := errors.AsType[*guest.DialError](err)
	switch {
	case err == nil:
		f.say(port, "%s: %v, %s to the machine, %s from it", who, took, argument.Bytes(to), argument.Bytes(from))
	case isRefusal:
		f.say(port, "%s: nobody in the machine took it: %s", who, refused.Said)
	default:
		f.say(port, "%s: cut after %v, %s to the machine, %s from it: %v", who, took, argument.Bytes(to), argument.Bytes(from), err)
	}
}

// pass passes bytes both ways until both have ended, or one is cut. A cut is
// passed on too, as a reset: nobody is to take half an answer for a whole one.
func (f *forwarder) pass(ctx context.Context, c *net.TCPConn, port int) (to, from int64, err error) {
	reset := func() {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	t, err := f.tunnel(ctx, port)
	if err != nil {
		reset()
		return 0, 0, err
	}
	defer t.Close()
	machine := guest.NewConnection(t.Files[0], t.Files[1], t.Files[2])
	defer machine.Close()
	defer context.AfterFunc(ctx, func() {
		reset()
		_ = machine.Close()
	})()
	if err := machine.Connected(); err != nil {
		reset()
		return 0, 0, err
	}
	var both sync.WaitGroup
	both.Go(func() {
		client := &watched{r: c}
		to, _ = io.Copy(machine, client)
		if client.err != nil {
			_ = machine.Close() // who asked is gone, and does not hear the answer
			return
		}
		_ = machine.CloseWrite()
	})
	from, err = io.Copy(c, struct{ io.Reader }{machine})
	if err != nil {
		reset()
	} else {
		_ = c.CloseWrite()
	}
	both.Wait()
	_ = c.Close()
	return to, from, err
}

// watched remembers why a reader ended before its end.
type watched struct {
	r   io.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

func (f *forwarder) say(port int, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.log != nil {
		line := fmt.Sprintf(format, args...) // some of it in the machine's words
		fmt.Fprintf(f.log, "checkfu: %s port %d: %s\n", time.Now().UTC().Format(time.RFC3339), port, argument.OneLine(line))
	}
}

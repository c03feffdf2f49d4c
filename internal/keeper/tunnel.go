package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server"
)

// A tunnel leads to a server in the session's machine. The contract has no member
// for it, and the wire none either: its one live process is whose server it is. So
// a keeper hands tunnels out beside the wire, on a socket of their own, "t". Who
// wants one says who he is and where to, one line, and is answered with one:
//
//	TOKEN PORT    ok, with three descriptors: the pipes to and from the tunnel
//	              no WHY
//
// The connection is then the cord of the tunnel: what ends first, it or the
// keeper, ends the other. What is said through the pipes no keeper sees.
const tunnelName = "t"

const (
	maxTunnels   = 64 // at a time, for one session; one more is refused
	tunnelBound  = 30 * time.Second
	acceptPause  = 100 * time.Millisecond // after a connection that could not be taken
	maxTunnelAsk = 128                    // bytes of a line that asks, its end included
	maxTunnelSay = 1 << 10
)

// TunnelOpener starts a tunnel: pipes to and from its end in the machine, and what
// ends it. Those pipes are closed by end; who keeps one duplicates it.
type TunnelOpener func(ctx context.Context, id sandbox.InstanceID, port int) (files [3]*os.File, end func() error, err error)

// tunnels hands them out.
type tunnels struct {
	tokens   wire.Tokens
	instance func() *sandbox.Instance
	open     TunnelOpener // nil where the provider has none
	// live pauses the session with its processes; nil where it is not live.
	live func(ctx context.Context, until sandbox.Timestamp, told func()) error
	log  func(error)
}

// serveTunnels listens until ctx is done; done then waits for the end of all.
func (k *keeper) serveTunnels(ctx context.Context, t *tunnels) (done func(), err error) {
	dir, path, err := k.at.door(tunnelName)
	if err != nil {
		return nil, err
	}
	l, err := server.Listen(ctx, "unix:"+path)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	served := make(chan struct{})
	go func() {
		defer close(served)
		t.serve(ctx, l)
	}()
	return func() {
		<-served
		stop()
		_ = dir.Close()
	}, nil
}

func (t *tunnels) serve(ctx context.Context, l net.Listener) {
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, maxTunnels)
	for failing := false; ; {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			if !failing {
				t.log(fmt.Errorf("tunnels: %w", err)) // once: it can last as long as the session
			}
			failing = true
			select {
			case <-time.After(acceptPause): // no descriptors: it gets better, or does not
			case <-ctx.Done():
				return
			}
			continue
		}
		failing = false
		all.Go(func() { t.handle(ctx, c.(*net.UnixConn), room) })
	}
}

func refuse(c net.Conn, why string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(tunnelBound))
	why = strings.ReplaceAll(why, "\n", " ")
	_, _ = fmt.Fprintf(c, "no %s\n", why[:min(len(why), maxTunnelSay-8)])
}

// handle is one tunnel, from its asking to its end.
func (t *tunnels) handle(ctx context.Context, c *net.UnixConn, room chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(tunnelBound))
	line, err := readLine(c, maxTunnelAsk)
	if err != nil {
		_ = c.Close()
		return
	}
	if token, until, ok := parseLiveAsk(line); ok {
		t.pauseLive(ctx, c, token, until)
		return
	}
	token, port, err := parseTunnelAsk(line)
	in := t.instance()
	switch {
	case err != nil:
		refuse(c, err.Error())
		return
	case !t.tokens.Accept(token):
		refuse(c, "the token is not this session's")
		return
	case t.open == nil:
		refuse(c, "its provider has no machines")
		return
	case in == nil:
		refuse(c, "its machine is gone")
		return
	}
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	default:
		refuse(c, fmt.Sprintf("%d connections are open, and there is room for no more", maxTunnels))
		return
	}
	opening, opened := context.WithTimeout(ctx, tunnelBound)
	files, end, err := t.open(opening, in.InstanceID, port)
	opened()
	if err != nil {
		refuse(c, err.Error())
		return
	}
	defer func() {
		if err := end(); err != nil {
			t.log(fmt.Errorf("a tunnel to port %d: %w", port, err))
		}
	}()
	if err := answer(c, files); err != nil {
		_ = c.Close()
		return
	}
	for _, f := range files {
		_ = f.Close() // only who asked holds them now, so that one end is the other's
	}
	_ = c.SetDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

func answer(c *net.UnixConn, files [3]*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		// The files are open until end is called, which is later.
		if err := raw.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
			return err
		}
	}
	_, _, err := c.WriteMsgUnix([]byte("ok\n"), unix.UnixRights(fds...), nil)
	return err
}

// parseTunnelAsk reads TOKEN PORT: one space, and a port of 1 to 65535 without
// leading zeros. Whether the token is one is not looked at.
func parseTunnelAsk(line string) (token string, port int, err error) {
	token, number, _ := strings.Cut(line, " ")
	port, err = strconv.Atoi(number)
	if token == "" || err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != number {
		return "", 0, &sandbox.Invalid{Field: "tunnel", Expected: "TOKEN PORT, a port of 1 to 65535", Got: "something else"}
	}
	return token, port, nil
}

// readLine reads one line of at most most bytes, and not a byte more than that
// line.
func readLine(r io.Reader, most int) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < most; {
		if _, err := io.ReadFull(r, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		line = append(line, one[0])
	}
	return "", &sandbox.Invalid{Field: "line", Expected: fmt.Sprintf("at most %d bytes", most), Got: "more"}
}

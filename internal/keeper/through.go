package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tunnel is the way to one connection to a server in a session's machine.
// Ownership: the files are the caller's, who closes them besides.
type Tunnel struct {
	// Files are pipes: to its input, from its output, from what tells how it stands.
	Files [3]*os.File

	cord *net.UnixConn
}

// Close ends the tunnel, if it has not ended.
func (t *Tunnel) Close() error { return t.cord.Close() }

// Tunnel asks the keeper for a tunnel to a TCP port of the machine's own loopback
// address, whatever the machine's network is.
//
// Blocks: until there is a tunnel, ctx is done, or 30 s. Whether somebody listens
// the pipes say.
// Errors: *Error with Closed where the keeper refuses, or knows no tunnels.
func (s *Session) Tunnel(ctx context.Context, port int) (*Tunnel, error) {
	ctx, cancel := context.WithTimeout(ctx, tunnelBound)
	defer cancel()
	no := func(err error) (*Tunnel, error) {
		return nil, &Error{Kind: Closed, SessionID: s.Record.SessionID, Err: err}
	}
	token, err := placeOf(s.stateDir, s.Record.SessionID).read(tokenName)
	if err != nil {
		return no(err)
	}
	cord, err := s.dialTunnels(ctx)
	if err != nil {
		return no(err)
	}
	defer context.AfterFunc(ctx, func() { _ = cord.SetDeadline(time.Unix(1, 0)) })()
	files, err := ask(cord, strings.TrimSpace(string(token))+" "+strconv.Itoa(port)+"\n")
	if err != nil {
		_ = cord.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return no(err)
	}
	return &Tunnel{Files: files, cord: cord}, nil
}

// dialTunnels reaches the socket beside the wire.
func (s *Session) dialTunnels(ctx context.Context) (*net.UnixConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", s.dir.Fd(), tunnelName))
	if errors.Is(err, os.ErrNotExist) {
		err = errors.New("its keeper is of a checkfu that does not forward")
	}
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// ask takes the files out of the answer.
func ask(c *net.UnixConn, line string) (files [3]*os.File, err error) {
	if _, err := c.Write([]byte(line)); err != nil {
		return files, err
	}
	said, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*len(files)))
	n, oobn, _, _, err := c.ReadMsgUnix(said, oob) // the first byte comes with the files
	if err != nil {
		return files, err
	}
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range messages {
		if got, rerr := unix.ParseUnixRights(&m); rerr == nil {
			fds = append(fds, got...)
		}
	}
	rest := ""
	if err == nil && n == 1 {
		rest, err = readLine(c, maxTunnelSay)
	}
	if err == nil && (string(said[:n])+rest != "ok" || len(fds) != len(files)) {
		why, refused := strings.CutPrefix(string(said[:n])+rest, "no ")
		if !refused {
			why = "its keeper's answer cannot be read"
		}
		err = errors.New(why)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "tunnel")
		if err != nil || i >= len(files) {
			_ = f.Close()
			continue
		}
		files[i] = f
	}
	return files, err
}

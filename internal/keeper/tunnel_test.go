package keeper

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// echo is a tunnel of the test's keeper: port 7 gives back what it is told, and
// says "over" beside it at the end; any other is refused.
func echo(_ context.Context, id sandbox.InstanceID, port int) (ours [3]*os.File, end func() error, err error) {
	if port != 7 {
		return ours, nil, errors.New("only 7,\nand not " + strconv.Itoa(port))
	}
	var theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return ours, nil, err
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		io.Copy(theirs[1], theirs[0])
		io.WriteString(theirs[2], "over")
		for _, f := range theirs {
			f.Close()
		}
	}()
	return ours, func() error {
		theirs[0].SetReadDeadline(time.Unix(1, 0))
		<-over
		return nil
	}, nil
}

func called(t *testing.T, dir, id string) *Session {
	t.Helper()
	s, err := Open(t.Context(), dir, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func through(t *testing.T, s *Session) *Tunnel {
	t.Helper()
	tunnel, err := s.Tunnel(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drop(tunnel) })
	for _, f := range tunnel.Files {
		f.SetDeadline(time.Now().Add(60 * time.Second))
	}
	return tunnel
}

func drop(tunnel *Tunnel) {
	tunnel.Close()
	for _, f := range tunnel.Files {
		f.Close()
	}
}

// rest is what comes out of a pipe until its end.
func rest(t *testing.T, f *os.File) string {
	t.Helper()
	all, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return string(all)
}

func TestTunnel(t *testing.T) {
	dir := t.TempDir()
	start(t, dir, "s")
	s := called(t, dir, "s")

	// Bytes go both ways, and the end of one is the other's.
	one, two := through(t, s), through(t, s)
	io.WriteString(one.Files[0], "hello")
	io.WriteString(two.Files[0], "beside it")
	one.Files[0].Close()
	if got := rest(t, one.Files[1]) + ", " + rest(t, one.Files[2]); got != "hello, over" {
		t.Errorf("%q", got)
	}
	// Whoever lets go of the cord ends it.
	back := make([]byte, len("beside it"))
	if _, err := io.ReadFull(two.Files[1], back); err != nil || string(back) != "beside it" {
		t.Errorf("%q, %v", back, err)
	}
	two.Close()
	if got := rest(t, two.Files[1]) + ", " + rest(t, two.Files[2]); got != ", over" {
		t.Errorf("%q", got)
	}

	_, err := s.Tunnel(t.Context(), 8)
	if !Closed.Is(err) || !strings.HasSuffix(err.Error(), ": only 7, and not 8") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Tunnel(ctx, 7); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// With its keeper a tunnel ends.
	three := through(t, s)
	end(t, dir, "s")
	if got := rest(t, three.Files[1]) + ", " + rest(t, three.Files[2]); got != ", over" && got != ", " {
		t.Errorf("%q", got)
	}
	if _, err := s.Tunnel(t.Context(), 7); !Closed.Is(err) {
		t.Error(err)
	}
}

// There is room for so many, and when one ends for one more.
func TestTunnel_Room(t *testing.T) {
	dir := t.TempDir()
	start(t, dir, "s")
	s := called(t, dir, "s")
	var open []*Tunnel
	for range maxTunnels {
		open = append(open, through(t, s))
	}
	_, err := s.Tunnel(t.Context(), 7)
	if !Closed.Is(err) || !strings.Contains(err.Error(), "64 connections are open") {
		t.Error(err)
	}
	drop(open[0])
	eventually(t, "there is room", func() bool {
		tunnel, err := s.Tunnel(t.Context(), 7)
		if err == nil {
			drop(tunnel)
		}
		return err == nil
	})
}

// full is a listener whose process has no descriptor left, for so many calls.
type full struct {
	net.Listener
	left int
}

func (f *full) Accept() (net.Conn, error) {
	if f.left--; f.left >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

// A connection that could not be taken is told, once, and ends no other.
func TestTunnel_AcceptFails(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), tunnelName))
	if err != nil {
		t.Fatal(err)
	}
	var told []error
	ctx, cancel := context.WithCancel(t.Context())
	tunnels := &tunnels{instance: func() *sandbox.Instance { return nil }, log: func(err error) { told = append(told, err) }}
	served := make(chan struct{})
	go func() {
		defer close(served)
		tunnels.serve(ctx, &full{Listener: l, left: 2})
	}()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	io.WriteString(c, "what\n")
	if got, err := io.ReadAll(c); !strings.HasPrefix(string(got), "no tunnel: ") || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	cancel()
	l.Close()
	<-served
	if len(told) != 1 || !errors.Is(told[0], syscall.EMFILE) {
		t.Error(told)
	}
}

// Who does not know the token gets no way in, whatever he says.
func TestTunnel_Strangers(t *testing.T) {
	dir := t.TempDir()
	start(t, dir, "s")
	held, path, err := placeOf(dir, "s").door(tunnelName)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for line, want := range map[string]string{
		newToken() + " 7\n":               "no the token is not this session's\n",
		newToken() + " 07\n":              "no tunnel: expected TOKEN PORT",
		"\n":                              "no tunnel: expected TOKEN PORT",
		" 7\n":                            "no tunnel: expected TOKEN PORT",
		strings.Repeat("x", maxTunnelAsk): "",
		"half a line":                     "",
	} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(60 * time.Second))
		io.WriteString(c, line)
		if !strings.HasSuffix(line, "\n") {
			c.(*net.UnixConn).CloseWrite()
		}
		got, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(got), want) || want == "" && len(got) > 0 {
			t.Errorf("%q: %q", line, got)
		}
		c.Close()
	}
}

func FuzzParseTunnelAsk(f *testing.F) {
	for _, seed := range []string{"TOKEN 7", "TOKEN 07", "TOKEN 65536", "TOKEN", " 7", "A B 7", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		token, port, err := parseTunnelAsk(line)
		if err == nil && (token+" "+strconv.Itoa(port) != line || strings.Contains(token, " ")) {
			t.Errorf("%q was read as %q and %d", line, token, port)
		}
	})
}

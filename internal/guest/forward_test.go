package guest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseForward(t *testing.T) {
	for _, c := range []struct {
		arg  string
		want forward
		bad  string // the field that is refused
	}{
		{"3128=/run/checkfu/egress/guard.sock", forward{3128, "/run/checkfu/egress/guard.sock"}, ""},
		{"65535=/a", forward{65535, "/a"}, ""},
		{"1=/a=b", forward{1, "/a=b"}, ""},
		{"0=/a", forward{}, "forward port"},
		{"65536=/a", forward{}, "forward port"},
		{"03128=/a", forward{}, "forward port"},
		{"+3128=/a", forward{}, "forward port"},
		{"=/a", forward{}, "forward port"},
		{"3128", forward{}, "forward socket"},
		{"3128=", forward{}, "forward socket"},
		{"3128=a", forward{}, "forward socket"},
		{"3128=/a\x00b", forward{}, "forward socket"},
		{"3128=/" + strings.Repeat("a", 107), forward{}, "forward socket"},
	} {
		got, err := parseForward(c.arg)
		var refused *WireError
		switch {
		case c.bad == "" && (err != nil || got != c.want):
			t.Errorf("%q: %+v, %v", c.arg, got, err)
		case c.bad != "" && (!errors.As(err, &refused) || refused.Field != c.bad):
			t.Errorf("%q: got %v, want a refusal of the %s", c.arg, err, c.bad)
		}
	}
}

func FuzzParseForward(f *testing.F) {
	for _, seed := range []string{"3128=/run/a", "0=/", "99999=/a", "3128=/a\x00", "=", "1=/="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		got, err := parseForward(arg)
		if err == nil && strconv.Itoa(got.port)+"="+got.socket != arg {
			t.Errorf("%q was read as %+v", arg, got)
		}
	})
}

// outside is a socket file that hands each connection to serve.
func outside(t *testing.T, serve func(*net.UnixConn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.UnixConn))
		}
	}()
	return path
}

// forwarded serves socket on a free loopback port in this process.
func forwarded(t *testing.T, socket string) (*listener, *net.TCPAddr) {
	t.Helper()
	l, err := forward{socket: socket}.listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.file.Close() })
	var at *net.TCPAddr
	err = l.raw.Control(func(fd uintptr) {
		if name, err := unix.Getsockname(int(fd)); err == nil {
			at = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}
		}
	})
	if err != nil || at == nil {
		t.Fatal("the listener has no address: ", err)
	}
	go l.serve()
	return l, at
}

func connect(t *testing.T, at *net.TCPAddr) *net.TCPConn {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// Every byte arrives in both directions, each of which ends by itself: a
// client that says that it is done still hears all of the answer.
func TestForward_BytesAndHalfClose(t *testing.T) {
	said := make([]byte, 3<<20+17)
	rand.Read(said)
	_, at := forwarded(t, outside(t, func(c *net.UnixConn) {
		defer c.Close()
		all, err := io.ReadAll(c) // ends with the client's half
		if err == nil {
			c.Write(append(all, "and this"...))
		}
	}))
	var all sync.WaitGroup
	for range 8 {
		c := connect(t, at)
		all.Go(func() {
			if _, err := c.Write(said); err != nil {
				t.Error(err)
				return
			}
			c.CloseWrite()
			if heard, err := io.ReadAll(c); err != nil || !bytes.Equal(heard, append(said[:len(said):len(said)], "and this"...)) {
				t.Errorf("%d of %d bytes came back, %v", len(heard), len(said)+8, err)
			}
		})
	}
	all.Wait()
}

// The end that goes first takes the other along, also in the middle.
func TestForward_TheOtherEndGoes(t *testing.T) {
	_, at := forwarded(t, outside(t, func(c *net.UnixConn) {
		c.Write([]byte("x"))
		c.Close()
	}))
	c := connect(t, at)
	if heard, err := io.ReadAll(c); string(heard) != "x" || err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%q, %v", heard, err)
	}
}

// Nobody behind the socket is a reset and not an empty answer.
func TestForward_NobodyListens(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead")
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close() // as the file of a guard that was killed
	for _, socket := range []string{dead, filepath.Join(t.TempDir(), "none")} {
		_, at := forwarded(t, socket)
		c, err := net.DialTCP("tcp", nil, at)
		if err == nil { // the reset may be as quick as that
			c.SetDeadline(time.Now().Add(30 * time.Second))
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		if !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: %v", socket, err)
		}
	}
}

// More connections than there is room for wait, and none is lost.
func TestForward_MoreThanThereIsRoomFor(t *testing.T) {
	hold, arrived := make(chan struct{}), make(chan struct{}, 2*maxTunnels)
	_, at := forwarded(t, outside(t, func(c *net.UnixConn) {
		defer c.Close()
		arrived <- struct{}{}
		<-hold
		io.Copy(c, c)
	}))
	const n = maxTunnels + 20
	var conns []*net.TCPConn
	for range n {
		conns = append(conns, connect(t, at))
	}
	for range maxTunnels {
		<-arrived
	}
	if len(arrived) != 0 {
		t.Errorf("%d connections beyond the bound", len(arrived))
	}
	close(hold)
	for i, c := range conns {
		c.Write([]byte{byte(i)})
		c.CloseWrite()
		if heard, err := io.ReadAll(c); err != nil || !bytes.Equal(heard, []byte{byte(i)}) {
			t.Fatalf("connection %d: %q, %v", i, heard, err)
		}
	}
}

// Init as a process: it says that it is ready once it listens, and refuses what
// it cannot carry out.
func TestInit_Forwards(t *testing.T) {
	socket := outside(t, func(c *net.UnixConn) {
		io.Copy(c, c)
		c.Close()
	})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().(*net.TCPAddr)
	taken := strconv.Itoa(at.Port) + "=" + socket
	for _, args := range [][]string{{"init", "x"}, {"init", taken}, {"serve", "3", "1"}} {
		if err := guestCommand(t, args...).Run(); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
	free.Close()

	owner, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	said, ready, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	init := guestCommand(t, "init", taken)
	init.Env = append(init.Env, OwnerFDEnv+"=3", ReadyFDEnv+"=4")
	init.ExtraFiles = []*os.File{owner, ready}
	if err := init.Start(); err != nil {
		t.Fatal(err)
	}
	owner.Close()
	ready.Close()
	if heard, err := io.ReadAll(said); err != nil || len(heard) != 1 {
		t.Errorf("ready: %q, %v", heard, err)
	}
	c := connect(t, at)
	c.Write([]byte("through"))
	c.CloseWrite()
	if heard, err := io.ReadAll(c); err != nil || string(heard) != "through" {
		t.Errorf("%q, %v", heard, err)
	}
	ours.Close()
	if err := init.Wait(); err != nil {
		t.Error(err)
	}
}

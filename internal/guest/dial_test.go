package guest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// dialed is a connection to a server on this host's loopback through "dial",
// which is a real process.
func dialed(t *testing.T, port string) (*Connection, func() int) {
	t.Helper()
	cmd := guestCommand(t, "dial", port)
	var host, theirs [3]*os.File
	for i := range host {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if host[i], theirs[i] = r, w; i == 0 {
			host[i], theirs[i] = w, r
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range theirs {
		f.Close()
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return NewConnection(host[0], host[1], host[2]), func() int {
		cmd.Wait()
		return cmd.ProcessState.ExitCode()
	}
}

// listening serves one connection on a free port of address.
func listening(t *testing.T, address string, serve func(*net.TCPConn)) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-served
	})
	go func() {
		defer close(served)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(60 * time.Second))
		serve(c.(*net.TCPConn))
	}()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// Each direction ends by itself: who says that he is done still hears all of the
// answer, and the other way round.
func TestDial_BytesAndHalfClose(t *testing.T) {
	said := make([]byte, 2<<20+17)
	rand.Read(said)
	for _, address := range []string{"127.0.0.1", "[::1]"} {
		port := listening(t, address, func(c *net.TCPConn) {
			all, err := io.ReadAll(c) // to its end, and only then the answer
			if err == nil {
				_, err = c.Write(all)
			}
			if err != nil {
				t.Error(err)
			}
		})
		c, exit := dialed(t, port)
		if err := c.Connected(); err != nil {
			t.Fatal(err)
		}
		go func() {
			c.Write(said)
			c.CloseWrite()
		}()
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, said) {
			t.Errorf("%s: %d bytes of %d came back, %v", address, len(got), len(said), err)
		}
		if code := exit(); code != 0 {
			t.Errorf("exit %d", code)
		}
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	}
	heard := make(chan string, 1)
	c, exit := dialed(t, listening(t, "127.0.0.1", func(c *net.TCPConn) {
		c.Write([]byte("greeting"))
		c.CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	}))
	if err := c.Connected(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); string(got) != "greeting" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	c.Write([]byte("answer"))
	c.CloseWrite()
	if got := <-heard; got != "answer" || exit() != 0 {
		t.Errorf("%q", got)
	}
	c.Close()
}

func TestDial_NobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	for port, want := range map[string]string{free: "connection refused", "0": "port: expected 1 to 65535, got 0", "080": "port: ", "65536": "port: "} {
		c, exit := dialed(t, port)
		err := c.Connected()
		if refused, is := errors.AsType[*DialError](err); !is || !strings.Contains(refused.Said, want) || strings.Contains(refused.Said, "checkfu-init") {
			t.Errorf("%s: %v", port, err)
		}
		if code := exit(); code != 1 {
			t.Errorf("%s: exit %d", port, code)
		}
		c.Close()
	}
}

// Half an answer is not taken for a whole one.
func TestDial_Cut(t *testing.T) {
	told := make(chan struct{})
	c, exit := dialed(t, listening(t, "127.0.0.1", func(c *net.TCPConn) {
		c.Write([]byte("half"))
		<-told
		c.SetLinger(0) // a reset
	}))
	if err := c.Connected(); err != nil {
		t.Fatal(err)
	}
	half := make([]byte, 4)
	if _, err := io.ReadFull(c, half); err != nil {
		t.Fatal(err)
	}
	close(told)
	for range 2 {
		if n, err := c.Read(half); n != 0 || err != ErrCut {
			t.Errorf("%d, %v", n, err)
		}
	}
	if code := exit(); code != 1 {
		t.Errorf("exit %d", code)
	}
	c.Close()
}

// Whose user goes away ends, and so does the connection.
func TestDial_Close(t *testing.T) {
	gone := make(chan error, 1)
	c, exit := dialed(t, listening(t, "127.0.0.1", func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		c.Write([]byte("into nothing"))
		gone <- err
	}))
	if err := c.Connected(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := <-gone; err != nil {
		t.Error(err)
	}
	exit()
}

// Whoever has the workload's user can speak in its place: what he says is bounded,
// and nothing that he leaves out is taken for an end.
func TestConnection_WhatIsSaidBesides(t *testing.T) {
	for _, c := range []struct {
		status, out string
		want        string // of the refusal, "" for a connection
		end         error
	}{
		{"\x01\x02", "all", "", io.EOF},
		{"\x01", "half", "", ErrCut},
		{"\x01\x01", "half", "", ErrCut},
		{"\x01\x00\x02", "half", "", ErrCut},
		{"", "", "guest: not connected", nil},
		{"\x02\x01", "", "guest: not connected: \x02\x01", nil},
		{"checkfu-init: connect: connection refused\n", "", "guest: not connected: connect: connection refused", nil},
		{strings.Repeat("x", 60000), "", "guest: not connected: " + strings.Repeat("x", dialTextBound), nil},
	} {
		var ours, theirs [3]*os.File
		for i := range ours {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			if ours[i], theirs[i] = r, w; i == 0 {
				ours[i], theirs[i] = w, r
			}
		}
		io.WriteString(theirs[1], c.out)
		io.WriteString(theirs[2], c.status)
		for _, f := range theirs {
			f.Close()
		}
		conn := NewConnection(ours[0], ours[1], ours[2])
		err := conn.Connected()
		if c.want != "" {
			if err == nil || err.Error() != c.want {
				t.Errorf("%.80q: %v", c.status, err)
			}
		} else if err != nil {
			t.Errorf("%.80q: %v", c.status, err)
		} else {
			buffer := make([]byte, 16)
			n, err := io.ReadFull(conn, buffer[:len(c.out)])
			if _, end := conn.Read(buffer); err != nil || string(buffer[:n]) != c.out || end != c.end {
				t.Errorf("%.80q: %q, %v, %v", c.status, buffer[:n], err, end)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

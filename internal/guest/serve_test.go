package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serveHere runs the guest init as a child, PID 1 of its own namespace where
// the test may make one.
func serveHere(t *testing.T) (*Client, *exec.Cmd) {
	t.Helper()
	c, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	cmd := guestCommand(t, "serve", "3")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return c, cmd
}

func TestServe(t *testing.T) {
	c, cmd := serveHere(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Start(t.Context(), Start{
		Argv: []string{"sh", "-c", "ls -l /proc/self/fd; pwd; echo $A; exit 9"}, Env: []string{"PATH=/bin:/usr/bin", "A=b c"}, Dir: "/usr",
		Streams: [3]*os.File{nil, w, w},
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	if exit, err := p.Wait(t.Context()); err != nil || exit != (Exit{Code: 9}) {
		t.Fatalf("%+v, %v", exit, err)
	}
	if s := string(out); !strings.Contains(s, "0 -> /dev/null") || strings.Contains(s, "socket") || !strings.HasSuffix(s, "/usr\nb c\n") {
		t.Errorf("got %s", s)
	}
	if _, err := c.Start(t.Context(), Start{Argv: []string{"/none"}, Dir: "/"}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v", err)
	}

	c.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("init outlived its owner")
	}
	if _, err := c.Start(t.Context(), Start{Argv: []string{"true"}, Dir: "/"}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestServeExits has many commands end at once, some by signal, with signals
// sent to others meanwhile.
func TestServeExits(t *testing.T) {
	c, _ := serveHere(t)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			want, script := Exit{Code: i}, "(true & true &); exit "+strconv.Itoa(i)
			if i%3 == 0 {
				want, script = Exit{Signal: unix.SIGTERM}, "sleep 100"
			}
			p, err := c.Start(t.Context(), Start{Argv: []string{"/bin/sh", "-c", script}, Dir: "/", Env: []string{"PATH=/bin:/usr/bin"}})
			if err != nil {
				t.Error(err)
				return
			}
			if want.Signal != 0 {
				for range 3 {
					if err := p.Signal(t.Context(), unix.SIGTERM); err != nil {
						t.Error(err)
					}
				}
			}
			if got, err := p.Wait(t.Context()); err != nil || got != want {
				t.Errorf("%d: got %+v, %v", i, got, err)
			}
		})
	}
	all.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.commands) != 0 {
		t.Errorf("%d commands are still kept", len(c.commands))
	}
}

// TestServeRefuses sends what no client of ours would: init must end.
func TestServeRefuses(t *testing.T) {
	start := startRequest{null: [3]bool{true, true, true}, argv: []string{"/bin/true"}, dir: "/"}
	body, err := start.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, said := range map[string][]byte{
		"noise":            []byte("GET / HTTP/1.1\r\n\r\n"),
		"an answer":        message(kindStarted, 1, 0, nil),
		"signal 0":         message(kindSignal, 1, 0, []byte{0}),
		"empty signal":     message(kindSignal, 1, 0, nil),
		"missing files":    message(kindStart, 1, 3, body),
		"too large":        header{size: MaxMessage + 1, kind: kindStart}.append(nil),
		"null out of hand": message(kindStart, 1, 0, append([]byte{8}, body[1:]...)),
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serveHere(t)
			if err := c.send(said, nil); err != nil {
				t.Fatal(err)
			}
			select {
			case <-c.Done():
			case <-time.After(5 * time.Second):
				t.Fatal("init went on")
			}
		})
	}
}

package lab_test

import (
	"errors"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/sandbox"
)

// TestNamed: a destination that answers is alive and reached by the script, one
// that does not is neither; a proxy is asked where there is one.
func TestNamed(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	open := sandbox.Destination{Host: "localhost", Port: int64(l.Addr().(*net.TCPAddr).Port)}
	shut, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := sandbox.Destination{Host: "localhost", Port: int64(shut.Addr().(*net.TCPAddr).Port)}
	shut.Close()
	n := lab.NewNamed(open, closed)
	if n.Listed() != open || n.Unlisted() != closed || n.Accepted(open) != -1 {
		t.Errorf("%+v", n)
	}
	if err := n.Alive(t.Context(), open); err != nil {
		t.Error(err)
	}
	if n.Alive(t.Context(), closed) == nil {
		t.Error("nobody listens, and it is alive")
	}
	for _, c := range []struct {
		d       sandbox.Destination
		reached bool
	}{{open, true}, {closed, false}} {
		err := exec.Command("/bin/sh", "-c", n.Connect(c.d)).Run()
		if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() == lab.CannotTry {
			t.Skip("nothing to connect with")
		}
		if (err == nil) != c.reached {
			t.Errorf("%v: %v", c.d, err)
		}
	}
	if script := n.Connect(open); !strings.Contains(script, "CONNECT localhost:"+strconv.FormatInt(open.Port, 10)+" ") {
		t.Errorf("the proxy is not asked: %s", script)
	}
}

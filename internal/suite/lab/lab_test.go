package lab_test

import (
	"net"
	"os/exec"
	"strconv"
	"testing"

	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/sandbox"
)

// TestLab: both destinations answer and count; a closed one does not, and the
// script of Connect tells the two apart on this very host.
func TestLab(t *testing.T) {
	l, err := lab.Open()
	if err != nil {
		t.Fatal(err)
	}
	connect := func(d sandbox.Destination) int {
		cmd := exec.Command("/bin/sh", "-c", l.Connect(d))
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode()
	}
	for _, d := range []sandbox.Destination{l.Listed(), l.Unlisted()} {
		if err := l.Alive(t.Context(), d); err != nil {
			t.Errorf("%v: %v", d, err)
		}
		if n := l.Accepted(d); n != 1 {
			t.Errorf("counted %d", n)
		}
		if code := connect(d); code != 0 {
			t.Errorf("connect: %d", code)
		}
	}
	if err := l.Alive(t.Context(), sandbox.Destination{Host: "example.invalid", Port: 1}); err == nil {
		t.Error("a stranger is alive")
	}
	listed := l.Listed()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", net.JoinHostPort(listed.Host, strconv.FormatInt(listed.Port, 10))); err == nil {
		t.Error("it still listens")
	}
	if err := l.Alive(t.Context(), listed); err == nil {
		t.Error("a closed destination is alive")
	}
	if code := connect(listed); code == 0 || code == lab.CannotTry {
		t.Errorf("connect to what is closed: %d", code)
	}
}

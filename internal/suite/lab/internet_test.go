package lab_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/sandbox"
)

// TestInternet: both destinations answer where the guards are, are counted there,
// and are out of reach from here, where the script has no proxy.
func TestInternet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	l, err := lab.OpenInternet()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, d := range []sandbox.Destination{l.Listed(), l.Unlisted()} {
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
		if err := l.Alive(t.Context(), d); err != nil {
			t.Errorf("%v: %v", d, err)
		}
		if n := l.Accepted(d); n != 1 {
			t.Errorf("%v: counted %d", d, n)
		}
	}
	// In an empty network there is not even an address to come from.
	cmd := exec.Command("unshare", "-n", "/bin/sh", "-c", l.Connect(l.Listed()))
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code == 0 || code == lab.CannotTry {
		t.Errorf("connect without a network: %d", code)
	}
	if n := l.Accepted(l.Listed()); n != 1 {
		t.Errorf("counted %d", n)
	}
	stranger := sandbox.Destination{Host: "example.invalid", Port: 1}
	if l.Alive(t.Context(), stranger) == nil || l.Accepted(stranger) != -1 {
		t.Error("a stranger is alive")
	}
}

package launch

import (
	"errors"
	"os"
	"strconv"
	"testing"
)

func TestStart(t *testing.T) {
	p, addr := start(t, "")
	if err := echo(t, addr); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.Err() != nil || p.Said() != "" {
		t.Errorf("%v, %q", p.Err(), p.Said())
	}
	if err := echo(t, addr); err == nil {
		t.Error("it still answers")
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(p.PID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a zombie: %v", err)
	}
}

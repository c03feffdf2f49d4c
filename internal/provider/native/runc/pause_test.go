package runc

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine/machinetest"
)

func TestPause(t *testing.T) { machinetest.Pause(t, newHost(t).start(t), env) }

// TestPause_NotOurs: what somebody else holds still stays so when our pause ends.
func TestPause_NotOurs(t *testing.T) {
	m := newHost(t).start(t)
	freezer := filepath.Join(m.(*instance).tree, "cgroup.freeze")
	if err := os.WriteFile(freezer, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	theirs, err := m.Pause(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs(); err != nil {
		t.Error(err)
	}
	if held, err := os.ReadFile(freezer); err != nil || string(held) != "1\n" {
		t.Errorf("what another holds still was set going: %q, %v", held, err)
	}
	if err := os.WriteFile(freezer, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
}

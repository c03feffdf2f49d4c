package cli

import (
	"os"
	"testing"
)

func TestASweepRemovesTheStagingOfDeadRunsOnly(t *testing.T) {
	state := t.TempDir()
	if runs, err := sweepScratch(state); err != nil || runs != nil {
		t.Fatalf("%v %v", runs, err)
	}
	alive, err := makeScratch(state, "run_alive")
	if err != nil {
		t.Fatal(err)
	}
	dead, err := makeScratch(state, "run_dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dead.dir+"/copy", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // what the kernel does for a process that was killed
	for range 2 {     // nothing goes of it
		if runs, err := idleScratch(state); err != nil || len(runs) != 1 || runs[0] != "run_dead" {
			t.Errorf("%v %v", runs, err)
		}
	}
	runs, err := sweepScratch(state)
	if err != nil || len(runs) != 1 || runs[0] != "run_dead" {
		t.Errorf("%v %v", runs, err)
	}
	if _, err := os.Stat(dead.dir); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(alive.dir); err != nil {
		t.Error(err)
	}
	if err := alive.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(alive.dir); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

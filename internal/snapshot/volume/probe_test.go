package volume

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestProbeChild is a probe that is in its middle until its input ends.
func TestProbeChild(t *testing.T) {
	dir := os.Getenv("VOLUME_TEST_PROBE")
	if dir == "" {
		t.Skip("the child of TestSweep")
	}
	work, _, err := workplace(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Create(t.Context(), work+"/image", 1<<20, 64), os.Mkdir(work+"/mount", 0o700)); err != nil {
		t.Fatal(err)
	}
	v, err := Mount(work+"/image", work+"/mount")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString(work + "\n")
	io.Copy(io.Discard, os.Stdin)
}

// TestSweep_WhatAKilledProbeLeft: its directory, its mount, frozen as it is, and its
// device; and nothing of one that is at work.
func TestSweep_WhatAKilledProbeLeft(t *testing.T) {
	needs(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{probePrefix + "file", "other"} { // neither is a probe's
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(self, "-test.run=^TestProbeChild$")
	cmd.Env = append(os.Environ(), "VOLUME_TEST_PROBE="+dir)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	work, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	work = work[:len(work)-1]
	image := filepath.Join(work, "image")
	if err := Sweep(dir); err != nil {
		t.Error(err)
	}
	if n := devices(t, image); n != 1 {
		t.Errorf("one at work has %d devices", n)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if _, err := os.Stat(image); err != nil || devices(t, image) != 1 {
		t.Fatalf("the killed one left nothing: %v", err)
	}
	if err := Probe(t.Context(), dir); err != nil { // which sweeps
		t.Error(err)
	}
	none(t, image)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := Sweep(filepath.Join(dir, "none")); err == nil {
		t.Error("swept nowhere")
	}
}

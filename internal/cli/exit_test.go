package cli

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

func TestExitCode(t *testing.T) {
	failed := &runner.Error{Phase: runner.PhaseStage, Err: errors.New("x")}
	input := &runner.Error{Phase: runner.PhaseSelect, Err: &sandbox.Invalid{}}
	done := sandbox.DispositionDestroyed
	for name, test := range map[string]struct {
		record runner.Record
		err    error
		want   int
	}{
		"own code":                 {runner.Record{Cause: runner.CauseExited, Exit: sandbox.Exited(3)}, nil, 3},
		"own 255":                  {runner.Record{Cause: runner.CauseExited, Exit: sandbox.Exited(255)}, nil, 255},
		"success":                  {runner.Record{Cause: runner.CauseExited, Exit: sandbox.Exited(0)}, nil, 0},
		"SIGKILL":                  {runner.Record{Cause: runner.CauseExited, Exit: sandbox.Signaled("SIGKILL")}, nil, 137},
		"real-time signal":         {runner.Record{Cause: runner.CauseExited, Exit: sandbox.Signaled("SIGRTMIN+1")}, nil, 163},
		"unknown signal":           {runner.Record{Cause: runner.CauseExited, Exit: sandbox.Signaled("SIGNOSUCH")}, nil, 137},
		"timeout":                  {runner.Record{Cause: runner.CauseTimedOut, Exit: sandbox.Signaled("SIGKILL")}, nil, 124},
		"nobody reads":             {runner.Record{Cause: runner.CauseOutputClosed, Exit: sandbox.Signaled("SIGKILL")}, nil, 141},
		"not found":                {runner.Record{Cause: runner.CauseNotFound}, nil, 127},
		"not started":              {runner.Record{Cause: runner.CauseNotStarted}, nil, 126},
		"Ctrl-C":                   {runner.Record{Cause: runner.CauseInterrupted, StopSignal: "SIGINT", InstanceID: "i", Disposition: done}, failed, 130},
		"SIGTERM":                  {runner.Record{Cause: runner.CauseInterrupted, StopSignal: "SIGTERM", InstanceID: "i", Disposition: done}, nil, 143},
		"Ctrl-C before a machine":  {runner.Record{Cause: runner.CauseInterrupted, StopSignal: "SIGINT"}, failed, 130},
		"Ctrl-C with a leak":       {runner.Record{Cause: runner.CauseInterrupted, StopSignal: "SIGINT", InstanceID: "i"}, failed, 125},
		"our failure after exit 0": {runner.Record{Cause: runner.CauseExited, Exit: sandbox.Exited(0)}, failed, 125},
		"bad input":                {runner.Record{}, input, 2},
		"nothing known":            {runner.Record{}, nil, 125},
	} {
		if got := exitCode(&test.record, test.err); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestUnmetRequirementsNameTheFlag(t *testing.T) {
	for want, unmet := range map[string]*sandbox.Error{
		`--memory: expected 32B to 4.0TiB (what the provider offers), got "1B"`:    sandbox.Unavailable("select", sandbox.RequireResources, "memory_bytes 1", "memory_bytes 32 to 4398046511104"),
		`--pids: expected 8 to 9 (what the provider offers), got "1"`:              sandbox.Unavailable("select", sandbox.RequireResources, "max_processes 1", "max_processes 8 to 9"),
		`--cpus: expected 0.05 to 6 (what the provider offers), got "0.001"`:       sandbox.Unavailable("select", sandbox.RequireResources, "cpu_millis 1", "cpu_millis 50 to 6000"),
		`--image: expected b (what the provider offers), got "a"`:                  sandbox.Unavailable("select", sandbox.RequireBaseImage, "a", "b"),
		`--provider: expected microvm (what the provider offers), got "container"`: sandbox.Unavailable("select", sandbox.RequireTier, "container", "microvm"),
	} {
		err := explain(&runner.Error{Phase: runner.PhaseSelect, Err: unmet}, &runner.Record{})
		if err.Error() != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestSinkAppearsWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	only := func(want string) {
		t.Helper()
		entries, _ := os.ReadDir(dir)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("files %q, want %q", got, want)
		}
	}
	s := &sink{path: dir + "/f"}
	if _, err := s.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	s.discard()
	only("")
	s = &sink{path: dir + "/f"}
	if _, err := s.Write([]byte("whole")); err != nil {
		t.Fatal(err)
	}
	if err := s.commit(); err != nil {
		t.Fatal(err)
	}
	s.discard()
	only("f")
	// A link is followed to the file it names, and stays a link.
	if err := os.Symlink("f", dir+"/l"); err != nil {
		t.Fatal(err)
	}
	s = &sink{path: dir + "/l"}
	if err := s.commit(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/f"); err != nil || len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
	only("f l")
	// A device is written to and not replaced.
	s = &sink{path: "/dev/null"}
	if _, err := s.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if err := s.commit(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode().IsRegular() {
		t.Fatalf("/dev/null: %v, %v", info, err)
	}
}

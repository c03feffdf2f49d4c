package e2e

import (
	"io"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start runs a command that says when it is ready, and returns once it has.
func start(t *testing.T, provider string) (*exec.Cmd, io.WriteCloser) {
	t.Helper()
	cmd := command(t, boxed(provider, "echo ready; cat >/dev/null; exit 7", "--quiet")...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if n, _ := io.ReadFull(out, make([]byte, 6)); n != 6 {
		t.Fatal("the command did not start")
	}
	go io.Copy(io.Discard, out)
	return cmd, in
}

func TestSweepAfterKilledRunsLeavesNothing(t *testing.T) {
	for _, provider := range providers {
		// At random moments of the life, and surely once while it runs.
		for _, after := range []time.Duration{0, 20, 60, 100, 150, 200, 300, 500} {
			cmd := command(t, boxed(provider, "sleep 5", "--quiet")...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after * time.Millisecond) // not a wait: a moment to die at
			cmd.Process.Kill()
			cmd.Wait()
		}
		cmd, _ := start(t, provider)
		cmd.Process.Kill()
		cmd.Wait()
		mustRun(t, "sweep")
		if left := census(); len(left) > 0 {
			t.Errorf("%s: left after the sweep:\n%s", provider, strings.Join(left, "\n"))
		}
	}
}

func TestSweepEndsNoLiveRun(t *testing.T) {
	type live struct {
		cmd *exec.Cmd
		in  io.WriteCloser
	}
	var runs []live
	for i := range 10 {
		cmd, in := start(t, providers[i%2])
		runs = append(runs, live{cmd, in})
	}
	dead, _ := start(t, "native")
	dead.Process.Kill()
	dead.Wait()
	if r := mustRun(t, "ps"); strings.Count(r.stdout, "\n") < 10 {
		t.Errorf("ps:\n%s", r.stdout)
	}
	mustRun(t, "sweep")
	for _, r := range runs {
		r.in.Close()
		r.cmd.Wait()
		if code := r.cmd.ProcessState.ExitCode(); code != 7 {
			t.Errorf("a live run ended with %d", code)
		}
	}
	if left := census(); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

// A process group that is stopped by the terminal's hang-up must not strand
// its machine either.
func TestHangUpEndsTheRun(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("runs under nohup, and so does what it starts")
	}
	for _, provider := range providers {
		cmd, _ := start(t, provider)
		kill(cmd, syscall.SIGHUP)
		cmd.Wait()
		eventually(t, provider+": the machine has ended", func() bool { return len(census()) == 0 || sweepable(t) })
	}
}

func sweepable(t *testing.T) bool {
	mustRun(t, "sweep")
	return len(census()) == 0
}

package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime/clocktest"
	"github.com/checkfu/checkfu/sandbox"
)

func TestARunBringsBackAPatchThatGitApplies(t *testing.T) {
	repo := repository(t)
	before := snapshot(t, repo)
	w := newWorld(t, `pwd; ls -a; cat dir/dirty.txt; printf 'one\nTWO\nthree\n' > keep.txt; rm gone.txt; echo new > fresh.txt; chmod +x dir/dirty.txt`)
	w.spec.Repo = &Repo{Dir: repo}
	r, err := w.run()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := w.out.String(), "/workspace/repo\n.git\n.gitignore\ndir\ngone.txt\nkeep.txt\nlink\nchanged here\n"; !strings.HasSuffix(got, want) {
		t.Errorf("output %q, stderr %q", got, w.err.String())
	}
	if after := snapshot(t, repo); after != before {
		t.Errorf("the working tree was touched:\n%s\n%s", before, after)
	}
	m := r.Mounts[0]
	if !m.Collected || !m.Dirty || m.SkipCount["ignored"] != 1 || m.SkipCount["untracked"] != 1 {
		t.Errorf("%+v", m)
	}
	want := map[string]string{"keep.txt": "modified", "gone.txt": "deleted", "fresh.txt": "added", "dir/dirty.txt": "mode"}
	for _, c := range m.Changes {
		if want[c.Path] != c.Why {
			t.Errorf("%s: %s", c.Path, c.Why)
		}
		delete(want, c.Path)
	}
	if len(want) > 0 || m.Lines != (Lines{Added: 2, Deleted: 2}) || m.PatchSize != int64(w.patch.Len()) {
		t.Errorf("missing %v, %+v, %d bytes", want, m.Lines, m.PatchSize)
	}
	patch := filepath.Join(t.TempDir(), "run.patch")
	if err := os.WriteFile(patch, w.patch.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "apply", patch)
	if b, _ := os.ReadFile(filepath.Join(repo, "keep.txt")); string(b) != "one\nTWO\nthree\n" {
		t.Errorf("%q", b)
	}
	if _, err := os.Stat(filepath.Join(repo, "gone.txt")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone.txt: %v", err)
	}
}

// snapshot is every name of a tree with its content.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, _ := os.ReadFile(path)
		b.WriteString(path + "\x00" + string(content) + "\x00")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheRecordSaysWhatWasEnforcedAndNoValueOfTheEnvironment(t *testing.T) {
	const canary = "canary-3b1f-value"
	w := newWorld(t, `test "$TOKEN" = canary-3b1f-value; echo $?; env > /dev/null; echo x > /mnt/session/outputs/o; echo x > keep.txt`)
	w.spec.Repo, w.spec.OutDir = &Repo{Dir: repository(t)}, filepath.Join(t.TempDir(), "out")
	w.spec.Environment = map[string]string{"TOKEN": canary, "EMPTY": ""}
	// The script holds the canary to compare with it; the record holds argv.
	w.spec.Command[2] = strings.Replace(w.spec.Command[2], `"$TOKEN" = canary-3b1f-value`, `-n "$TOKEN"`, 1)
	r, err := w.run()
	if err != nil || !strings.Contains(w.out.String(), "0\n") {
		t.Fatalf("%v %q %q", err, w.out.String(), w.err.String())
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"record": string(data), "output": w.out.String(), "errors": w.err.String(), "patch": w.patch.String(), "files": snapshot(t, w.spec.OutDir),
	} {
		if strings.Contains(text, canary) {
			t.Errorf("%s holds a value of the environment:\n%s", name, text)
		}
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if doc["schema"] != RecordSchema || len(r.Enforcement) != 9 || strings.Join(r.Command.EnvironmentKeys, " ") != "EMPTY TOKEN" {
		t.Errorf("%s", data)
	}
	if r.Disposition != sandbox.DispositionDestroyed || r.Evidence == nil || r.Cause != CauseExited || len(r.Phases) != 9 {
		t.Errorf("%+v", r)
	}
	if r.MachineMemoryBytes != 128<<20 {
		t.Errorf("memory and disk together are %d", r.MachineMemoryBytes)
	}
}

func TestInput(t *testing.T) {
	for _, test := range []struct {
		name  string
		input io.Reader
		want  string
	}{
		{"none is end of file at once", nil, "0\n"},
		{"empty", strings.NewReader(""), "0\n"},
		{"whole", bytes.NewReader(make([]byte, 1<<20)), "1048576\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, "")
			w.spec.Command, w.spec.Input = []string{"wc", "-c"}, test.input
			if r, err := w.run(); err != nil || w.out.String() != test.want || *r.Exit.ExitCode != 0 {
				t.Errorf("%v %q", err, w.out.String())
			}
		})
	}
}

func TestHowACommandEnds(t *testing.T) {
	for _, test := range []struct {
		name    string
		command []string
		cause   Cause
		exit    sandbox.Exit
	}{
		{"by code", []string{"sh", "-c", "exit 7"}, CauseExited, sandbox.Exited(7)},
		{"by signal", []string{"sh", "-c", "kill -KILL $$"}, CauseExited, sandbox.Signaled("SIGKILL")},
		{"not found", []string{"no-such-program"}, CauseNotFound, sandbox.Exit{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, "")
			w.spec.Command = test.command
			r, err := w.run()
			if err != nil || r.Cause != test.cause || r.Exit.Signal != test.exit.Signal || (r.Exit.ExitCode == nil) != (test.exit.ExitCode == nil) {
				t.Fatalf("%v %+v", err, r)
			}
			if r.Exit.ExitCode != nil && *r.Exit.ExitCode != *test.exit.ExitCode {
				t.Errorf("%d", *r.Exit.ExitCode)
			}
		})
	}
}

func TestStartFailuresAreToldApart(t *testing.T) {
	for reason, want := range map[string]Cause{
		sandbox.ReasonNotFound: CauseNotFound, sandbox.ReasonStartFailed: CauseNotStarted, sandbox.ReasonInstanceLost: "",
	} {
		if got := startFailure(sandbox.FailedAt(sandbox.OpOpenProcess, "x", reason, nil)); got != want {
			t.Errorf("%s: %s", reason, got)
		}
	}
	if got := startFailure(sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProviderError, nil)); got != "" {
		t.Errorf("a provider's failure is not the command's: %s", got)
	}
}

func TestATimeoutKeepsTheOutputAndTheChanges(t *testing.T) {
	w := newWorld(t, `echo before; echo x > keep.txt; echo x > /mnt/session/outputs/o; sleep 1000`)
	w.spec.Repo, w.spec.OutDir = &Repo{Dir: repository(t)}, filepath.Join(t.TempDir(), "out")
	w.spec.Timeout = 300 * time.Millisecond
	r, err := w.run()
	if err != nil || r.Cause != CauseTimedOut || w.out.String() != "before\n" {
		t.Fatalf("%v %s %q", err, r.Cause, w.out.String())
	}
	if w.patch.Len() == 0 || len(r.Outputs) != 1 || r.Outputs[0].Refused != "" {
		t.Errorf("patch of %d bytes, %+v", w.patch.Len(), r.Outputs)
	}
}

func TestOutputThatNobodyReadsEndsTheCommand(t *testing.T) {
	w := newWorld(t, "")
	w.spec.Command = []string{"yes"}
	w.spec.Output = closedPipe{}
	if r, err := w.run(); err != nil || r.Cause != CauseOutputClosed {
		t.Errorf("%v %+v", err, r)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestInterruption(t *testing.T) {
	const ready = "echo ready; sleep 1000"
	const deaf = "trap '' INT; " + ready
	for _, test := range []struct {
		name   string
		script string
		stop   func(t *testing.T, w *world, c chan<- sandbox.ControlSignal, clock *clocktest.Clock)
		exit   string // the command's own end, "" where it is not known
	}{
		{"one is the command's", ready, func(_ *testing.T, w *world, c chan<- sandbox.ControlSignal, _ *clocktest.Clock) {
			<-w.out.seen
			c <- sandbox.SignalInterrupt
		}, "SIGINT"},
		{"one and five seconds", deaf, func(t *testing.T, w *world, c chan<- sandbox.ControlSignal, clock *clocktest.Clock) {
			<-w.out.seen
			c <- sandbox.SignalInterrupt
			if err := clock.AwaitTimers(t.Context(), 2); err != nil { // the timeout and the grace
				t.Error(err)
			}
			clock.Advance(grace)
		}, "SIGKILL"},
		{"two", deaf, func(_ *testing.T, w *world, c chan<- sandbox.ControlSignal, _ *clocktest.Clock) {
			<-w.out.seen
			c <- sandbox.SignalInterrupt
			c <- sandbox.SignalInterrupt
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.script)
			clock := clocktest.New(time.Now()) // the provider's programs sleep by the real one
			w.runner.Clock = clock
			c := make(chan sandbox.ControlSignal)
			w.spec.Stop = c
			go test.stop(t, w, c, clock)
			r, err := w.run()
			if r.Cause != CauseInterrupted || r.StopSignal != "SIGINT" || r.Exit.Signal != test.exit || (err == nil) != (test.exit != "") {
				t.Errorf("%v: %s %s %+v", err, r.Cause, r.StopSignal, r.Exit)
			}
			if r.Disposition != sandbox.DispositionDestroyed {
				t.Errorf("the machine is %q", r.Disposition)
			}
		})
	}
}

func TestAnInterruptionBeforeTheCommandEndsTheRun(t *testing.T) {
	w := newWorld(t, "echo never")
	w.spec.Repo = &Repo{Dir: repository(t)}
	c := make(chan sandbox.ControlSignal, 1)
	w.spec.Stop = c
	w.use(&saboteur{Provider: w.provider, before: func(op sandbox.Operation) error {
		if op == sandbox.OpActivate {
			c <- sandbox.SignalTerminate
			return errWait
		}
		return nil
	}})
	r, err := w.run()
	if err == nil || r.Cause != CauseInterrupted || r.StopSignal != "SIGTERM" || w.out.String() != "" || r.Disposition == "" {
		t.Errorf("%v %+v", err, r)
	}
}

func TestACancelledContextDestroysTheMachine(t *testing.T) {
	w := newWorld(t, "echo ready; sleep 1000")
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-w.out.seen; cancel() }()
	r, err := w.runner.Run(ctx, w.spec)
	if !errors.Is(err, context.Canceled) || r.Disposition != sandbox.DispositionDestroyed {
		t.Errorf("%v %+v", err, r)
	}
	w.nothingLeft()
}

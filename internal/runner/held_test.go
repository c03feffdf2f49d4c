package runner

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// holder is of the tests here.
var holder = Holder{SessionID: "ses", LeaseID: "lea", ExpiresAt: sandbox.At(time.Now().Add(time.Hour))}

// as is a runner of another process: it knows the provider and nothing else.
func (w *world) as() *Runner {
	return &Runner{Adapters: w.runner.Adapters, Target: w.runner.Target, Platform: w.runner.Platform, Report: w.runner.Report}
}

func TestAHeldMachineKeepsItsFilesFromOneCommandToTheNext(t *testing.T) {
	w := newWorld(t, "")
	w.spec.Repo, w.spec.Command = &Repo{Dir: repository(t)}, nil
	made, in, err := w.runner.Prepare(t.Context(), w.spec, holder)
	if err != nil {
		t.Fatal(err)
	}
	if in.SessionID != "ses" || in.LeaseID != "lea" || in.ExpiresAt != holder.ExpiresAt || in.State != sandbox.StateActive || made.Mounts[0].Files == 0 {
		t.Errorf("%+v\n%+v", in, made.Mounts)
	}
	w.spec.WorkingDirectory = RepoPath
	for _, c := range []struct {
		script, out string
		code        int64
		cause       Cause
	}{
		{"cat keep.txt; echo two > /tmp/n; exit 3", "one\ntwo\nthree\n", 3, CauseExited},
		{"cat /tmp/n", "two\n", 0, CauseExited},
		{"", "", 0, CauseNotFound},
		{"cat /tmp/n", "two\n", 0, CauseExited},
	} {
		w.out.b.Reset()
		w.spec.Command = []string{"sh", "-c", c.script}
		if c.script == "" {
			w.spec.Command = []string{"no-such-thing"}
		}
		r, err := w.as().Execute(t.Context(), w.spec, in)
		if err != nil || r.Cause != c.cause || c.cause == CauseExited && *r.Exit.ExitCode != c.code || w.out.String() != c.out {
			t.Errorf("%q: %q, %+v, %v", c.script, w.out.String(), r, err)
		}
	}
	if err := w.provider.Destroy(t.Context(), in.InstanceID); err != nil {
		t.Error(err)
	}
	w.nothingLeft()
}

func TestACommandInAHeldMachineIsDestroyedAfterAnyFailure(t *testing.T) {
	w := newWorld(t, "echo begun; sleep 3600")
	_, in, err := w.runner.Prepare(t.Context(), w.spec, holder)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-w.out.seen; cancel() }()
	if _, err := w.as().Execute(ctx, w.spec, in); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// One process at a time: that the next one starts says that the first went.
	w.spec.Command = []string{"true"}
	if r, err := w.as().Execute(t.Context(), w.spec, in); err != nil || r.Cause != CauseExited {
		t.Errorf("%+v, %v", r, err)
	}
	w.spec.Command = nil
	if _, err := w.as().Execute(t.Context(), w.spec, in); err == nil || !strings.Contains(err.Error(), "command") {
		t.Error("no command was taken", err)
	}
	if err := w.provider.Destroy(t.Context(), in.InstanceID); err != nil {
		t.Error(err)
	}
}

func TestNothingIsHeldThatCouldNotBePrepared(t *testing.T) {
	for op, want := range map[sandbox.Operation]Phase{sandbox.OpProvision: PhaseProvision, sandbox.OpWriteFile: PhaseStage, sandbox.OpActivate: PhaseActivate} {
		w := newWorld(t, "")
		w.spec.Repo = &Repo{Dir: repository(t)}
		w.runner.Adapters = []sandboxruntime.Adapter{{Provider: &saboteur{w.provider, func(at sandbox.Operation) error {
			if at == op {
				return sandbox.Failed(op, sandbox.ReasonProviderError, nil)
			}
			return nil
		}}}}
		_, _, err := w.runner.Prepare(t.Context(), w.spec, holder)
		if e := (*Error)(nil); !errors.As(err, &e) || e.Phase != want {
			t.Errorf("%s: %v", op, err)
		}
		w.nothingLeft()
	}
	w := newWorld(t, "")
	w.spec.Repo = &Repo{Dir: os.DevNull}
	if _, _, err := w.runner.Prepare(t.Context(), w.spec, holder); !BadInput(err) {
		t.Error(err)
	}
	w.nothingLeft()
}

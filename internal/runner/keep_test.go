package runner

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// What is kept of a Run is taken up by a machine of another holder, as often as one
// likes, and none sees what another writes.
func TestWhatARunKeepsIsTakenUpAgain(t *testing.T) {
	w := newWorld(t, "echo one > n; exit 3")
	w.spec.Keep, w.spec.SessionID = time.Hour, "ses"
	var from sandbox.Instance
	w.spec.Kept = func(in sandbox.Instance, s sandbox.Snapshot) error {
		from = in
		return s.Validate()
	}
	r, err := w.runner.Run(t.Context(), w.spec)
	if err != nil || r.Snapshot == nil || r.Disposition != sandbox.DispositionReleased || *r.Exit.ExitCode != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r.SessionID != "ses" || r.Snapshot.SessionID != "ses" || r.MachineMemoryBytes != w.spec.Resources.MemoryBytes {
		t.Errorf("%+v", r)
	}
	h := holder
	h.ExpiresAt = sandbox.At(time.Now().Add(20 * time.Minute))
	first, err := w.as().Resume(t.Context(), from, *r.Snapshot, h)
	if err != nil {
		t.Fatal(err)
	}
	if n := first.Profile.ResourceLimits.MaxDurationSeconds; first.LeaseID != h.LeaseID || n < 60 || n > 1200 {
		t.Errorf("%+v", first)
	}
	execute := func(in sandbox.Instance, script, want string) {
		t.Helper()
		w.out.b.Reset()
		w.spec.Command = []string{"sh", "-c", script}
		if _, err := w.as().Execute(t.Context(), w.spec, in); err != nil || w.out.String() != want {
			t.Errorf("%q: %q, %v", script, w.out.String(), err)
		}
	}
	execute(first, "cat n; echo two > n", "one\n")
	until := sandbox.At(time.Now().Add(time.Hour))
	captured, err := w.as().Capture(t.Context(), first, until)
	if err != nil {
		t.Fatal(err)
	}
	execute(first, "cat n; echo three > n", "two\n") // it goes on
	settled, err := w.as().Settle(t.Context(), first, until)
	if err != nil {
		t.Fatal(err)
	}
	for kept, want := range map[*sandbox.Snapshot]string{r.Snapshot: "one\n", &captured: "two\n", &settled: "three\n"} {
		in, err := w.as().Resume(t.Context(), first, *kept, h)
		if err != nil {
			t.Fatal(err)
		}
		execute(in, "cat n; echo mine > n", want)
		if err := errors.Join(w.provider.Destroy(t.Context(), in.InstanceID), w.provider.DestroySnapshot(t.Context(), kept.SnapshotID)); err != nil {
			t.Error(err)
		}
	}
	e := (*Error)(nil)
	if _, err := w.as().Resume(t.Context(), first, settled, h); !errors.As(err, &e) || e.Phase != PhaseProvision {
		t.Errorf("%v", err)
	}
	if _, err := w.as().Settle(t.Context(), first, until); !errors.As(err, &e) || e.Phase != PhaseRelease {
		t.Errorf("%v", err)
	}
	if left := w.provider.Census(); len(left) > 0 {
		t.Errorf("%q", left)
	}
	w.nothingLeft()
}

// Half a success would be a Run whose state somebody believes to be kept.
func TestARunWhoseStateCannotBeKeptFails(t *testing.T) {
	for name, c := range map[string]struct {
		fails sandbox.Operation
		want  sandbox.Disposition
	}{"by the provider": {sandbox.OpRelease, sandbox.DispositionDestroyed}, "by its holder": {"", sandbox.DispositionReleased}} {
		w := newWorld(t, "true")
		w.spec.Keep = time.Hour
		w.spec.Kept = func(sandbox.Instance, sandbox.Snapshot) error { return os.ErrPermission }
		w.use(&saboteur{w.provider, func(at sandbox.Operation) error {
			if at == c.fails {
				return sandbox.Failed(at, sandbox.ReasonProviderError, nil)
			}
			return nil
		}})
		r, err := w.run()
		if e := (*Error)(nil); !errors.As(err, &e) || e.Phase != PhaseRelease || r.Snapshot != nil || r.Disposition != c.want {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if left := w.provider.Census(); len(left) > 0 {
			t.Errorf("%s: %q", name, left)
		}
	}
}

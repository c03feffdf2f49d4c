package probe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/internal/sandboxruntime/clocktest"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// The bound of a rollback is 30 seconds: not a nanosecond less, not one more.
func TestRollbackBound(t *testing.T) {
	for _, c := range []struct {
		name     string
		advance  time.Duration
		wantHung bool
	}{
		{"one nanosecond before", 30*time.Second - 1, false},
		{"at the bound", 30 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			clock := clocktest.New(time.Unix(1, 0))
			target, p := oracle.New(c.name)
			entered, finish := make(chan struct{}), make(chan struct{})
			defer close(finish)
			target.Provider = sandboxtest.Override{Provider: p, ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Provision(ctx, q)
				undo := h.Rollback
				h.Rollback = func(ctx context.Context) error {
					close(entered)
					<-finish
					return undo(ctx)
				}
				return h, err
			}}
			got := make(chan error, 1)
			list := []probe.Probe{{ID: "one.rollback", Suite: report.Faults, Run: func(t *probe.T) {
				m := t.Provision(probe.Shape{})
				err := m.Rollback()
				got <- err
				t.Check("in-time", !probe.Hung(err), "in time", err)
			}}}
			over := make(chan report.Report, 1)
			go func() {
				over <- probe.Run(ctx, target, list, probe.Options{Seed: c.name, Passes: 1, Watch: clock})
			}()
			<-entered
			clock.Advance(c.advance)
			if !c.wantHung {
				// The timer is still running, so nobody was told to stop waiting.
				if n := clock.Timers(); n != 1 {
					t.Fatalf("%d timers are running, not the rollback's", n)
				}
				finish <- struct{}{}
			}
			err := <-got
			if probe.Hung(err) != c.wantHung || !c.wantHung && err != nil {
				t.Errorf("the rollback returned %v", err)
			}
			rep := <-over
			wantExit, wantStatus := int64(report.ExitIncomplete), report.Pass // the nine cases were not run
			if c.wantHung {
				wantExit, wantStatus = report.ExitError, report.Fail
			}
			if rep.ExitCode != wantExit || rep.Probes[0].Status != wantStatus {
				t.Errorf("exit %d (%s), row %s", rep.ExitCode, rep.Reason, rep.Probes[0].Status)
			}
		})
	}
}

// everything calls every member once. It stops at the first error.
func everything(id string) probe.Probe {
	return probe.Probe{ID: id, Suite: report.Contract, Run: func(t *probe.T) {
		_, err := t.Provider().Capabilities(t.Context())
		t.Need("capabilities", err)
		mount := sandbox.Mount{MountPath: "/data", Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit}
		out := sandbox.OutputPath + "/f"
		m := t.Machine(probe.Durable(probe.Shape{Mounts: []sandbox.Mount{mount}, Files: []sandbox.FileWrite{{Path: "/data/f", Content: []byte("x")}}}))
		m.Sh("echo > " + out)
		_, err = m.Read(out, sandbox.OutputPath, 16)
		t.Need("read", err)
		o := t.Optional()
		_, err = o.ReadFiles.ReadFiles(t.Context(), m.ID, sandbox.FilesRead{AllowedRoot: sandbox.OutputPath, AggregateMaximumBytes: 16,
			Files: []sandbox.FileMember{{Path: out, MaximumBytes: 16}}})
		t.Need("read-files", err)
		_, err = o.ListDir.ListDir(t.Context(), m.ID, sandbox.Listing{Root: "/data", MaxEntries: 16})
		t.Need("list-dir", err)
		_, err = o.ListProjectDir.ListProjectDir(t.Context(), m.ID, sandbox.Listing{Root: "/data", MaxEntries: 16})
		t.Need("list-project-dir", err)
		live, err := o.OpenProcess.OpenProcess(t.Context(), m.ID, "pr_"+t.Nonce()+t.Nonce(), sandbox.ProcessRequest{Executable: "/bin/sh", Arguments: []string{"-c", "read x"}, WorkingDirectory: "/"})
		t.Need("open-process", err)
		t.Need("signal", live.Signal(t.Context(), sandbox.SignalTerminate))
		_, err = live.Wait(t.Context())
		t.Need("wait", err)
		t.Need("process-destroy", live.Destroy(t.Context()))
		for _, abort := range []bool{true, false} {
			w, err := o.ActiveWrite.BeginActiveWrite(t.Context(), m.ID, []string{"/data/g"})
			t.Need("begin-active-write", err)
			t.Need("stage", w.Stage(t.Context(), sandbox.FileWrite{Path: "/data/g", Content: []byte("y")}))
			if abort {
				t.Need("abort", w.Abort(t.Context()))
				continue
			}
			t.Need("dispatch", w.Dispatch(t.Context(), func() {}))
			_, err = w.Inspect(t.Context())
			t.Need("inspect", err)
		}
		expires := sandbox.At(t.Now().Add(time.Hour))
		s, err := t.Provider().Snapshot(t.Context(), m.ID, sandbox.SnapshotRequest{ExpiresAt: expires})
		t.Need("snapshot", err)
		c, err := t.Provider().CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: s.Value, TargetSessionID: t.ID("ses_")})
		t.Need("clone", err)
		r, err := t.Provider().Resume(t.Context(), sandbox.ResumeRequest{Request: m.Request, Snapshot: s.Value})
		t.Need("resume", err)
		t.Need("resume-rollback", r.Rollback(t.Context()))
		t.Need("clone-rollback", c.Rollback(t.Context()))
		t.Need("snapshot-rollback", s.Rollback(t.Context()))
		l, err := t.Provider().Release(t.Context(), m.ID, sandbox.ReleaseRequest{ExpiresAt: expires})
		t.Need("release", err)
		t.Need("release-rollback", l.Rollback(t.Context()))
		t.Need("destroy", t.Provider().Destroy(t.Context(), m.ID))
		t.Need("destroy-snapshot", t.Provider().DestroySnapshot(t.Context(), s.Value.SnapshotID))
		_, err = t.Provider().Cleanup(t.Context(), sandbox.CleanupRequest{Now: sandbox.At(t.Now()), OrphanedBefore: sandbox.At(t.Now().Add(-time.Hour))})
		t.Need("cleanup", err)
		t.Check("all", true, "", nil)
	}}
}

func three() []probe.Probe {
	return []probe.Probe{everything("all.first"), everything("all.second"), everything("all.third")}
}

// drive runs three probes over a provider of which hook is called before every
// member (name) and after it (name + " done").
func drive(ctx context.Context, seed string, watch probe.Clock, hook func(string)) (report.Report, *memory.Provider) {
	target, p := oracle.New(seed)
	target.Provider = hooked(p, hook)
	census := target.Census
	target.Census = func(ctx context.Context) ([]string, error) {
		hook("census")
		return census(ctx)
	}
	return probe.Run(ctx, target, three(), probe.Options{Seed: seed, Suites: []report.Suite{report.Nine}, Watch: watch}), p
}

func TestEverythingPasses(t *testing.T) {
	seen := map[string]bool{}
	rep, p := drive(t.Context(), "all", clocktest.New(time.Unix(1, 0)), func(name string) { seen[name] = true })
	if rep.ExitCode != report.ExitConformant || len(p.Census()) > 0 {
		t.Errorf("exit %d: %s; %v", rep.ExitCode, rep.Reason, p.Census())
	}
	for _, name := range members {
		if !seen[name] {
			t.Errorf("%s was never called", name)
		}
	}
}

// Whatever hangs, the run ends, says where, asks nothing more than the
// teardown, and leaves nothing that could still be given back.
func TestEveryMemberMayHang(t *testing.T) {
	for _, name := range members {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			clock := clocktest.New(time.Unix(1, 0))
			over := make(chan struct{})
			defer close(over)
			rep, p := drive(ctx, name, clock, func(called string) {
				if called == name {
					clock.Advance(time.Hour)
					<-over
				}
			})
			if ctx.Err() != nil {
				t.Fatal("the run did not end by itself")
			}
			if rep.Verdict != report.Failed || rep.ExitCode != report.ExitError {
				t.Errorf("%s, exit %d: %s", rep.Verdict, rep.ExitCode, rep.Reason)
			}
			where, _, _ := strings.Cut(name, " ")
			if !strings.Contains(rep.Reason, where) || !strings.Contains(rep.Reason, "did not answer") {
				t.Errorf("the reason does not say where: %s", rep.Reason)
			}
			if duringProbes(name) && report.Count(rep.Probes, report.Blocked) < 2 {
				t.Errorf("%d of 3 probes are blocked", report.Count(rep.Probes, report.Blocked))
			}
			if left := p.Census(); len(left) > 0 && !strings.HasPrefix(name, "destroy") {
				t.Errorf("left: %v", left)
			}
			if strings.HasPrefix(name, "destroy") && len(rep.Leaks.Undestroyed) == 0 && len(p.Census()) > 0 {
				t.Errorf("what could not be destroyed is not reported: %+v", rep.Leaks)
			}
		})
	}
}

// duringProbes reports whether a member is called by probes only.
func duringProbes(name string) bool {
	return name != "census" && name != "capabilities" && name != "optional" && !strings.HasPrefix(name, "destroy")
}

// An allocation whose reply comes when nobody waits any more is rolled back.
func TestLateAllocationIsRolledBack(t *testing.T) {
	for _, name := range []string{"provision", "resume", "snapshot", "clone_snapshot"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := clocktest.New(time.Unix(1, 0))
			over, undone := make(chan struct{}), make(chan struct{})
			target, p := oracle.New(name)
			target.Census = nil // it would be waited for
			target.Provider = hooked(p, func(called string) {
				switch called {
				case name + " done":
					clock.Advance(time.Hour)
					<-over
				case name + "_rollback done":
					close(undone)
				}
			})
			probe.Run(t.Context(), target, three(), probe.Options{Seed: name, Watch: clock})
			if len(p.Census()) == 0 {
				t.Fatal("nothing was allocated")
			}
			close(over)
			select {
			case <-undone:
			case <-time.After(10 * time.Second):
				t.Fatal("it was not rolled back")
			}
			if left := p.Census(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A run that ends at any call leaves nothing and is never taken for a whole.
func TestRunMayEndAtEveryCall(t *testing.T) {
	calls := 0
	drive(t.Context(), "count", clocktest.New(time.Unix(1, 0)), func(string) { calls++ })
	for n := 1; n <= calls; n++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		at, call := 0, ""
		rep, p := drive(ctx, "end", clocktest.New(time.Unix(1, 0)), func(name string) {
			if at++; at == n {
				call = name
				cancel(errors.New("the end"))
			}
		})
		cancel(nil)
		if left := p.Census(); len(left) > 0 {
			t.Errorf("ended at call %d (%s): left %v", n, call, left)
		}
		if rep.ExitCode == report.ExitConformant && n < calls { // the last is the census after the end
			t.Errorf("ended at call %d of %d (%s): exit 0: %s", n, calls, call, rep.Reason)
		}
	}
}

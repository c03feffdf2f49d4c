package faults_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// counted is p, calling at before and after each member that allocates, runs
// or tears down.
func counted(p sandbox.Provider, at func()) sandbox.Provider {
	return sandboxtest.Override{
		Provider: p,
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			return both(at, func() (sandbox.Handoff[sandbox.Instance], error) { return p.Provision(ctx, q) })
		},
		WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			_, err := both(at, func() (bool, error) { return true, p.WriteFile(ctx, id, w) })
			return err
		},
		ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
			return both(at, func() (sandbox.Handoff[sandbox.Instance], error) { return p.Activate(ctx, id) })
		},
		ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			return both(at, func() (sandbox.Settlement, error) { return p.Execute(ctx, id, c) })
		},
		SnapshotFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			return both(at, func() (sandbox.Handoff[sandbox.Snapshot], error) { return p.Snapshot(ctx, id, q) })
		},
		CloneSnapshotFunc: func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			return both(at, func() (sandbox.Handoff[sandbox.Snapshot], error) { return p.CloneSnapshot(ctx, q) })
		},
		ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
			return both(at, func() (sandbox.Handoff[sandbox.Released], error) { return p.Release(ctx, id, q) })
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			return both(at, func() (sandbox.Handoff[sandbox.Instance], error) { return p.Resume(ctx, q) })
		},
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			_, err := both(at, func() (bool, error) { return true, p.Destroy(ctx, id) })
			return err
		},
	}
}

func both[V any](at func(), call func() (V, error)) (V, error) {
	at()
	defer at()
	return call()
}

// A run of the real suites that ends at any call leaves nothing behind and is
// never taken for a whole one.
func TestSuitesMayEndAtEveryCall(t *testing.T) {
	suites := []report.Suite{report.Nine, report.Contract, report.Faults}
	list := suite.Of(suites...)
	run := func(ctx context.Context, at func()) (report.Report, []string) {
		target, p := oracle.New("end")
		target.Provider = counted(p, at)
		target.Restart = nil
		return probe.Run(ctx, target, list, probe.Options{Suites: suites, Seed: "end", Passes: 1, StreamBytes: 1 << 16}), p.Census()
	}
	var calls atomic.Int64
	if rep, left := run(t.Context(), func() { calls.Add(1) }); rep.ExitCode == report.ExitError || len(left) > 0 {
		t.Fatalf("the whole run: exit %d: %s; left %v", rep.ExitCode, rep.Reason, left)
	}
	runs := int64(24)
	if testing.Short() {
		runs = 12
	}
	step := max(calls.Load()/runs, 1) | 1 // odd, so that both sides of a call come up
	for n := int64(1); n <= calls.Load(); n += step {
		ctx, cancel := context.WithCancel(t.Context())
		var at atomic.Int64
		rep, left := run(ctx, func() {
			if at.Add(1) == n {
				cancel()
			}
		})
		cancel()
		if len(left) > 0 || len(rep.Leaks.Census) > 0 {
			t.Errorf("ended at call %d: left %v", n, left)
		}
		// How many calls there are depends a little on time; this run may have
		// had fewer.
		if rep.ExitCode == report.ExitConformant && at.Load() >= n {
			t.Errorf("ended at call %d of %d: exit 0: %s", n, calls.Load(), rep.Reason)
		}
	}
}

package sandboxruntime_test

import (
	"context"
	"slices"
	"testing"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// TestErrors_KindsFitTheirOperations returns each of the eight kinds from each
// member and demands that it passes exactly where the contract has a use for
// it, and is a defect elsewhere.
func TestErrors_KindsFitTheirOperations(t *testing.T) {
	var (
		files     = []sandbox.Operation{sandbox.OpWriteFile, sandbox.OpReadFile, sandbox.OpReadFiles, sandbox.OpListDir, sandbox.OpListProjectDir, sandbox.OpBeginActiveWrite}
		snapshots = []sandbox.Operation{sandbox.OpSnapshot, sandbox.OpCloneSnapshot, sandbox.OpRelease}
		// These make, or tear down, what need not be there.
		nameless = []sandbox.Operation{sandbox.OpProvision, sandbox.OpResume, sandbox.OpCloneSnapshot, sandbox.OpDestroy, sandbox.OpDestroySnapshot, sandbox.OpCleanup}
	)
	fits := map[sandbox.Kind]func(sandbox.Operation) bool{
		sandbox.CapabilityUnavailable: func(sandbox.Operation) bool { return true },
		sandbox.LifecycleConflict:     func(sandbox.Operation) bool { return true },
		sandbox.OperationFailed:       func(sandbox.Operation) bool { return true },
		sandbox.FileTooLarge:          func(op sandbox.Operation) bool { return slices.Contains(files, op) },
		sandbox.InstanceNotFound:      func(op sandbox.Operation) bool { return !slices.Contains(nameless, op) },
		sandbox.OutputLimitExceeded:   func(op sandbox.Operation) bool { return op == sandbox.OpExecute },
		sandbox.SnapshotForbidden:     func(op sandbox.Operation) bool { return slices.Contains(snapshots, op) },
		sandbox.SnapshotNotFound:      func(op sandbox.Operation) bool { return op == sandbox.OpCloneSnapshot || op == sandbox.OpResume },
	}
	listing := sandbox.Listing{Root: repo, MaxEntries: 1}
	drivers := map[sandbox.Operation]func(*bench) error{
		sandbox.OpWriteFile: func(b *bench) error {
			return b.runtime.WriteFile(b.ctx, b.provision(durable), sandbox.FileWrite{Path: repo + "/a"})
		},
		sandbox.OpExecute: func(b *bench) error { _, err := b.runtime.Execute(b.ctx, b.activate(durable), command); return err },
		sandbox.OpReadFile: func(b *bench) error {
			_, err := b.runtime.ReadFile(b.ctx, b.activate(durable), repo+"/a", 1)
			return err
		},
		sandbox.OpReadFiles: func(b *bench) error {
			_, err := b.runtime.ReadFiles(b.ctx, b.activate(durable), []sandbox.FileMember{{Path: repo + "/a"}})
			return err
		},
		sandbox.OpListDir: func(b *bench) error { _, err := b.runtime.ListDir(b.ctx, b.activate(durable), listing); return err },
		sandbox.OpListProjectDir: func(b *bench) error {
			_, err := b.runtime.ListProjectDir(b.ctx, b.activate(durable), listing)
			return err
		},
		sandbox.OpOpenProcess: func(b *bench) error {
			_, err := b.runtime.OpenProcess(b.ctx, b.activate(durable), program)
			return err
		},
		sandbox.OpBeginActiveWrite: func(b *bench) error { return beginActiveWrite(b, b.activate(durable)) },
		sandbox.OpDestroy:          func(b *bench) error { return b.runtime.Destroy(b.ctx, "i1") },
		sandbox.OpDestroySnapshot:  func(b *bench) error { return b.runtime.DestroySnapshot(b.ctx, "s1") },
		sandbox.OpCleanup: func(b *bench) error {
			now := sandbox.At(epoch)
			_, err := b.runtime.Cleanup(b.ctx, sandbox.CleanupRequest{Now: now, OrphanedBefore: now})
			return err
		},
	}
	for op, reach := range handoffs {
		drivers[op] = func(b *bench) error { return reach(b)(b.ctx) }
	}
	for _, op := range sandbox.Operations() {
		drive := drivers[op]
		if op == sandbox.OpCapabilities {
			continue // asked at selection only
		}
		for _, kind := range sandbox.Kinds() {
			b := newBench(t)
			authored := &sandbox.Error{Kind: kind, Operation: op, Requirement: sandbox.RequireTier, Actual: "a", Reason: "r"}
			b.fake.on[op] = func(context.Context) error { return authored }
			err := drive(b)
			e, passed := err.(*sandbox.Error)
			_, defect := err.(*sandboxruntime.Defect)
			if want := fits[kind](op); passed != want || defect == want || passed && e.Kind != kind {
				t.Errorf("%s from %s: got %v", kind, op, err)
			}
		}
	}
}

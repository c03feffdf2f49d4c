package sandboxruntime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// TestLifecycleAndStates_RefusalsLeaveNothingInFlight: whatever was refused,
// by the runtime, by the provider or by a check, the instance is not busy
// afterwards.
func TestLifecycleAndStates_RefusalsLeaveNothingInFlight(t *testing.T) {
	long := command
	long.TimeoutSeconds = 61
	old := sandbox.SnapshotRequest{ExpiresAt: sandbox.At(epoch)}
	lie := func(f *fake) {
		f.lie()
		f.lieSettled = func(s *sandbox.Settlement) { s.Exit = sandbox.Exit{} }
		f.lieFiles = func([]sandbox.FileResult) []sandbox.FileResult { return nil }
		f.lieFile = func([]byte) []byte { return []byte("too long") }
		f.lieListing = func(l *sandbox.ProjectListing) { l.Complete = false }
		f.lieEntries = func(e []sandbox.DirEntry) []sandbox.DirEntry { return append(e, sandbox.DirEntry{}) }
		f.lieProcess = func(p *fakeProcess) sandbox.Process { p.evidence.Provider = "x"; return p }
		f.lieWrite = func(*fakeWrite) sandbox.ActiveWrite { return nil }
	}
	fail := func(f *fake) {
		for _, op := range sandbox.Operations() {
			f.on[op] = func(context.Context) error { return sandbox.Failed(op, "r", nil) }
		}
	}
	listing := sandbox.Listing{Root: repo, MaxEntries: 10}
	calls := map[string]func(b *bench, id sandbox.InstanceID) error{
		"execute": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Execute(b.ctx, id, command)
			return err
		},
		"execute long": func(b *bench, id sandbox.InstanceID) error { _, err := b.runtime.Execute(b.ctx, id, long); return err },
		"write": func(b *bench, id sandbox.InstanceID) error {
			return b.runtime.WriteFile(b.ctx, id, sandbox.FileWrite{Path: "/x"})
		},
		"write link": func(b *bench, id sandbox.InstanceID) error {
			return b.runtime.WriteFile(b.ctx, id, sandbox.FileWrite{Path: sandbox.OutputPath + "/x", Symlink: "a"})
		},
		"read": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ReadFile(b.ctx, id, repo+"/a", 1)
			return err
		},
		"read outside": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ReadFile(b.ctx, id, "/x", 1)
			return err
		},
		"read root": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ReadFile(b.ctx, id, repo, 1)
			return err
		},
		"read too much": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ReadFile(b.ctx, id, repo+"/a", -1)
			return err
		},
		"read files": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ReadFiles(b.ctx, id, []sandbox.FileMember{{Path: repo + "/a"}})
			return err
		},
		"list": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ListDir(b.ctx, id, listing)
			return err
		},
		"list outside": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ListDir(b.ctx, id, sandbox.Listing{Root: "/x", MaxEntries: 1})
			return err
		},
		"list project": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ListProjectDir(b.ctx, id, listing)
			return err
		},
		"snapshot": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Snapshot(b.ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
			return err
		},
		"snapshot late": func(b *bench, id sandbox.InstanceID) error { _, err := b.runtime.Snapshot(b.ctx, id, old); return err },
		"open": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.OpenProcess(b.ctx, id, program)
			return err
		},
		"begin": beginActiveWrite,
		"begin outside": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.BeginActiveWrite(b.ctx, id, []string{"/x"})
			return err
		},
		"release too old": func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest(old))
			return err
		},
	}
	for name, call := range calls {
		for how, sabotage := range map[string]func(*fake){"lie": lie, "fail": fail, "expire": func(*fake) {}} {
			b := newBench(t)
			id := b.staged()
			sabotage(b.fake)
			if how == "expire" {
				b.clock.Advance(2 * time.Hour)
			}
			err := call(b, id)
			if err == nil && how != "expire" { // reads outlive the expiry
				t.Error(name, how, "was not refused")
			}
			b.fake.on, b.fake.lieSnapshot = nil, nil
			if _, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later}); err != nil {
				t.Errorf("after %s (%s): %v", name, how, err)
			}
		}
	}
}

// TestCleanup_SweepsUnderAChange: an instance that is swept in the middle of a
// change is gone, and what the change brings is unwound.
func TestCleanup_SweepsUnderAChange(t *testing.T) {
	b := newBench(t)
	id := b.provision(durable)
	b.fake.lieSwept = func(s *sandbox.Swept) { s.InstanceIDs = []sandbox.InstanceID{id} }
	b.fake.on[sandbox.OpActivate] = func(context.Context) error {
		now := sandbox.At(epoch)
		_, err := b.runtime.Cleanup(b.ctx, sandbox.CleanupRequest{Now: now, OrphanedBefore: now})
		return err
	}
	if _, err := b.runtime.Activate(b.ctx, id); !errors.Is(err, sandbox.Conflict(sandbox.OpActivate, "activating", "gone")) {
		t.Error(err)
	}
	unwound(b, 1)
}

package sandboxruntime_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/google/go-cmp/cmp"
)

// TestLifecycleAndStates_OneRun drives every member once in the order of a Run.
func TestLifecycleAndStates_OneRun(t *testing.T) {
	b := newBench(t)
	r := b.runtime
	want := sandboxruntime.Wanted{Target: b.fake.envelope.Target(), Profile: profile(durable), Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"}, RootImage: image}
	if _, err := sandboxruntime.Select(b.ctx, []sandboxruntime.Adapter{{Provider: b.fake}}, want); err != nil {
		t.Fatal(err)
	}
	q := request(b.fake, durable)
	i, err := r.Provision(b.ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	id := i.InstanceID
	if diff := cmp.Diff(sandbox.InstanceOf(q, id, sandbox.StateProvisioning, digestOf(q.Profile)), i); diff != "" {
		t.Error(diff)
	}
	for path, content := range map[string]string{repo + "/a.txt": "a", notes + "/n.md": "note", sandbox.OutputPath + "/o": "out"} {
		if err := r.WriteFile(b.ctx, id, sandbox.FileWrite{Path: path, Content: []byte(content)}); err != nil {
			t.Fatal(err)
		}
	}
	if i, err = r.Activate(b.ctx, id); err != nil || i.State != sandbox.StateActive {
		t.Fatal(i.State, err)
	}
	s, err := r.Execute(b.ctx, id, command)
	if err != nil || string(s.Stdout) != "hello" || *s.Exit.ExitCode != 0 {
		t.Fatal(s, err)
	}
	if content, err := r.ReadFile(b.ctx, id, repo+"/a.txt", 10); err != nil || string(content) != "a" {
		t.Fatal(content, err)
	}
	members := []sandbox.FileMember{{Path: notes + "/n.md", MaximumBytes: 10}, {Path: repo + "/a.txt", MaximumBytes: 10}}
	files, err := r.ReadFiles(b.ctx, id, members)
	if err != nil || string(files[0].Content) != "note" || string(files[1].Content) != "a" {
		t.Fatal(files, err)
	}
	if entries, err := r.ListDir(b.ctx, id, sandbox.Listing{Root: repo, MaxEntries: 10}); err != nil || len(entries) != 1 || entries[0].Path != "a.txt" {
		t.Fatal(entries, err)
	}
	if listing, err := r.ListProjectDir(b.ctx, id, sandbox.Listing{Root: repo, MaxEntries: 10}); err != nil || len(listing.Leaves) != 1 {
		t.Fatal(listing, err)
	}
	p, err := r.OpenProcess(b.ctx, id, program)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(p.Input(), "over the seam")
		_ = p.Input().Close()
	}()
	if out, err := io.ReadAll(p.Output()); err != nil || string(out) != "over the seam" {
		t.Fatal(string(out), err)
	}
	for range 2 {
		if e, err := p.Wait(b.ctx); err != nil || *e.ExitCode != 0 {
			t.Fatal(e, err)
		}
	}
	w, err := r.BeginActiveWrite(b.ctx, id, []string{repo + "/b.txt"})
	if err != nil {
		t.Fatal(err)
	}
	marks := 0
	if err := errors.Join(w.Stage(b.ctx, sandbox.FileWrite{Path: repo + "/b.txt", Content: []byte("b")}), w.Dispatch(b.ctx, func() { marks++ })); err != nil || marks != 1 {
		t.Fatal(marks, err)
	}
	if state, err := w.Inspect(b.ctx); err != nil || state != sandbox.JournalCommitted {
		t.Fatal(state, err)
	}
	shot, err := r.Snapshot(b.ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
	if err != nil || shot.ExpiresAt != later {
		t.Fatal(shot, err)
	}
	clone, err := r.CloneSnapshot(b.ctx, sandbox.CloneRequest{Snapshot: shot, TargetSessionID: "sess2"})
	if err != nil || clone.SessionID != "sess2" {
		t.Fatal(clone, err)
	}
	released, err := r.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
	if err != nil || released.Disposition != sandbox.DispositionReleased {
		t.Fatal(released, err)
	}
	if _, err := r.Execute(b.ctx, id, command); !errors.Is(err, &sandbox.Error{Kind: sandbox.InstanceNotFound}) {
		t.Error("a released instance still answers:", err)
	}
	i, err = r.Resume(b.ctx, sandbox.ResumeRequest{Request: q, Snapshot: *released.Snapshot})
	if err != nil || i.State != sandbox.StateActive {
		t.Fatal(i, err)
	}
	b.clock.Advance(2 * time.Hour)
	now := sandbox.At(b.clock.Now())
	swept, err := r.Cleanup(b.ctx, sandbox.CleanupRequest{Now: now, OrphanedBefore: now})
	if err != nil || len(swept.InstanceIDs) != 1 || swept.InstanceIDs[0] != i.InstanceID {
		t.Fatal(swept, err)
	}
	if _, err := r.Execute(b.ctx, i.InstanceID, command); !errors.Is(err, &sandbox.Error{Kind: sandbox.InstanceNotFound}) {
		t.Error("a swept instance still answers:", err)
	}
	for range 2 {
		if err := errors.Join(r.Destroy(b.ctx, i.InstanceID), r.DestroySnapshot(b.ctx, shot.SnapshotID)); err != nil {
			t.Error(err)
		}
	}
	if n := b.rolledBack(); n != 0 {
		t.Errorf("%d rollbacks in a good Run", n)
	}
	if n := b.clock.Timers(); n != 0 {
		t.Errorf("%d timers are left", n)
	}
}

// TestLifecycleAndStates_MismatchIsRefusedBeforeTheProvider drives each member
// in each phase.
func TestLifecycleAndStates_MismatchIsRefusedBeforeTheProvider(t *testing.T) {
	type member struct {
		op      sandbox.Operation
		accepts string
		drive   func(b *bench, id sandbox.InstanceID) error
	}
	members := []member{
		{sandbox.OpWriteFile, "provisioning active", func(b *bench, id sandbox.InstanceID) error {
			return b.runtime.WriteFile(b.ctx, id, sandbox.FileWrite{Path: sandbox.OutputPath + "/x"})
		}},
		{sandbox.OpActivate, "provisioning", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Activate(b.ctx, id)
			return err
		}},
		{sandbox.OpExecute, "active", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Execute(b.ctx, id, command)
			return err
		}},
		{sandbox.OpReadFile, "active", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ReadFile(b.ctx, id, repo+"/a", 1)
			return err
		}},
		{sandbox.OpReadFiles, "active", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ReadFiles(b.ctx, id, []sandbox.FileMember{{Path: repo + "/a", MaximumBytes: 1}})
			return err
		}},
		{sandbox.OpListDir, "active", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ListDir(b.ctx, id, sandbox.Listing{Root: repo, MaxEntries: 1})
			return err
		}},
		{sandbox.OpListProjectDir, "active", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ListProjectDir(b.ctx, id, sandbox.Listing{Root: repo, MaxEntries: 1})
			return err
		}},
		{sandbox.OpSnapshot, "active", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Snapshot(b.ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
			return err
		}},
		{sandbox.OpRelease, "active", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
			return err
		}},
		{sandbox.OpOpenProcess, "active", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.OpenProcess(b.ctx, id, program)
			return err
		}},
		{sandbox.OpBeginActiveWrite, "active", func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.BeginActiveWrite(b.ctx, id, []string{repo + "/a"})
			return err
		}},
		{sandbox.OpDestroy, "provisioning active lost unknown", func(b *bench, id sandbox.InstanceID) error {
			return b.runtime.Destroy(b.ctx, id)
		}},
	}
	states := map[string]func(b *bench) sandbox.InstanceID{
		"provisioning": func(b *bench) sandbox.InstanceID { return b.provision(durable) },
		"active":       func(b *bench) sandbox.InstanceID { return b.activate(durable) },
		"lost": func(b *bench) sandbox.InstanceID {
			id := b.activate(durable)
			b.fake.on[sandbox.OpDestroy] = func(context.Context) error {
				return sandbox.Failed(sandbox.OpDestroy, sandbox.ReasonProviderError, nil)
			}
			if err := b.runtime.Destroy(b.ctx, id); err == nil {
				b.Fatal("the sabotaged destroy succeeded")
			}
			b.fake.on = nil
			return id
		},
		"unknown": func(*bench) sandbox.InstanceID { return "nobody" },
	}
	for _, m := range members {
		for state, reach := range states {
			t.Run(string(m.op)+"/"+state, func(t *testing.T) {
				b := newBench(t)
				id := reach(b)
				before := b.called(m.op)
				err := m.drive(b, id)
				called := b.called(m.op) > before
				if slices.Contains(strings.Fields(m.accepts), state) {
					if !called {
						t.Fatal("was not driven:", err)
					}
					return
				}
				want := &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: m.op, Expected: strings.ReplaceAll(m.accepts, " ", " or "), Actual: state}
				if state == "unknown" {
					want = sandbox.NoInstance(m.op, id)
				}
				if called || !errors.Is(err, want) {
					t.Errorf("called %v, got %v, want %v", called, err, want)
				}
			})
		}
	}
}

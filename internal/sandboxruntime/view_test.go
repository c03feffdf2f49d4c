package sandboxruntime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/sandboxruntime/clocktest"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/google/go-cmp/cmp"
)

// TestProvider_ViewAgreesWithTheBareProvider: to a caller that keeps the rules
// an honest provider looks the same bare and through the runtime.
func TestProvider_ViewAgreesWithTheBareProvider(t *testing.T) {
	bare := newFake(clocktest.New(epoch))
	through := newBench(t)
	want, got := outcomes(through, bare), outcomes(through, through.runtime.Provider())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if instances, snapshots := through.alive(); instances != 0 || snapshots != 0 || len(bare.snapshots) != 0 {
		t.Errorf("%d instances and %d snapshots are left", instances, snapshots)
	}
	if len(want) < 20 {
		t.Error("the script is short:", want)
	}
}

// outcomes drives every member of p and writes down what came back.
func outcomes(b *bench, p sandbox.Provider) (log []string) {
	ctx := b.ctx
	note := func(what string, v any, err error) { log = append(log, fmt.Sprintf("%s: %+v, %v", what, v, err)) }
	caps, err := p.Capabilities(ctx)
	note("capabilities", caps.Target(), err)
	q := request(b.fake, durable)
	h, err := p.Provision(ctx, q)
	note("provision", h.Value, err)
	id := h.Value.InstanceID
	note("write", nil, p.WriteFile(ctx, id, sandbox.FileWrite{Path: repo + "/a", Content: []byte("a")}))
	h, err = p.Activate(ctx, id)
	note("activate", h.Value, err)
	s, err := p.Execute(ctx, id, command)
	note("execute", []any{string(s.Stdout), *s.Exit.ExitCode, s.StartedAt, s.TimedOut}, err)
	for _, r := range []sandbox.FileRead{{Path: repo + "/a", AllowedRoot: repo, MaximumBytes: 1}, {Path: repo + "/a", AllowedRoot: repo}, {Path: repo + "/no", AllowedRoot: repo}} {
		content, err := p.ReadFile(ctx, id, r)
		note("read", string(content), err)
	}
	o := p.Optional()
	files, err := o.ReadFiles.ReadFiles(ctx, id, sandbox.FilesRead{AllowedRoot: repo, Files: []sandbox.FileMember{{Path: repo + "/a", MaximumBytes: 1}, {Path: repo + "/no"}}, AggregateMaximumBytes: 1})
	note("read files", files, err)
	entries, err := o.ListDir.ListDir(ctx, id, sandbox.Listing{Root: repo, MaxEntries: 5})
	note("list", entries, err)
	listing, err := o.ListProjectDir.ListProjectDir(ctx, id, sandbox.Listing{Root: repo, MaxEntries: 5})
	note("list project", listing, err)
	process, err := o.OpenProcess.OpenProcess(ctx, id, "pr_0123456789abcdef0123456789abcdef", program)
	note("open", process.Evidence(), err)
	note("signal", nil, process.Signal(ctx, sandbox.SignalInterrupt))
	exit, err := process.Wait(ctx)
	note("wait", exit, err)
	note("destroy process", nil, errors.Join(process.Destroy(ctx), process.Destroy(ctx)))
	w, err := o.ActiveWrite.BeginActiveWrite(ctx, id, []string{repo + "/b"})
	note("begin", nil, err)
	note("stage", nil, w.Stage(ctx, sandbox.FileWrite{Path: repo + "/b"}))
	note("dispatch", nil, w.Dispatch(ctx, func() { log = append(log, "marked") }))
	journal, err := w.Inspect(ctx)
	note("inspect", journal, err)
	shot, err := p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
	note("snapshot", shot.Value, err)
	clone, err := p.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: shot.Value, TargetSessionID: "sess2"})
	note("clone", clone.Value, err)
	note("undo clone", nil, errors.Join(clone.Rollback(ctx), clone.Rollback(ctx)))
	released, err := p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
	note("release", *released.Value.Snapshot, err)
	h, err = p.Resume(ctx, sandbox.ResumeRequest{Request: q, Snapshot: *released.Value.Snapshot})
	note("resume", h.Value, err)
	note("undo resume", nil, errors.Join(h.Rollback(ctx), h.Rollback(ctx)))
	note("undo release", nil, released.Rollback(ctx))
	swept, err := p.Cleanup(ctx, sandbox.CleanupRequest{Now: sandbox.At(epoch), OrphanedBefore: sandbox.At(epoch)})
	note("cleanup", swept, err)
	note("destroy", nil, errors.Join(p.Destroy(ctx, id), p.Destroy(ctx, id), p.DestroySnapshot(ctx, shot.Value.SnapshotID), p.DestroySnapshot(ctx, "none")))
	return log
}

// TestOperations_Destroy: idempotent, any state, any id; what it began decides
// also when the provider answers late.
func TestOperations_Destroy(t *testing.T) {
	for _, broken := range []bool{false, true} {
		b := newBench(t)
		id := b.activate(durable)
		ctx, cancel := context.WithCancel(b.ctx)
		let := make(chan struct{})
		b.fake.on[sandbox.OpDestroy] = func(context.Context) error {
			<-let
			if broken {
				return sandbox.Failed(sandbox.OpDestroy, sandbox.ReasonProviderError, nil)
			}
			return nil
		}
		failed := make(chan error, 1)
		go func() { failed <- b.runtime.Destroy(ctx, id) }()
		cancel()
		b.await(1)
		b.clock.Advance(30 * time.Second)
		if err := <-failed; !errors.Is(err, &sandbox.Error{Operation: sandbox.OpDestroy, Reason: sandbox.ReasonIndeterminate}) {
			t.Error(err)
		}
		execute := func() error { _, err := b.runtime.Execute(b.ctx, id, command); return err }
		if err := execute(); !errors.Is(err, sandbox.Conflict(sandbox.OpExecute, "active", "destroying")) {
			t.Error(err)
		}
		close(let)
		want := error(sandbox.NoInstance(sandbox.OpExecute, id))
		if broken {
			want = sandbox.Conflict(sandbox.OpExecute, "active", "lost")
		}
		b.eventually(func() bool { return errors.Is(execute(), want) })
	}
	b := newBench(t)
	for _, id := range []string{"", "a b"} {
		if b.runtime.Destroy(b.ctx, sandbox.InstanceID(id)) == nil || b.runtime.DestroySnapshot(b.ctx, sandbox.SnapshotID(id)) == nil {
			t.Errorf("took %q", id)
		}
	}
	if b.called(sandbox.OpDestroy)+b.called(sandbox.OpDestroySnapshot) != 0 {
		t.Error("the provider was asked about an id of no form")
	}
}

// TestProvider_ViewChecksProcessIDs: a caller of the view mints them itself.
func TestProvider_ViewChecksProcessIDs(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	hex := "0123456789abcdef0123456789abcdef"
	for bad, ok := range map[string]bool{"pr_" + hex: true, hex: false, "": false, "pr_": false, "PR_" + hex: false, "pr_" + hex[2:]: false, "pr_" + hex + "00": false,
		"pr_" + hex[1:]: false, "pr_0123456789ABCDEF0123456789abcdef": false, "pr_g123456789abcdef0123456789abcdef": false, "xx_" + hex: false} {
		if _, err := b.runtime.Provider().Optional().OpenProcess.OpenProcess(b.ctx, id, bad, program); (err == nil) != ok {
			t.Error(bad, err)
		}
	}
}

// TestErrors_MatchByTheFieldsThatAreSet.
func TestErrors_MatchByTheFieldsThatAreSet(t *testing.T) {
	type failure = sandboxruntime.Error
	e := &failure{Kind: sandboxruntime.ProtocolInvalid, Operation: "o", Check: 3, Field: "f", Expected: "e", Got: "g"}
	for _, target := range []*failure{{}, e, {Kind: e.Kind}, {Operation: "o"}, {Check: 3}, {Field: "f"}, {Expected: "e"}, {Got: "g"}} {
		if !e.Is(target) {
			t.Errorf("does not match %+v", target)
		}
	}
	for _, target := range []error{&failure{Kind: sandboxruntime.AdapterAmbiguous}, &failure{Operation: "x"}, &failure{Check: 4}, &failure{Field: "x"},
		&failure{Expected: "x"}, &failure{Got: "x"}, errors.New(""), &sandbox.Error{}} {
		if e.Is(target) {
			t.Errorf("matches %+v", target)
		}
	}
}

// TestErrors_SaysWhatFailed: the text of the runtime's own errors.
func TestErrors_SaysWhatFailed(t *testing.T) {
	b := newBench(t)
	b.fake.lieInstance = func(_ sandbox.Operation, i *sandbox.Instance) { i.Materialization.ImageDigest = "sha256:" }
	_, err := b.runtime.Provision(b.ctx, request(b.fake, durable))
	want := `instance_identity: SandboxProtocolInvalid: materialization.image_digest: expected "` + string(sandbox.ImageDigest(image)) + `", got "sha256:" (check 19)`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

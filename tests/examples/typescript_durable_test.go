package examples

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/scaffold"
	"github.com/checkfu/checkfu/sandbox"
)

// TestTypeScriptRestarts: what a durable provider retained survives its being
// killed, also in the middle of a record; what died with it is swept by the next
// one. What is not what was retained is not handed out.
func TestTypeScriptRestarts(t *testing.T) {
	t.Parallel()
	p := spawn(t, filepath.Join(typescriptSkeleton(t, scaffold.Durable), "run"))
	p.durable = true
	envelope, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, q := t.Context(), request(envelope, sandbox.RetentionDurable, "first")
	in := time.Now().Add(time.Hour)
	made := func(lease string) sandbox.InstanceID {
		q.LeaseID = lease
		h, err := p.Provision(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Activate(ctx, h.Value.InstanceID); err != nil {
			t.Fatal(err)
		}
		return h.Value.InstanceID
	}
	released := func(lease string) sandbox.Snapshot {
		id := made(lease)
		if err := p.WriteFile(ctx, id, sandbox.FileWrite{Path: sandbox.OutputPath + "/kept", Content: []byte("kept")}); err != nil {
			t.Fatal(err)
		}
		h, err := p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(in)})
		if err != nil {
			t.Fatal(err)
		}
		return *h.Value.Snapshot
	}
	whole, broken := released("first"), released("second")
	lost := made("third")
	if err := p.crash(); err != nil {
		t.Fatal(err)
	}
	// The record that it was writing, and a file that a disk did not keep.
	journal, err := os.OpenFile(filepath.Join(p.state, "journal"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = journal.WriteString(`{"begins":"op_`)
	if err = errors.Join(err, journal.Close()); err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(p.state, "snapshots", string(broken.SnapshotID)+".files")
	data, err := os.ReadFile(files)
	if err != nil || bytes.Count(data, []byte("kept")) < 1 {
		t.Fatalf("%q, %v", data, err)
	}
	if err := os.WriteFile(files, bytes.Replace(data, []byte("\x00\x04kept"), []byte("\x00\x04kepT"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.start(ctx); err != nil {
		t.Fatal(err)
	}

	q.LeaseID = "fourth"
	h, err := p.Resume(ctx, sandbox.ResumeRequest{Request: q, Snapshot: whole})
	if err != nil {
		t.Fatal(err)
	}
	content, err := p.ReadFile(ctx, h.Value.InstanceID, sandbox.FileRead{Path: sandbox.OutputPath + "/kept", AllowedRoot: sandbox.OutputPath, MaximumBytes: 99})
	if err != nil || string(content) != "kept" {
		t.Errorf("%q, %v", content, err)
	}
	q.LeaseID = "fifth"
	_, resumed := p.Resume(ctx, sandbox.ResumeRequest{Request: q, Snapshot: broken})
	_, cloned := p.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: broken, TargetSessionID: "another"})
	for member, err := range map[string]error{"resume": resumed, "clone_snapshot": cloned} {
		if failed := (*sandbox.Error)(nil); !errors.As(err, &failed) || failed.Reason != sandbox.ReasonProviderError {
			t.Errorf("%s of what is damaged: %v", member, err)
		}
	}
	later := sandbox.At(in.Add(time.Hour))
	swept, err := p.Cleanup(ctx, sandbox.CleanupRequest{Now: later, OrphanedBefore: later})
	if err != nil || len(swept.InstanceIDs) != 2 || len(swept.SnapshotIDs) != 2 {
		t.Errorf("%v, %v; there were %s and %s", swept, err, lost, h.Value.InstanceID)
	}
}

// TestTypeScriptAlone: a durable provider has its state directory alone.
func TestTypeScriptAlone(t *testing.T) {
	t.Parallel()
	p := spawn(t, filepath.Join(typescriptSkeleton(t, scaffold.Durable), "run"))
	p.durable = true
	second := exec.CommandContext(t.Context(), p.path)
	second.Env = append(os.Environ(), "CHECKFU_LISTEN=unix:"+p.dir+"/second", "CHECKFU_TOKEN="+token, "CHECKFU_STATE="+p.state)
	out, err := second.CombinedOutput()
	if second.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "another provider holds it") {
		t.Errorf("%v: %s", err, out)
	}
}

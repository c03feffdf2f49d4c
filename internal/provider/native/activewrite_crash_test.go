package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/provider/native/journal"
	"github.com/checkfu/checkfu/sandbox"
)

// writeChild is the controlling process of a crash test of an active write, of a
// durable instance if mode says so.
func writeChild(p *Provider, mode string) {
	ctx := context.Background()
	r := request(p, writeMounts()...)
	if mode == "durable" {
		p.opt.Durable = true
		p.openSnapshots()
		childFailed(p.Durable())
		r = retained(p, writeMounts()...)
	}
	h, err := p.Provision(ctx, r)
	childFailed(err)
	id := h.Value.InstanceID
	_, err = p.Activate(ctx, id)
	childFailed(err)
	_, err = p.Execute(ctx, id, shell("cd "+rw+"; echo old >a; echo old >b"))
	childFailed(err)
	_, err = p.OpenProcess(ctx, id, processID, sandbox.ProcessRequest{
		Executable: "/bin/sh", Arguments: []string{"-c", "while :; do cat a b; done >/dev/null"}, WorkingDirectory: rw, Environment: map[string]string{},
	})
	childFailed(err)
	w, err := p.BeginActiveWrite(ctx, id, []string{rw + "/a", rw + "/n/c", rw + "/b"})
	childFailed(err)
	for _, path := range []string{rw + "/a", rw + "/n/c", rw + "/b"} {
		childFailed(w.Stage(ctx, sandbox.FileWrite{Path: path, Content: []byte("new\n")}))
	}
	childFailed(w.Dispatch(ctx, func() {}))
	os.Exit(4) // the step was never reached
}

// TestActiveWrite_AfterACrash: the controlling process dies in the middle of a
// publication, also while its workload stands still and so does not notice. Whoever
// comes next finds a whole batch or none of it in the home that was left, and the
// sweep leaves nothing.
func TestActiveWrite_AfterACrash(t *testing.T) {
	check := func(t *testing.T, p *Provider, step, mode string) {
		crash(t, p, "write: "+step, "CHILD_WRITE="+mode)
		homes, err := filepath.Glob(p.instancesDir() + "/*/home")
		if err != nil || len(homes) != 1 {
			t.Fatalf("%v, %v", homes, err)
		}
		if left, _ := filepath.Glob(homes[0] + "/writes/*"); len(left) != 1 && step != "removed" {
			t.Errorf("no journal was left, so the recovery proves nothing: %v", left)
		}
		j, err := journal.Open(t.Context(), homes[0], *workloadOwned().Owner, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := "old\n-old\n"
		if step == "committed" || step == "resumed" || step == "removed" {
			want = "new\nnew\nnew\n"
		}
		got := ""
		for _, name := range []string{"a", "n/c", "b"} {
			text, err := os.ReadFile(filepath.Join(homes[0], "mounts/0", name))
			if errors.Is(err, os.ErrNotExist) {
				text, err = []byte("-"), nil
			}
			if err != nil {
				t.Error(err)
			}
			got += string(text)
		}
		if got != want {
			t.Errorf("recovered to %q, want %q", got, want)
		}
		if left, _ := filepath.Glob(homes[0] + "/writes/*"); len(left) > 0 {
			t.Errorf("the recovery left %v", left)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if swept := sweep(t, p); len(swept.InstanceIDs) != 1 {
			t.Errorf("swept %v", swept.InstanceIDs)
		}
		if mode == "durable" {
			eventually(t, "no loop device is left", func() bool { return loops(t, p.opt.Dir) == nil })
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left after the sweep:\n%s", strings.Join(left, "\n"))
		}
	}
	drivers(t, func(t *testing.T, p *Provider) {
		steps := []string{"open", "staged", "dispatched", "paused", "planned", "published 0", "published 1", "published 2", "committed", "resumed", "removed"}
		if p.opt.Driver.Name() == "runsc" { // those of which the machine knows, for it takes its time
			steps = []string{"paused", "published 1", "resumed"}
		}
		for _, step := range steps {
			t.Run(step, func(t *testing.T) { check(t, p, step, "zdr") })
		}
	})
	durableDrivers(t, func(t *testing.T, p *Provider) {
		if p.opt.Driver.Name() == "runc" { // the home's filesystem makes the difference, not the driver
			for _, step := range []string{"published 1", "committed"} {
				t.Run("durable "+step, func(t *testing.T) { check(t, p, step, "durable") })
			}
		}
	})
}

// TestActiveWrite_OfASnapshot: what a capture has of transactions is settled before
// anything of the resumed instance runs: a batch that was committed is there, one
// that was in its middle is not, and what was only staged is nowhere.
func TestActiveWrite_OfASnapshot(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		r := retained(p, writeMounts()...)
		id := provision(t, p, r)
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		mustExit(t, sh(t, p, id, "cd "+rw+"; echo old >a; echo old >b"), 0)
		c, open := begin(t, p, id, rw+"/a", rw+"/n/c"), begin(t, p, id, rw+"/a")
		for _, path := range []string{rw + "/a", rw + "/n/c"} {
			stageIn(t, c, path, "committed\n")
		}
		stageIn(t, open, rw+"/a", "only staged\n")
		dispatched(t, c)
		in, err := p.find(sandbox.OpSnapshot, id)
		if err != nil {
			t.Fatal(err)
		}
		// A publication never is in its middle while a capture runs, so it is made one.
		root, err := contain.Open(filepath.Join(in.at.home(), "mounts/0"), workloadOwned())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		half, err := in.journal.Begin(t.Context(), "mounts/0", root, []string{"b", "m/d"})
		if err != nil {
			t.Fatal(err)
		}
		defer half.Close()
		if err := errors.Join(half.Stage(t.Context(), 0, []byte("half\n"), false), half.Stage(t.Context(), 1, []byte("half\n"), false),
			half.Dispatch(newToken(), ""), half.Publish()); err != nil {
			t.Fatal(err)
		}
		h, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: later(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.DestroySnapshot(context.Background(), h.Value.SnapshotID)
		if err := errors.Join(half.Rollback(), half.Remove(t.Context())); err != nil {
			t.Fatal(err)
		}
		again := resumed(t, p, r, h.Value)
		says(t, p, again, "cd "+rw+"; cat a n/c b; ls", "committed\ncommitted\nold\na\nb\nn\nown\nsealed\n")
		noWrites(t, p, again)
		w := begin(t, p, again, rw+"/b")
		stageIn(t, w, rw+"/b", "resumed\n")
		dispatched(t, w)
		says(t, p, again, "cat "+rw+"/b", "resumed\n")
		// The source goes on as if nothing had been.
		dispatched(t, open)
		says(t, p, id, "cd "+rw+"; cat a b", "only staged\nold\n")
		noWrites(t, p, id)
	})
}

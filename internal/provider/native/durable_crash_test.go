package native

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// durableChild is the controlling process of a crash test of a durable life: an
// instance whose workload writes all the time is captured, released and resumed, and
// its snapshots are cloned, destroyed and swept. A step's name begins with the
// operation. It says which snapshots it was told of, and which it is about to end.
func durableChild(p *Provider) {
	ctx := context.Background()
	reached, phase := p.opt.Step, "provision"
	p.opt.Step = func(at string) { reached(phase + ": " + at) }
	p.opt.Durable = true
	p.openSnapshots()
	childFailed(p.Durable())
	r := retained(p, work)
	hour := later(time.Hour)
	h, err := p.Provision(ctx, r)
	childFailed(err)
	id := h.Value.InstanceID
	_, err = p.Activate(ctx, id)
	childFailed(err)
	_, err = p.OpenProcess(ctx, id, processID, sandbox.ProcessRequest{
		Executable: "/bin/sh", Arguments: []string{"-c", "cd /mnt/session/outputs && while :; do echo x >>f; [ $(wc -l <f) -lt 9 ] || : >f; done"},
		WorkingDirectory: "/", Environment: map[string]string{},
	})
	childFailed(err)
	// By a command of the machine, so that it writes before it is captured.
	_, err = p.Execute(ctx, id, shell("until [ -s /mnt/session/outputs/f ]; do :; done"))
	childFailed(err)

	phase = "snapshot"
	first, err := p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: hour})
	childFailed(err)
	fmt.Println("kept " + first.Value.SnapshotID)
	phase = "release"
	ended, err := p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: hour})
	childFailed(err)
	fmt.Println("kept " + ended.Value.Snapshot.SnapshotID)
	phase = "resume"
	_, err = p.Resume(ctx, sandbox.ResumeRequest{Request: r, Snapshot: first.Value})
	childFailed(err)
	phase = "clone"
	clone, err := p.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: first.Value, TargetSessionID: "other"})
	childFailed(err)
	fmt.Println("kept " + clone.Value.SnapshotID)
	phase = "destroy"
	fmt.Println("ends " + first.Value.SnapshotID)
	childFailed(p.DestroySnapshot(ctx, first.Value.SnapshotID))
	fmt.Println("gone " + first.Value.SnapshotID)
	phase = "cleanup"
	for _, ref := range []sandbox.SnapshotID{ended.Value.Snapshot.SnapshotID, clone.Value.SnapshotID} {
		fmt.Println("ends " + ref)
	}
	now := later(2 * time.Hour)
	_, err = p.Cleanup(ctx, sandbox.CleanupRequest{Now: now, OrphanedBefore: now})
	childFailed(err)
	os.Exit(4) // the step was never reached
}

// durableSteps are those at which that process dies. What no driver has a part in
// costs a death on one only.
var durableSteps = map[string][]string{
	"runsc": {
		"snapshot: frozen", "release: frozen", "release: captured", "release: stopped", "resume: started", "cleanup: stopped",
	},
	"runc": {
		"provision: image", "snapshot: frozen", "snapshot: capture: staged", "snapshot: capture: content written", "snapshot: capture: renamed",
		"snapshot: captured", "release: frozen", "release: capture: renamed", "release: captured", "release: stopped", "release: unmounted",
		"release: removed", "resume: restore: made", "resume: restore: copied", "resume: image", "resume: started", "resume: active",
		"clone: clone: content written", "clone: clone: renamed", "destroy: destroy: renamed", "destroy: destroy: content removed",
		"cleanup: stopped", "cleanup: destroy: renamed", "cleanup: destroy: removed",
	},
}

// TestDurable_AfterACrash: the controlling process dies at each step of a durable
// life, with a workload that writes into what is frozen. A sweep that is given what
// was acknowledged as pinned ends everything else; of what was acknowledged and not
// yet asked to be ended all is there, and is whole.
func TestDurable_AfterACrash(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		for _, step := range durableSteps[p.opt.Driver.Name()] {
			t.Run(step, func(t *testing.T) {
				var kept, ending []sandbox.SnapshotID
				for line := range strings.Lines(crash(t, p, step, "CHILD_DURABLE=1")) {
					verb, id, _ := strings.Cut(strings.TrimSpace(line), " ")
					switch id := sandbox.SnapshotID(id); verb {
					case "kept":
						kept = append(kept, id)
					case "ends":
						kept = slices.DeleteFunc(kept, func(k sandbox.SnapshotID) bool { return k == id })
						ending = append(ending, id)
					case "gone":
						if slices.Contains(all(t, p), id) {
							t.Errorf("snapshot %s was destroyed and is there", id)
						}
					}
				}
				machine := !slices.Contains([]string{"release: removed", "cleanup: destroy: renamed", "cleanup: destroy: removed"}, step)
				if machine && len(census(t, p)) == 0 {
					t.Error("nothing was left by the crash, so the sweep proves nothing")
				}
				now := later(time.Second)
				swept, err := p.Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now, PinnedSnapshots: kept})
				buryAdopted()
				if err != nil || machine != (len(swept.InstanceIDs) == 1) {
					t.Errorf("swept %+v, %v", swept, err)
				}
				eventually(t, "no loop device is left", func() bool { return loops(t, p.opt.Dir) == nil })
				if left := census(t, p); len(left) > 0 {
					t.Errorf("left after the sweep:\n%s", strings.Join(left, "\n"))
				}
				for _, id := range swept.SnapshotIDs {
					if slices.Contains(kept, id) {
						t.Errorf("pinned and swept: %s", id)
					}
				}
				slices.Sort(kept)
				if left := all(t, p); !slices.Equal(left, kept) {
					t.Errorf("snapshots %v, acknowledged %v, about to be ended %v", left, kept, ending)
				}
				whole(t, p, strings.HasPrefix(step, "release"))
				noneIsKept(t, p)
			})
		}
	})
}

// whole reads every byte of each snapshot and destroys it, and first, where that is
// asked for, has one resumed.
func whole(t *testing.T, p *Provider, resumes bool) {
	t.Helper()
	left, err := p.snapshots.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range left {
		ref := k.Manifest.Snapshot
		if resumes && i == 0 {
			id := resumed(t, p, retained(p, work), ref)
			mustExit(t, sh(t, p, id, "[ -e /mnt/session/outputs/f ]"), 0)
		}
		if h, err := p.snapshots.Hold(t.Context(), ref); err != nil {
			t.Error(err)
		} else {
			if err := h.Verify(t.Context()); err != nil {
				t.Error(err)
			}
			h.Close()
		}
		if err := p.DestroySnapshot(t.Context(), k.ID); err != nil {
			t.Error(err)
		}
	}
}

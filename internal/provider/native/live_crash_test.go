package native

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// liveChild is the controlling process of a crash test of a live pause: a machine with
// a detached program is paused with it, and goes on. A step's name begins with the
// operation.
func liveChild(p *Provider) {
	ctx := context.Background()
	reached, phase := p.opt.Step, "provision"
	p.opt.Step = func(at string) { reached(phase + ": " + at) }
	p.opt.Durable, p.opt.Live = true, true
	p.openSnapshots()
	childFailed(p.Durable())
	r := retained(p, work)
	h, err := p.Provision(ctx, r)
	childFailed(err)
	id := h.Value.InstanceID
	_, err = p.Activate(ctx, id)
	childFailed(err)
	c := shell("")
	argv := guest.DetachCommand(machine.InitPath, "/dev/null", []string{"/bin/sh", "-c", counting})
	c.Executable, c.Arguments = argv[0], argv[1:]
	_, err = p.Execute(ctx, id, c)
	childFailed(err)
	_, err = p.Execute(ctx, id, shell("until [ -s /tmp/n ]; do :; done; echo kept >/mnt/session/outputs/f"))
	childFailed(err)
	phase = "release"
	ended, err := p.ReleaseLive(ctx, id, sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)})
	childFailed(err)
	fmt.Println("kept " + ended.Value.Snapshot.SnapshotID)
	phase = "resume"
	_, err = p.Resume(ctx, sandbox.ResumeRequest{Request: r, Snapshot: *ended.Value.Snapshot})
	childFailed(err)
	os.Exit(4) // the step was never reached
}

// TestLive_AfterACrash: the controlling process dies at each step of a live pause and
// of going on. What was acknowledged is whole and goes on; of the rest a sweep leaves
// nothing, or what is whole. The steps in between are the store's (TestCrashCensus).
func TestLive_AfterACrash(t *testing.T) {
	p := liveProvider(t)
	for _, step := range []string{
		"release: checkpoint begun", "release: checkpoint", "release: capture: live taken", "release: captured",
		"resume: restore: live verified", "resume: started",
	} {
		t.Run(step, func(t *testing.T) {
			var kept []sandbox.SnapshotID
			for line := range strings.Lines(crash(t, p, step, "CHILD_LIVE=1")) {
				if id, ok := strings.CutPrefix(strings.TrimSpace(line), "kept "); ok {
					kept = append(kept, sandbox.SnapshotID(id))
				}
			}
			if len(census(t, p)) == 0 {
				t.Error("nothing was left by the crash, so the sweep proves nothing")
			}
			acknowledged := strings.HasPrefix(step, "resume")
			if acknowledged != (len(kept) == 1) {
				t.Fatalf("kept %v", kept)
			}
			now := later(time.Second)
			swept, err := p.Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now, PinnedSnapshots: kept})
			buryAdopted()
			if err != nil || len(swept.InstanceIDs) != 1 {
				t.Errorf("swept %+v, %v", swept, err)
			}
			eventually(t, "no loop device is left", func() bool { return loops(t, p.opt.Dir) == nil })
			if left := census(t, p); len(left) > 0 {
				t.Errorf("left after the sweep:\n%s", strings.Join(left, "\n"))
			}
			if left := all(t, p); !slices.Equal(left, kept) {
				t.Errorf("snapshots %v, acknowledged %v", left, kept)
			}
			if acknowledged {
				list, err := p.snapshots.List(t.Context())
				if err != nil || len(list) != 1 {
					t.Fatalf("%v, %v", list, err)
				}
				id := resumed(t, p, retained(p, work), list[0].Manifest.Snapshot)
				counts(t, p, id, 0)
				mustExit(t, sh(t, p, id, "[ $(cat /mnt/session/outputs/f) = kept ]"), 0)
				if err := p.Destroy(t.Context(), id); err != nil {
					t.Error(err)
				}
				if err := p.DestroySnapshot(t.Context(), list[0].ID); err != nil {
					t.Error(err)
				}
			}
			noneIsKept(t, p)
		})
	}
}

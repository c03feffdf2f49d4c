package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/treetest"
	"github.com/checkfu/checkfu/sandbox"
)

// durableDrivers runs a test over both drivers with durable retention, or skips
// by name where the host cannot have it. Nothing is left of images and snapshots.
func durableDrivers(t *testing.T, run func(t *testing.T, p *Provider)) {
	for _, name := range []string{"runsc", "runc"} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, name)
			p.opt.Durable = true
			p.openSnapshots()
			how, err := p.Keeps(t.Context())
			if err != nil {
				t.Skip(err)
			}
			t.Log(how)
			t.Cleanup(func() { eventually(t, "no loop device is left", func() bool { return loops(t, p.opt.Dir) == nil }) })
			run(t, p)
		})
	}
}

// loops names the loop devices of images below dir.
func loops(t testing.TB, dir string) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if of, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(of), dir) {
			found = append(found, path)
		}
	}
	return found
}

// retained asks for a durable instance.
func retained(p *Provider, mounts ...sandbox.Mount) sandbox.ProvisionRequest {
	r := request(p, mounts...)
	r.Profile.RetentionMode = sandbox.RetentionDurable
	return r
}

func later(d time.Duration) sandbox.Timestamp { return sandbox.At(time.Now().Add(d)) }

// resumed gives a running instance out of a snapshot.
func resumed(t testing.TB, p *Provider, r sandbox.ProvisionRequest, ref sandbox.Snapshot) sandbox.InstanceID {
	t.Helper()
	r.SessionID, r.RunID = ref.SessionID, "again"
	h, err := p.Resume(t.Context(), sandbox.ResumeRequest{Request: r, Snapshot: ref})
	if err != nil {
		t.Fatal(err)
	}
	id := h.Value.InstanceID
	t.Cleanup(func() {
		if err := p.Destroy(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	if h.Value.State != sandbox.StateActive || h.Value.SessionID != ref.SessionID || h.Value.RunID != "again" {
		t.Errorf("%+v", h.Value)
	}
	return id
}

// TestDurable_RoundTrip: a snapshot in the middle, a release at the end, a clone
// for another session; each comes back as what it was, and none sees another.
func TestDurable_RoundTrip(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		r := retained(p,
			sandbox.Mount{MountPath: "/workspace/repo", Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit},
			sandbox.Mount{MountPath: "/workspace/repo/sealed", Access: sandbox.AccessReadOnly, Kind: sandbox.MountProject})
		id := provision(t, p, r)
		if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: "/workspace/repo/sealed/given", Content: []byte("given")}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		mustExit(t, sh(t, p, id, `cd /workspace/repo && echo early >f && chmod 751 f && ln f g && ln -s f l && ln -s /etc out && mkfifo p &&
			echo e >/mnt/session/outputs/o && echo h >$HOME/h && echo t >/tmp/t && truncate -s 1M sparse && touch "$(printf 'a\nb\377')"`), 0)
		hour := later(time.Hour)
		h, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: hour})
		if err != nil {
			t.Fatal(err)
		}
		early := h.Value
		if early.SourceInstanceID != id || early.ExpiresAt != hour || early.Validate() != nil {
			t.Errorf("%+v", early)
		}
		mustExit(t, sh(t, p, id, `cd /workspace/repo && echo late >f && rm g && echo more >/mnt/session/outputs/late`), 0)
		ended, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: hour})
		if err != nil || ended.Value.Disposition != sandbox.DispositionReleased || ended.Value.Snapshot == nil {
			t.Fatalf("%+v, %v", ended.Value, err)
		}
		late := *ended.Value.Snapshot
		cloned, err := p.CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: early, TargetSessionID: "other"})
		if err != nil {
			t.Fatal(err)
		}
		check := func(id sandbox.InstanceID, script string) {
			t.Helper()
			mustExit(t, sh(t, p, id, "cd /workspace/repo && "+script), 0)
		}
		same := `[ "$(cat sealed/given)" = given ] && ! echo x >sealed/x && [ $(stat -c %a f) = 751 ] && [ "$(readlink l)" = f ] && [ "$(readlink out)" = /etc ] &&
			[ "$(cat $HOME/h)" = h ] && [ -z "$(ls -A /tmp)" ] && [ $(stat -c %a /tmp) = 1777 ] && [ $(stat -c %s sparse) = 1048576 ] && [ -e "$(printf 'a\nb\377')" ] && echo new >n && rm n`
		first := resumed(t, p, r, early)
		check(first, same+` && [ $(cat f) = early ] && [ f -ef g ] && [ ! -e /mnt/session/outputs/late ]`)
		check(resumed(t, p, r, late), same+` && [ $(cat f) = late ] && [ ! -e g ] && [ $(cat /mnt/session/outputs/late) = more ]`)
		check(first, `echo changed >f`)
		if err := p.DestroySnapshot(t.Context(), early.SnapshotID); err != nil {
			t.Fatal(err)
		}
		fork := resumed(t, p, r, cloned.Value)
		check(fork, same+` && [ $(cat f) = early ] && echo forked >f`)
		check(first, `[ $(cat f) = changed ]`)
		check(resumed(t, p, r, cloned.Value), `[ $(cat f) = early ]`)
		for _, ref := range []sandbox.Snapshot{cloned.Value, late} {
			if err := errors.Join(p.DestroySnapshot(t.Context(), ref.SnapshotID), p.DestroySnapshot(t.Context(), ref.SnapshotID)); err != nil {
				t.Error(err)
			}
		}
		if _, err := p.Resume(t.Context(), sandbox.ResumeRequest{Request: r, Snapshot: late}); !errors.Is(err, sandbox.NoSnapshot(sandbox.OpResume, late.SnapshotID)) {
			t.Errorf("got %v", err)
		}
		if kept, err := p.snapshots.List(t.Context()); err != nil || len(kept) != 0 {
			t.Errorf("%d snapshots are left, %v", len(kept), err)
		}
	})
}

// TestDurable_ItsLimitIsTheImage: bytes on the disk and not the machine's memory.
func TestDurable_ItsLimitIsTheImage(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		r := retained(p)
		r.Profile.ResourceLimits.DiskBytes, r.Profile.ResourceLimits.MemoryBytes = 16<<20, 64<<20
		id := provision(t, p, r)
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		got := sh(t, p, id, `cd $HOME && dd if=/dev/zero of=f bs=1M count=15 2>/dev/null && dd if=/dev/zero of=g bs=1M count=4 2>&1`)
		if got.Exit.ExitCode == nil || *got.Exit.ExitCode == 0 || !strings.Contains(string(got.Stdout), "No space") {
			t.Errorf("19 MiB in 16: %s %s", showExit(got), got.Stdout)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(p.place(id).home(), &st); err != nil {
			t.Fatal(err)
		}
		if have := int64(st.Blocks) * st.Bsize; have > 16<<20 || have < 15<<20 {
			t.Errorf("%d bytes", have)
		}
	})
}

// TestDurable_Refusals: what a request and a snapshot must agree on, and what
// each retention forbids.
func TestDurable_Refusals(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		r := retained(p)
		id := provision(t, p, r)
		hour := later(time.Hour)
		if _, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: hour}); !errors.Is(err, sandbox.Conflict(sandbox.OpSnapshot, "active", "provisioning")) {
			t.Errorf("in provisioning: %v", err)
		}
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		kind := func(what string, err error, want sandbox.Kind, expected string) {
			t.Helper()
			if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Kind != want || !strings.HasPrefix(e.Expected, expected) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{})
		kind("a snapshot until no day", err, sandbox.OperationFailed, "")
		_, err = p.Release(t.Context(), id, sandbox.ReleaseRequest{})
		kind("a release until no day", err, sandbox.OperationFailed, "")
		_, err = p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: later(-time.Minute)})
		kind("a snapshot until a past day", err, sandbox.LifecycleConflict, "expires_at after ")
		_, err = p.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: later(-time.Minute)})
		kind("a release until a past day", err, sandbox.LifecycleConflict, "expires_at after ")
		mustExit(t, sh(t, p, id, "echo still here >$HOME/f"), 0)
		// What a version kept whose machines had other host ids is refused by that name.
		home := func(gid int) {
			t.Helper()
			if err := os.Chown(p.place(id).home(), 0, gid); err != nil {
				t.Fatal(err)
			}
		}
		home(100000)
		old, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: hour})
		if err != nil {
			t.Fatal(err)
		}
		home(IDBase)
		zdr := activated(t, p)
		if _, err := p.Snapshot(t.Context(), zdr, sandbox.SnapshotRequest{ExpiresAt: hour}); !errors.Is(err, sandbox.Forbidden(sandbox.OpSnapshot, zdr)) {
			t.Errorf("of zero retention: %v", err)
		}
		h, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: hour})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Resume(t.Context(), sandbox.ResumeRequest{Request: r, Snapshot: old.Value})
		kind("a home in other ids", err, sandbox.LifecycleConflict, "a home in the ids from "+strconv.Itoa(IDBase))
		if err := old.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		ref := *h.Value.Snapshot
		conflict := func(expected, actual string) error { return sandbox.Conflict(sandbox.OpResume, expected, actual) }
		unavailable := func(r sandbox.Requirement, asked, offered string) error {
			return sandbox.Unavailable(sandbox.OpResume, r, asked, offered)
		}
		nobodys := sandbox.SnapshotID("0123456789abcdef0123456789abcdef")
		past, beyond := later(-time.Minute), later(2*time.Hour)
		for name, c := range map[string]struct {
			change func(*sandbox.ResumeRequest)
			want   error
		}{
			"workspace":       {func(q *sandbox.ResumeRequest) { q.Request.WorkspaceID = "other" }, conflict("snapshot.workspace_id ws", "other")},
			"session":         {func(q *sandbox.ResumeRequest) { q.Request.SessionID = "other" }, conflict("snapshot.session_id ses", "other")},
			"profile":         {func(q *sandbox.ResumeRequest) { q.Request.Profile.ProfileID = "other" }, conflict("snapshot.profile_id profile", "other")},
			"profile version": {func(q *sandbox.ResumeRequest) { q.Request.Profile.ProfileVersion++ }, conflict("snapshot.profile_version 1", "2")},
			"materialization": {func(q *sandbox.ResumeRequest) { q.Request.Target.MaterializationRevision = "older" },
				conflict("target.materialization_revision "+MaterializationRevision, "older")},
			"retention": {func(q *sandbox.ResumeRequest) { q.Request.Profile.RetentionMode = sandbox.RetentionEphemeralZDR },
				unavailable(sandbox.RequireRetention, "ephemeral_zdr", "durable")},
			"disk": {func(q *sandbox.ResumeRequest) { q.Request.Profile.ResourceLimits.DiskBytes *= 2 },
				unavailable(sandbox.RequireResources, "disk_bytes of another size", "71303168 bytes of image")},
			"mounts": {func(q *sandbox.ResumeRequest) {
				q.Request.Mounts = []sandbox.Mount{{MountPath: "/workspace/x", Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit}}
			}, unavailable(sandbox.RequireMounts, "another mount plan", "the plan of the snapshot")},
			"deadline":             {func(q *sandbox.ResumeRequest) { q.Request.ExpiresAt = past }, conflict("expires_at in the future", string(past))},
			"a later expiry":       {func(q *sandbox.ResumeRequest) { q.Snapshot.ExpiresAt = beyond }, conflict("snapshot.expires_at "+string(hour), string(beyond))},
			"another source":       {func(q *sandbox.ResumeRequest) { q.Snapshot.SourceInstanceID = "other" }, conflict("snapshot.source_instance_id "+string(id), "other")},
			"a snapshot of nobody": {func(q *sandbox.ResumeRequest) { q.Snapshot.SnapshotID = nobodys }, sandbox.NoSnapshot(sandbox.OpResume, nobodys)},
		} {
			q := sandbox.ResumeRequest{Request: r, Snapshot: ref}
			c.change(&q)
			if _, err := p.Resume(t.Context(), q); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		}
		mustExit(t, sh(t, p, resumed(t, p, r, ref), `[ "$(cat $HOME/f)" = "still here" ]`), 0) // and as it was it can be
		if err := h.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		if kept, err := p.snapshots.List(t.Context()); err != nil || len(kept) != 0 {
			t.Errorf("%d snapshots are left, %v", len(kept), err)
		}
	})
}

// TestDurable_AFullDisk: the store cannot write. Nothing comes of a snapshot, a
// clone or a release, nothing is lost, and each can be had once there is room.
func TestDurable_AFullDisk(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		id := durableInstance(t, p, retained(p))
		hour := later(time.Hour)
		early, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: hour})
		if err != nil {
			t.Fatal(err)
		}
		mustExit(t, sh(t, p, id, "echo kept >$HOME/f"), 0)
		undo := map[sandbox.Operation]func(context.Context) error{}
		ask := map[sandbox.Operation]func() error{
			sandbox.OpSnapshot: func() error {
				h, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: hour})
				undo[sandbox.OpSnapshot] = h.Rollback
				return err
			},
			sandbox.OpCloneSnapshot: func() error {
				h, err := p.CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: early.Value, TargetSessionID: "other"})
				undo[sandbox.OpCloneSnapshot] = h.Rollback
				return err
			},
			sandbox.OpRelease: func() error {
				h, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: hour})
				undo[sandbox.OpRelease] = h.Rollback
				return err
			},
		}
		order := []sandbox.Operation{sandbox.OpSnapshot, sandbox.OpCloneSnapshot, sandbox.OpRelease}
		full := filepath.Join(p.opt.Dir, "snapshots", "staging")
		if err := unix.Mount("none", full, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
		for _, op := range order {
			if err := ask[op](); !errors.Is(err, unix.ENOSPC) || !errors.Is(err, sandbox.Failed(op, sandbox.ReasonProviderError, nil)) {
				t.Errorf("%s: %v", op, err)
			}
			if left, err := os.ReadDir(full); err != nil || len(left) > 0 {
				t.Errorf("%s left %v, %v", op, left, err)
			}
		}
		if err := unix.Unmount(full, 0); err != nil {
			t.Fatal(err)
		}
		if have := all(t, p); !slices.Equal(have, []sandbox.SnapshotID{early.Value.SnapshotID}) {
			t.Errorf("kept: %v", have)
		}
		mustExit(t, sh(t, p, id, "[ $(cat $HOME/f) = kept ] && echo more >>$HOME/f"), 0)
		for _, op := range order {
			if err := ask[op](); err != nil {
				t.Errorf("%s, with room: %v", op, err)
			} else if err := undo[op](t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := early.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		noneIsKept(t, p)
	})
}

// TestDurable_TwentyCycles: through snapshot, release and resume, again and again,
// nothing of what a filesystem can hold is lost, nor of what each of the machines
// wrote. Under gVisor five: its part in it is the same each time, and slow.
func TestDurable_TwentyCycles(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		cycles := map[string]int{"runsc": 5, "runc": 20}[p.opt.Driver.Name()]
		r := retained(p, work)
		id := provision(t, p, r)
		built := func(id sandbox.InstanceID) string { return filepath.Join(p.place(id).home(), "mounts", "0") }
		treetest.Build(t, built(id))
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		want := treetest.Walk(t, built(id))
		hour := later(time.Hour)
		for n := range cycles {
			mustExit(t, sh(t, p, id, fmt.Sprintf("touch $HOME/log && [ $(wc -l <$HOME/log) = %d ] && echo %d >>$HOME/log", n, n)), 0)
			taken, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: hour})
			if err != nil {
				t.Fatal(err)
			}
			ended, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: hour})
			if err != nil {
				t.Fatal(err)
			}
			ref := ended.Value.Snapshot // or what was taken while it ran: the same
			if n%2 == 1 {
				ref = &taken.Value
			}
			id = resumed(t, p, r, *ref)
			if diff := cmp.Diff(want, treetest.Walk(t, built(id))); diff != "" {
				t.Fatalf("after cycle %d: %s", n, diff)
			}
			for _, undo := range []func(context.Context) error{taken.Rollback, ended.Rollback} {
				if err := undo(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		noneIsKept(t, p)
	})
}

// TestDurable_Swept: the cutoff, the pin and the expiry, through Cleanup.
func TestDurable_Swept(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		id := provision(t, p, retained(p))
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		var ids []sandbox.SnapshotID
		for range 2 {
			h, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: later(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, h.Value.SnapshotID)
		}
		for i, c := range []struct {
			now  sandbox.Timestamp
			pins []sandbox.SnapshotID
			want sandbox.SnapshotID
		}{{later(time.Minute), ids[1:], ids[0]}, {later(2 * time.Hour), ids[1:], ids[1]}} {
			got, err := p.Cleanup(t.Context(), sandbox.CleanupRequest{Now: c.now, OrphanedBefore: later(time.Second), PinnedSnapshots: c.pins})
			if err != nil || len(got.SnapshotIDs) != 1 || got.SnapshotIDs[0] != c.want {
				t.Errorf("sweep %s: %+v, %v", strconv.Itoa(i), got, err)
			}
		}
	})
}

// all names every snapshot there is.
func all(t *testing.T, p *Provider) []sandbox.SnapshotID {
	t.Helper()
	kept, err := p.snapshots.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []sandbox.SnapshotID
	for _, k := range kept {
		ids = append(ids, k.ID)
	}
	return ids
}

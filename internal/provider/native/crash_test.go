package native

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/runc"
	"github.com/checkfu/checkfu/sandbox"
)

// steps are the points of the lifecycle at which the controlling process is
// killed, in the order in which they are reached.
var steps = []string{
	"directory", "record", "home", "root", "provisioned", "started", "active", "running",
	"stopped", "reaped", "unmounted", "removed",
}

// crashChild is the controlling process of a crash test: it goes through one
// life and dies by SIGKILL at one step, having said that it got there.
func crashChild(step string) {
	reached := func(at string) {
		if at == step {
			fmt.Println("reached " + at)
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	p := childProvider(reached)
	r := request(p, work)
	if mode := os.Getenv("CHILD_GUARD"); mode != "" {
		r.Profile.NetworkPolicy = allowing(guarded(p, mode), listed).Profile.NetworkPolicy
		p.opt.Model = &Model{
			Start: testGuard(p.opt.Dir, mode+" relay").Start,
			Lease: func(context.Context, sandbox.ProvisionRequest) (*Lease, error) {
				return &Lease{Gateway: "unix:/nowhere", Token: route.NewToken(), End: func(context.Context) {}}, nil
			},
		}
	}
	if path := os.Getenv("CHILD_UPLINK"); path != "" {
		r.Profile.NetworkPolicy = unrestricted(opening(p, path)).Profile.NetworkPolicy
	}
	if os.Getenv("CHILD_DURABLE") != "" {
		durableChild(p)
	}
	if os.Getenv("CHILD_LIVE") != "" {
		liveChild(p)
	}
	if mode := os.Getenv("CHILD_WRITE"); mode != "" {
		writeChild(p, mode)
	}
	h, err := p.Provision(context.Background(), r)
	childFailed(err)
	id := h.Value.InstanceID
	childFailed(p.WriteFile(context.Background(), id, sandbox.FileWrite{Path: "/workspace/repo/f", Content: []byte("x")}))
	_, err = p.Activate(context.Background(), id)
	childFailed(err)
	_, err = p.OpenProcess(context.Background(), id, processID, sandbox.ProcessRequest{
		Executable: "/bin/sh", Arguments: []string{"-c", "setsid sleep 600 & sleep 600"}, WorkingDirectory: "/", Environment: map[string]string{},
	})
	childFailed(err)
	reached("running")
	_, err = p.Release(context.Background(), id, sandbox.ReleaseRequest{})
	childFailed(err)
	os.Exit(4) // the step was never reached
}

func childFailed(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// childProvider opens, in a child of the test, the provider that its parent
// described with childEnv.
func childProvider(step func(string)) *Provider {
	dir := os.Getenv("CHILD_DIR")
	var d machine.Driver = runc.New(runc.Options{Root: filepath.Join(dir, "runc"), CgroupParent: cgroupParent})
	var err error
	if os.Getenv("CHILD_DRIVER") == "runsc" {
		d, err = gvisor.New(gvisor.Options{Root: filepath.Join(dir, "runsc"), CgroupParent: cgroupParent})
		childFailed(err)
	}
	store, err := image.Open(os.Getenv("CHILD_STORE"), image.Options{IDBase: IDBase})
	childFailed(err)
	init, err := os.ReadFile(os.Getenv("CHILD_INIT"))
	childFailed(err)
	p, err := New(Options{Dir: dir, Driver: d, Images: store, Init: init, Step: step})
	childFailed(err)
	shared.img, err = store.Resolve(context.Background(), os.Getenv("CHILD_IMAGE"))
	childFailed(err)
	return p
}

func childEnv(p *Provider, more ...string) []string {
	return append(append(os.Environ(), more...), "CHILD_DIR="+p.opt.Dir, "CHILD_CGROUP="+cgroupParent, "CHILD_DRIVER="+p.opt.Driver.Name(),
		"CHILD_IMAGE="+shared.img.Reference, "CHILD_STORE="+filepath.Join(shared.dir, "images"), "CHILD_INIT="+p.initPath)
}

// crash runs one life that dies at step, in a child with more environment, and
// returns what it said until then.
func crash(t *testing.T, p *Provider, step string, more ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = childEnv(p, append(more, "CHECKFU_TEST_CRASH="+step)...)
	out, err := child.CombinedOutput()
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	if err == nil || !ok || status.Signal() != syscall.SIGKILL || !strings.Contains(string(out), "reached "+step) {
		t.Fatalf("the child did not die at %s: %v\n%s", step, err, out)
	}
	return string(out)
}

func sweep(t *testing.T, p *Provider, pins ...sandbox.SnapshotID) sandbox.Swept {
	t.Helper()
	now := sandbox.At(time.Now().Add(time.Second))
	swept, err := p.Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now, PinnedSnapshots: pins})
	if err != nil {
		t.Fatal(err)
	}
	buryAdopted()
	return swept
}

// buryAdopted reaps what this process, a subreaper, inherited from the crashed
// children: their machines' processes, which a sweeper that is nobody's parent
// leaves to the host's init.
func buryAdopted() {
	for _, pid := range pids() {
		if state, parent := life(pid); state == "Z" && parent == os.Getpid() {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

func pids() []int {
	var all []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// life returns a process's state letter and its parent.
func life(pid int) (state string, parent int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %s %d", &state, &parent)
	return state, parent
}

// census names everything on the host that still bears a mark of the provider:
// processes, mounts, cgroups, instance files; of the instances to spare nothing.
func census(t testing.TB, p *Provider, spare ...sandbox.InstanceID) []string {
	t.Helper()
	var left []string
	for _, pid := range pids() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		// What is dead and waits for the host's init is that init's.
		if state, parent := life(pid); pid == os.Getpid() || state == "Z" && parent == 1 {
			continue
		}
		if strings.Contains(string(line), p.opt.Dir) || strings.Contains(string(groups), cgroupParent+"/") {
			left = append(left, fmt.Sprintf("process %d %q in %q", pid, line, groups))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, p.opt.Dir+"/instances/") {
			left = append(left, "mount "+line)
		}
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroupParent + "/*")
	unified, _ := filepath.Glob("/sys/fs/cgroup/" + cgroupParent + "/*")
	for _, g := range append(groups, unified...) {
		if info, err := os.Stat(g); err == nil && info.IsDir() {
			left = append(left, "cgroup "+g)
		}
	}
	if p.opt.Uplink != nil {
		linked, err := p.opt.Uplink.Census()
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, linked...)
	}
	filepath.WalkDir(p.instancesDir(), func(path string, _ fs.DirEntry, _ error) error {
		if path != p.instancesDir() {
			left = append(left, "file "+path)
		}
		return nil
	})
	return slices.DeleteFunc(left, func(s string) bool {
		return slices.ContainsFunc(spare, func(id sandbox.InstanceID) bool { return strings.Contains(s, string(id)) })
	})
}

// B43: the controlling process is killed at each step of a life, beside a machine that
// lives and a snapshot that is pinned. Whoever sweeps after a restart takes exactly what
// is dead, once, and the machine and the snapshot are as they were.
func TestCleanup_AfterACrashAtEachStepNothingIsLeft(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		live, pinned := bystanders(t, p)
		for _, step := range steps {
			t.Run(step, func(t *testing.T) {
				crash(t, p, step)
				if step != "removed" && len(census(t, p, live)) == 0 {
					t.Error("nothing was left by the crash, so the sweep proves nothing")
				}
				if step == "directory" { // young and without a lock: it could be being made right now
					ageUnborn(t, p, live)
				}
				restarted, err := New(p.opt)
				if err != nil {
					t.Fatal(err)
				}
				swept := sweep(t, restarted, pinned...)
				if want := 1; step != "removed" && len(swept.InstanceIDs) != want || slices.Contains(swept.InstanceIDs, live) || len(swept.SnapshotIDs) > 0 {
					t.Errorf("swept %+v", swept)
				}
				if left := census(t, p, live); len(left) > 0 {
					t.Errorf("left after the sweep:\n%s", strings.Join(left, "\n"))
				}
				if again := sweep(t, p, pinned...); len(again.InstanceIDs) != 0 || len(again.SnapshotIDs) > 0 {
					t.Errorf("a second sweep found %+v", again)
				}
				mustExit(t, sh(t, p, live, "[ $(cat /mnt/session/outputs/f) = here ]"), 0)
			})
		}
		if pinned != nil {
			if left := all(t, p); !slices.Equal(left, pinned) {
				t.Errorf("pinned %v, there are %v", pinned, left)
			}
			whole(t, p, false)
		}
	})
}

// bystanders give what no sweep may take: a machine that runs and, where this host
// can keep any, a snapshot of it, to be pinned. A second snapshot, which nobody pins,
// is swept at once: else the pin would prove nothing.
func bystanders(t *testing.T, p *Provider) (live sandbox.InstanceID, pinned []sandbox.SnapshotID) {
	t.Helper()
	p.opt.Durable = true
	p.openSnapshots()
	r := request(p)
	keeps, err := p.Keeps(t.Context())
	if err == nil {
		r = retained(p)
	}
	t.Log(keeps, err)
	live = activate(t, p, r)
	mustExit(t, sh(t, p, live, "echo here >/mnt/session/outputs/f"), 0)
	if err != nil {
		return live, nil
	}
	var loose sandbox.SnapshotID
	for _, id := range []*sandbox.SnapshotID{&loose, nil} {
		h, err := p.Snapshot(t.Context(), live, sandbox.SnapshotRequest{ExpiresAt: later(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if id != nil {
			*id = h.Value.SnapshotID
		} else {
			pinned = append(pinned, h.Value.SnapshotID)
		}
	}
	if swept := sweep(t, p, pinned...); !slices.Equal(swept.SnapshotIDs, []sandbox.SnapshotID{loose}) || len(swept.InstanceIDs) > 0 {
		t.Errorf("swept %+v, not %s", swept, loose)
	}
	return live, pinned
}

// ageUnborn makes directories that have no record yet two minutes old.
func ageUnborn(t *testing.T, p *Provider, spare ...sandbox.InstanceID) {
	t.Helper()
	entries, err := os.ReadDir(p.instancesDir())
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Minute)
	for _, e := range entries {
		if slices.Contains(spare, sandbox.InstanceID(e.Name())) {
			continue
		}
		if err := os.Chtimes(filepath.Join(p.instancesDir(), e.Name()), old, old); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCleanup_AMachineEndsWithItsOwner(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		crash(t, p, "running")
		eventually(t, "no process of the machine lives", func() bool {
			buryAdopted()
			return !slices.ContainsFunc(census(t, p), func(s string) bool { return strings.HasPrefix(s, "process") })
		})
		sweep(t, p)
	})
}

func TestCleanup_ASweepEndsNoLiveInstance(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		live := map[sandbox.InstanceID]sandbox.Process{}
		for range 10 {
			id := activated(t, p)
			live[id] = open(t, p, id, "cat")
		}
		crash(t, p, "running")
		crash(t, p, "home")
		// A sweeper that owns nothing, as another process would be.
		other, err := New(p.opt)
		if err != nil {
			t.Fatal(err)
		}
		swept := sweep(t, other)
		if len(swept.InstanceIDs) != 2 {
			t.Errorf("swept %d instances, want the two orphans", len(swept.InstanceIDs))
		}
		for id, proc := range live {
			if slices.Contains(swept.InstanceIDs, id) {
				t.Errorf("live instance %s was swept", id)
			}
			if _, err := proc.Input().Write([]byte("still here")); err != nil {
				t.Error(err)
			}
			proc.Input().Close()
			if exit := exitWithin(t, proc, 20*time.Second); exit.ExitCode == nil || *exit.ExitCode != 0 {
				t.Errorf("%s: %+v", id, exit)
			}
		}
	})
}

// An instance does not outlive its own deadline, whoever owns it and whether
// or not anybody sweeps; its guard neither.
func TestCleanup_AnInstancePastItsExpiryIsReclaimed(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		r := allowing(guarded(p, "stubborn"), listed)
		r.ExpiresAt = sandbox.At(time.Now().Add(8 * time.Second))
		id := provision(t, p, r)
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the instance is gone", func() bool { return len(census(t, p)) == 0 })
		if _, err := p.Execute(t.Context(), id, shell("true")); err == nil {
			t.Error("an expired instance still runs commands")
		}
		r.ExpiresAt = sandbox.At(time.Now().Add(-time.Second))
		if _, err := p.Provision(t.Context(), r); err == nil {
			t.Error("an instance was provisioned past its expiry")
		}
	})
}

func TestDestroyIsIdempotentAndConcurrent(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		for _, when := range []string{"provisioning", "activating", "active", "executing"} {
			t.Run(when, func(t *testing.T) {
				id := provision(t, p, request(p))
				background := make(chan struct{})
				switch when {
				case "activating":
					go func() { p.Activate(context.Background(), id); close(background) }()
					time.Sleep(20 * time.Millisecond)
				case "active", "executing":
					if _, err := p.Activate(t.Context(), id); err != nil {
						t.Fatal(err)
					}
					fallthrough
				default:
					go func() {
						if when == "executing" {
							p.Execute(context.Background(), id, shell("sleep 30"))
						}
						close(background)
					}()
				}
				errs := make(chan error, 10)
				for range 10 {
					go func() { errs <- p.Destroy(context.Background(), id) }()
				}
				for range 10 {
					if err := <-errs; err != nil {
						t.Error(err)
					}
				}
				<-background
				if left := census(t, p); len(left) > 0 {
					t.Errorf("left:\n%s", strings.Join(left, "\n"))
				}
			})
		}
		for _, id := range []sandbox.InstanceID{"", "unknown", "../../etc", sandbox.InstanceID(strings.Repeat("0", 32))} {
			if err := p.Destroy(t.Context(), id); err != nil {
				t.Errorf("%q: %v", id, err)
			}
		}
	})
}

package native

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/sandbox"
)

// buildSteps are the points of a build at which its process is killed, in the order
// in which they are reached.
var buildSteps = []string{
	"directory", "record", "image", "home", "root", "egress", "guarded", "started", "active", "installed",
	"ended", "derived", "reaped", "unmounted", "removed",
}

// buildChild builds one image and dies by SIGKILL at a step, having said that it got
// there.
func buildChild(step string) {
	dir := os.Getenv("CHILD_DIR")
	d, err := gvisor.New(gvisor.Options{Root: filepath.Join(dir, "runsc"), CgroupParent: cgroupParent})
	childFailed(err)
	store, err := image.Open(os.Getenv("CHILD_STORE"), image.Options{IDBase: IDBase})
	childFailed(err)
	init, err := os.ReadFile(os.Getenv("CHILD_INIT"))
	childFailed(err)
	b, err := NewBuilder(buildOptions(filepath.Join(dir, "machines"), d, store, init, func(at string) {
		if at == step {
			fmt.Println("reached " + at)
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}))
	childFailed(err)
	b.recipe = scripted("echo x >/bin/tool; (setsid sleep 600 &)")
	shared.img, err = store.Resolve(context.Background(), os.Getenv("CHILD_IMAGE"))
	childFailed(err)
	p := &Provider{opt: Options{Driver: d}}
	r := packaged(p)
	_, err = b.Materialize(context.Background(), r.Profile, r.Platform)
	childFailed(err)
	os.Exit(4) // the step was never reached
}

// A build whose process is killed leaves an image or none, and of itself nothing
// that a sweep does not take away.
func TestBuild_AfterACrashAtEachStepNothingIsLeft(t *testing.T) {
	p := newProvider(t, "runsc")
	b := newBuilder(t, p, "echo x >/bin/tool")
	dir := filepath.Dir(b.opt.Dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	store := b.opt.Images.(*image.Store)
	for _, step := range buildSteps {
		child := exec.Command(self)
		child.Env = append(os.Environ(), "CHECKFU_TEST_BUILD="+step, "CHILD_DIR="+dir, "CHILD_CGROUP="+cgroupParent,
			"CHILD_IMAGE="+shared.img.Reference, "CHILD_STORE="+filepath.Join(dir, "images"), "CHILD_INIT="+b.p.initPath)
		out, err := child.CombinedOutput()
		status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
		if err == nil || !ok || status.Signal() != syscall.SIGKILL || !strings.Contains(string(out), "reached "+step) {
			t.Fatalf("the child did not die at %s: %v\n%s", step, err, out)
		}
		if step != "removed" && len(census(t, b.p)) == 0 {
			t.Errorf("%s: nothing was left by the crash, so the sweep proves nothing", step)
		}
		if step == "directory" { // young and without a lock: it could be being made right now
			ageUnborn(t, b.p)
		}
		// A sweep of the provider's takes it along.
		now := sandbox.At(time.Now().Add(time.Second))
		if _, err := p.Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now}); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		buryAdopted()
		if left := census(t, b.p); len(left) > 0 {
			t.Errorf("%s: left after the sweep:\n%s", step, strings.Join(left, "\n"))
		}
		if _, err := image.Open(filepath.Join(dir, "images"), image.Options{IDBase: IDBase}); err != nil {
			t.Fatal(err)
		}
		images, err := store.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range images {
			if i.Derivation == nil {
				continue
			}
			root, err := store.Rootfs(t.Context(), i.Digest)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(filepath.Join(root.Path, "bin/tool")); err != nil {
				t.Errorf("%s: the image is not whole: %v", step, err)
			}
			root.Release()
			if err := store.Remove(t.Context(), i.Digest); err != nil {
				t.Error(err)
			}
		}
		if want := buildIndex(step) >= buildIndex("derived"); (len(images) > 1) != want {
			t.Errorf("%s: images %v", step, images)
		}
	}
	r := packaged(p)
	if _, err := b.Materialize(t.Context(), r.Profile, r.Platform); err != nil {
		t.Errorf("after all of them: %v", err)
	}
}

func buildIndex(step string) int {
	for i, s := range buildSteps {
		if s == step {
			return i
		}
	}
	return -1
}

package snapshot

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/treetest"
	"github.com/checkfu/checkfu/internal/snapshot/volume"
	"github.com/checkfu/checkfu/sandbox"
)

// method returns what dir offers, or skips by name.
func method(t *testing.T, dir string, want Method) {
	t.Helper()
	treetest.NeedsRoot(t)
	choice, err := Choose(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if choice.Method != want {
		t.Skipf("%s here: %s", choice.Method, choice.Reason)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 || names[0].Name() != remembered {
		t.Errorf("the probe left %v, %v", names, err)
	}
}

// onBtrfs is a directory whose filesystem shares blocks.
func onBtrfs(t *testing.T) string {
	t.Helper()
	treetest.NeedsRoot(t)
	if _, err := exec.LookPath("mkfs.btrfs"); err != nil {
		t.Skip("no mkfs.btrfs: ", err)
	}
	disk, at := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	f, err := os.Create(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(512<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.btrfs", "-q", "-f", disk).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.btrfs: %v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", disk, at).CombinedOutput(); err != nil {
		t.Skipf("no btrfs here: %v: %s", err, out)
	}
	t.Cleanup(func() { treetest.Unmount(t, at) })
	return at
}

// home is a session's mounted image.
type home struct {
	image, at string
	volume    *volume.Volume
}

// session is a new home.
func session(t *testing.T, dir string) home {
	t.Helper()
	image := filepath.Join(dir, "home")
	if err := volume.Create(t.Context(), image, 64<<20, 4096); err != nil {
		t.Fatal(err)
	}
	return mount(t, image)
}

func mount(t *testing.T, image string) home {
	t.Helper()
	h := home{image: image, at: t.TempDir()}
	var err error
	if h.volume, err = volume.Mount(image, h.at); err != nil {
		t.Fatal(err)
	}
	unmountLater(t, h)
	return h
}

func unmountLater(t *testing.T, h home) {
	t.Cleanup(func() {
		h.volume.Close()
		treetest.Unmount(t, h.at)
	})
}

// take captures a home as a provider does.
func take(t *testing.T, s *Store, expires sandbox.Timestamp, from home) sandbox.Snapshot {
	t.Helper()
	frozen, err := from.volume.Freeze(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Thaw()
	whole, thawed := false, error(nil)
	ref, err := s.Capture(t.Context(), reference(expires), plan, Source{Form: FormImage, Path: from.image, Taken: func() { whole, thawed = frozen.Thaw() }})
	if err := errors.Join(err, thawed); err != nil || !whole {
		t.Fatalf("frozen until it was taken: %v, %v", whole, err)
	}
	return ref
}

// resume restores a snapshot and mounts it.
func resume(t *testing.T, s *Store, dir string, ref sandbox.Snapshot) home {
	t.Helper()
	h, err := s.Hold(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	to := home{image: filepath.Join(dir, "home-"+string(newID())), at: t.TempDir()}
	to.volume, err = h.Mount(t.Context(), to.image, to.at)
	if err := errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	unmountLater(t, to)
	return to
}

func TestImages_Copied(t *testing.T) {
	dir := t.TempDir()
	method(t, dir, MethodCopied)
	imagesSurvive(t, dir, 20)
}

func TestImages_Shared(t *testing.T) {
	dir := onBtrfs(t)
	method(t, dir, MethodShared)
	imagesSurvive(t, dir, 20)
}

// imagesSurvive goes through cycles of capture and resume, and looks by a walk
// that shares nothing with the store; then one snapshot is cloned for five
// sessions, and what any of them writes no other sees.
func imagesSurvive(t *testing.T, dir string, cycles int) {
	c := noon()
	s := open(t, filepath.Join(dir, "snapshots"), c)
	now := session(t, dir)
	treetest.Build(t, now.at)
	want := treetest.Walk(t, now.at)
	var ref sandbox.Snapshot
	for range cycles {
		ref = take(t, s, c.in(time.Hour), now)
		now = resume(t, s, dir, ref)
	}
	if diff := cmp.Diff(want, treetest.Walk(t, now.at)); diff != "" {
		t.Fatal(diff)
	}
	all, err := s.List(t.Context())
	if err != nil || len(all) != cycles || all[0].Bytes > 8<<20 {
		t.Errorf("%d are kept, the first with %d bytes on the disk, %v", len(all), all[0].Bytes, err)
	}
	var forks []string
	for i := range 5 {
		clone, err := s.Clone(t.Context(), ref, "fork-"+strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		at := resume(t, s, dir, clone).at
		forks = append(forks, at)
		if err := errors.Join(os.WriteFile(at+"/outputs/plain", []byte(strconv.Itoa(i)), 0), os.Remove(at+"/zz-other")); err != nil {
			t.Fatal(err)
		}
	}
	for i, at := range forks {
		if got, err := os.ReadFile(at + "/outputs/plain"); err != nil || string(got) != strconv.Itoa(i) {
			t.Errorf("fork %d has %q, %v", i, got, err)
		}
	}
	if err := s.Destroy(t.Context(), all[0].ID); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, treetest.Walk(t, now.at)); diff != "" {
		t.Errorf("what they were made from: %s", diff)
	}
}

// TestChoose_WithoutImages: a host without them still keeps sessions, and the
// reason is told.
func TestChoose_WithoutImages(t *testing.T) {
	choice, err := Choose(t.Context(), t.TempDir())
	if err != nil || choice.Reason == "" {
		t.Fatalf("%+v, %v", choice, err)
	}
	if want := map[Method]Form{MethodShared: FormImage, MethodCopied: FormImage, MethodTree: FormTree}[choice.Method]; choice.Form != want {
		t.Errorf("%+v", choice)
	}
	t.Logf("%s: %s", choice.Method, choice.Reason)
}

// TestChoose_TriesOnceABoot, and again where its note is of something else.
func TestChoose_TriesOnceABoot(t *testing.T) {
	dir := t.TempDir()
	method(t, dir, MethodCopied)
	want, err := Choose(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(dir, remembered)
	body, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // whoever tries now fails
	if got, err := Choose(gone, dir); err != nil || got != want {
		t.Errorf("noted: %+v, %v", got, err)
	}
	for name, other := range map[string]string{
		"cut": string(body[:len(body)-1]), "more": string(body) + "\n", "empty": "", "another boot": strings.Replace(string(body), "boot ", "boot 0", 1),
		"another disk": strings.Replace(string(body), "device ", "device 1", 1), "another kernel": strings.Replace(string(body), "kernel ", "kernel 0", 1),
		"no method": strings.Replace(string(body), string(MethodCopied), string(MethodTree), 1),
	} {
		if err := os.WriteFile(note, []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Choose(gone, dir); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := Choose(t.Context(), dir); err != nil || got != want {
		t.Errorf("tried again: %+v, %v", got, err)
	}
	if again, err := os.ReadFile(note); err != nil || string(again) != string(body) {
		t.Errorf("noted %q, %v", again, err)
	}
}

// TestChoose_NoImagesWhereNoneCanBeMounted: the devices of the host are hidden from a
// child, which is where a container often is.
func TestChoose_NoImagesWhereNoneCanBeMounted(t *testing.T) {
	method(t, t.TempDir(), MethodCopied)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestChooseChild$", "-test.v")
	cmd.Env = append(os.Environ(), "SNAPSHOT_TEST_CHOOSE="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "chosen: tree") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestChooseChild chooses where the loop devices are gone but the one that makes them.
func TestChooseChild(t *testing.T) {
	dir := os.Getenv("SNAPSHOT_TEST_CHOOSE")
	if dir == "" {
		t.Skip("the child of TestChoose_NoImagesWhereNoneCanBeMounted")
	}
	hidden := t.TempDir()
	if err := os.Mkdir(hidden+"/dev", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, number := range map[string]uint64{"loop-control": unix.Mkdev(10, 237), "null": unix.Mkdev(1, 3)} {
		if err := unix.Mknod(hidden+"/dev/"+name, unix.S_IFCHR|0o600, int(number)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(hidden+"/dev", "/dev", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	choice, err := Choose(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", choice.Reason)
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("left %v, %v", names, err)
	}
	t.Logf("chosen: %s", choice.Method)
}

package sandbox

import (
	"strconv"
	"strings"
	"testing"
)

func TestPaths_Form(t *testing.T) {
	for _, good := range []string{"/a", "/a/b", "/a b/c\n", "/...", "/..a", "/a..", "/.a", "/\xff", "/é", "/a\\b"} {
		named(t, CheckPath("path", good), "")
	}
	for _, bad := range []string{"", "/", "//", "a", "a/b", "./a", "../a", "/a/", "//a", "/a//b", "/.", "/..", "/a/.", "/a/..", "/a/../b", "/a/./b", "/a\x00", "\x00/a"} {
		named(t, CheckPath("path", bad), "path")
	}
	bound(t, "path", MaxNameBytes, func(n int) error { return CheckPath("path", "/"+strings.Repeat("a", n)) })
	long := strings.Repeat("/"+strings.Repeat("a", 127), 32) // 4096 bytes
	bound(t, "path", MaxPathBytes, func(n int) error { return CheckPath("path", (long + "a")[:n]) })
}

func FuzzCheckPath(f *testing.F) {
	for _, seed := range []string{"/a", "/a/../b", "//", "/a/", "/\x00", "/..."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if CheckPath("path", path) != nil {
			return
		}
		if path[0] != '/' || strings.Contains(path+"/", "//") || strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../") ||
			strings.ContainsRune(path, 0) || len(path) > 4096 || len(path) < 2 {
			t.Errorf("took %q", path)
		}
		if !Within(path, path) || !Within(path+"/x", path) || Within(path+"x", path) || Within(path, path+"/x") {
			t.Errorf("Within of %q", path)
		}
	})
}

func TestPaths_Within(t *testing.T) {
	for _, c := range []struct {
		path, root string
		want       bool
	}{{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/b", "/a", false}, {"/a-b", "/a", false}} {
		if got := Within(c.path, c.root); got != c.want {
			t.Errorf("Within(%q, %q) = %v", c.path, c.root, got)
		}
	}
}

// TestPaths_ReservedRoots: no mount may overlap one, in either direction.
func TestPaths_ReservedRoots(t *testing.T) {
	want := "/dev /proc /run /sys /tmp /home/checkfu /workspace/.checkfu /mnt/session/outputs"
	if got := strings.Join(ReservedRoots(), " "); got != want {
		t.Error(got)
	}
	at := func(path string) error { return ValidateMounts([]Mount{{path, AccessReadOnly, MountGit}}) }
	for _, root := range ReservedRoots() {
		named(t, at(root), "mounts[0].mount_path")
		named(t, at(root+"/x"), "mounts[0].mount_path")
		named(t, at(root+"x"), "")
	}
	for _, parent := range []string{"/home", "/workspace", "/mnt", "/mnt/session"} {
		named(t, at(parent), "mounts[0].mount_path")
	}
	named(t, at("/workspace/repo"), "")
}

func TestPaths_MountPlan(t *testing.T) {
	good := Mount{"/a", AccessReadOnly, MountGit}
	for field, mounts := range map[string][]Mount{
		"mounts[0].mount_path":  {{"a", AccessReadOnly, MountGit}},
		"mounts[0].access":      {{"/a", "", MountGit}},
		"mounts[1].kind":        {good, {"/b", AccessReadWrite, "nfs"}},
		"mounts[1].mount_path":  {good, good},
		"mounts[2].mount_path":  {good, {"/b", AccessReadWrite, MountMemory}, {"/a", AccessReadWrite, MountProject}},
		"mounts[1].mount_path ": {good, {"/a/", AccessReadOnly, MountGit}},
	} {
		named(t, ValidateMounts(mounts), strings.TrimSpace(field))
	}
	named(t, ValidateMounts(nil), "")
	named(t, ValidateMounts([]Mount{good, {"/a/b", AccessReadWrite, MountProject}}), "")
	bound(t, "mounts", MaxMounts, func(n int) error {
		var mounts []Mount
		for i := range n {
			mounts = append(mounts, Mount{"/m" + strconv.Itoa(i), AccessReadOnly, MountGit})
		}
		return ValidateMounts(mounts)
	})
}

func TestOwningMount(t *testing.T) {
	mounts := []Mount{{"/a", AccessReadWrite, MountGit}, {"/a/b/c", AccessReadOnly, MountGit}, {"/a/b", AccessReadWrite, MountGit}}
	for path, want := range map[string]string{"/a": "/a", "/a/x": "/a", "/a/b/x": "/a/b", "/a/b/c/d": "/a/b/c", "/a/bc": "/a", "/b": "", "/": ""} {
		got, ok := OwningMount(mounts, path)
		if got.MountPath != want || ok != (want != "") {
			t.Errorf("%s: got %q", path, got.MountPath)
		}
	}
}

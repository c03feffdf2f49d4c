package volume

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/treetest"
)

// memory is a disk of so many bytes that nothing can be reserved on.
func memory(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size="+strconv.Itoa(bytes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { treetest.Unmount(t, dir) })
	return dir
}

// fill leaves no space in a directory's filesystem, and returns what takes it.
func fill(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(bytes.Repeat([]byte{1}, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// on makes and mounts an image in a directory.
func on(t *testing.T, dir string, bytes, inodes int64) (image string, v *Volume) {
	t.Helper()
	image = filepath.Join(dir, "image")
	if err := Create(t.Context(), image, bytes, inodes); err != nil {
		t.Fatal(err)
	}
	return image, mount(t, image)
}

// synced forces a filesystem to its disk, as anybody may, and takes the answer.
func synced(t *testing.T, at string) error {
	t.Helper()
	f, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// TestFreeze_FindsWhatWasLost: every way in which the kernel, in the background,
// gives up on what a session wrote. The writer was told nothing.
func TestFreeze_FindsWhatWasLost(t *testing.T) {
	needs(t)
	write := func(t *testing.T, v *Volume) {
		t.Helper()
		if err := os.WriteFile(v.at+"/file", bytes.Repeat([]byte("x"), 8<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		lose func(t *testing.T, disk string, v *Volume)
	}{
		{"bytes of a file, on a full disk", func(t *testing.T, disk string, v *Volume) {
			fill(t, disk)
			write(t, v)
		}},
		{"the same, somebody was told already, and there is room again", func(t *testing.T, disk string, v *Volume) {
			filler := fill(t, disk)
			write(t, v)
			if err := synced(t, v.at); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("nothing was lost: %v", err)
			}
			if err := errors.Join(os.Remove(filler), os.Remove(v.at+"/file")); err != nil {
				t.Fatal(err)
			}
		}},
		{"names, likewise", func(t *testing.T, disk string, v *Volume) {
			filler := fill(t, disk)
			for i := range 1000 {
				if err := os.Mkdir(v.at+"/"+strconv.Itoa(i), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := synced(t, v.at); err == nil {
				t.Fatal("nothing was lost")
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
		}},
		{"a fault that the filesystem found in itself", func(t *testing.T, disk string, v *Volume) {
			fault := filepath.Join("/sys/fs/ext4", filepath.Base(v.device.Name()), "trigger_fs_error")
			if err := os.WriteFile(fault, []byte("by a test"), 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"what was not written because the kernel lets nobody", func(t *testing.T, disk string, v *Volume) {
			if err := unix.Mount("", v.at, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := memory(t, 20<<20)
			_, v := on(t, disk, 16<<20, 2048)
			if f, err := v.Freeze(t.Context()); err != nil {
				t.Fatal(err)
			} else if frozen, err := f.Thaw(); err != nil || !frozen {
				t.Fatal(frozen, err)
			}
			c.lose(t, disk, v)
			for range 2 { // and it stays lost
				f, err := v.Freeze(t.Context())
				if err == nil {
					f.Thaw()
				}
				if !errors.Is(err, ErrLost) {
					t.Errorf("got %v", err)
				}
			}
			if frozen, err := Thaw(v.at); err != nil || frozen {
				t.Errorf("left frozen: %v, %v", frozen, err)
			}
		})
	}
}

// TestFreeze_FindsWhatTheHostsDiskLost: the filesystem wrote all of it to the image,
// and the host's disk, which is an image too, lost it.
func TestFreeze_FindsWhatTheHostsDiskLost(t *testing.T) {
	needs(t)
	memory := memory(t, 24<<20)
	_, disk := on(t, memory, 20<<20, 64)
	image, v := on(t, disk.at, 16<<20, 64)
	fill(t, memory)
	if err := os.WriteFile(v.at+"/file", bytes.Repeat([]byte("x"), 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := synced(t, v.at); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(image) // and somebody else was told
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err == nil {
		t.Fatal("nothing was lost")
	}
	if f, err := v.Freeze(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
		if err == nil {
			f.Thaw()
		}
	}
}

// TestReserve_AFullDiskLosesNothing: what a session was promised is there when the
// host's disk is full. The host's disk is an image too.
func TestReserve_AFullDiskLosesNothing(t *testing.T) {
	needs(t)
	_, disk := mounted(t, 64<<20, 64)
	image, v := on(t, disk.at, 32<<20, 64)
	fill(t, disk.at)
	body := bytes.Repeat([]byte("kept"), 6<<20)
	if err := os.WriteFile(v.at+"/file", body, 0o600); err != nil {
		t.Fatal(err)
	}
	freeze(t, v)
	copied := filepath.Join(t.TempDir(), "image")
	if all, err := os.ReadFile(image); err != nil || os.WriteFile(copied, all, 0o600) != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(mount(t, copied).at + "/file"); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestCreate_RefusesWhatHasNoRoom at once, whether it can be reserved or not.
func TestCreate_RefusesWhatHasNoRoom(t *testing.T) {
	needs(t)
	_, disk := mounted(t, 16<<20, 64)
	for name, dir := range map[string]string{"reserved": disk.at, "counted": memory(t, 16<<20)} {
		if err := Create(t.Context(), dir+"/image", 32<<20, 64); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(dir + "/image"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: left: %v", name, err)
		}
		if err := Create(t.Context(), dir+"/image", 8<<20, 64); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A file of memory takes none for what is not in it.
	var st unix.Statfs_t
	if err := unix.Statfs(memory(t, 0), &st); err != nil || st.Blocks != 0 {
		t.Errorf("%d blocks, %v", st.Blocks, err)
	}
	if err := Create(t.Context(), memory(t, 0)+"/image", 8<<20, 64); err != nil {
		t.Errorf("memory without a bound: %v", err)
	}
}

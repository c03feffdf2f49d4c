//go:build linux

package contain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	sumInside = "sha256:106b086224a4d945eae25f7be3805a931a873270326dd868b0e41f71ee9fff72"
	sumEmpty  = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func TestList(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	hostileTree(t, dir, outside)
	write(t, dir+"/sub/.git/HEAD", "")
	write(t, dir+"/sub.txt", "") // sorts between sub and sub/ in the wrong order of a walk
	must(t, os.MkdirAll(dir+"/void/deep", 0o750), unix.Chmod(dir+"/sub.txt", 0o4711))
	root := open(t, dir)
	want := []Entry{
		{Path: "device", Type: Device, Mode: 0o644},
		{Path: "dir/file", Type: Regular, Size: 6, Mode: 0o644, Digest: sumInside},
		{Path: "fifo", Type: FIFO, Mode: 0o644},
		{Path: "file", Type: Regular, Size: 6, Mode: 0o644, Digest: sumInside},
		{Path: "hard", Type: Regular, Size: 6, Mode: 0o644, Digest: sumInside},
		{Path: "inner", Type: Symlink, Mode: 0o777, Target: "file"},
		{Path: "innerdir", Type: Symlink, Mode: 0o777, Target: "dir"},
		{Path: "link", Type: Symlink, Mode: 0o777, Target: outside},
		{Path: "linkfile", Type: Symlink, Mode: 0o777, Target: outside + "/file"},
		{Path: "loop", Type: Symlink, Mode: 0o777, Target: "loop"},
		{Path: "magic", Type: Symlink, Mode: 0o777, Target: "/proc/self/root"},
		{Path: "socket", Type: Socket, Mode: 0o755},
		{Path: "sub.txt", Type: Regular, Mode: 0o4711, Digest: sumEmpty},
		{Path: "sub/.git/HEAD", Type: Regular, Mode: 0o644, Digest: sumEmpty},
		{Path: "void/deep", Type: Directory, Mode: 0o750},
	}
	if os.Geteuid() != 0 {
		want = want[1:]
	}
	for _, digests := range []bool{true, false} {
		for _, empty := range []bool{true, false} {
			want := slices.Clone(want)
			if !empty {
				want = want[:len(want)-1]
			}
			for i := range want {
				if !digests {
					want[i].Digest = ""
				}
			}
			got, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: len(want), Digests: digests, EmptyDirectories: empty})
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("digests %v, empty %v: (-want +got)\n%s", digests, empty, diff)
			}
			_, err = root.List(t.Context(), ".", ListOptions{MaximumEntries: len(want) - 1, Digests: digests, EmptyDirectories: empty})
			refused(t, err, ErrTooMany)
		}
	}
	got, err := root.List(t.Context(), "sub", ListOptions{MaximumEntries: 1})
	if err != nil || len(got) != 1 || got[0].Path != "sub/.git/HEAD" {
		t.Errorf("%v, %v", got, err)
	}
	for path, want := range map[string]Refusal{
		"link": ErrOutsideRoot, "innerdir": ErrOutsideRoot, "..": ErrOutsideRoot, "magic": ErrOutsideRoot,
		"missing": ErrNotFound, "file": ErrNotDirectory, "fifo": ErrNotDirectory, "": ErrInvalidPath,
	} {
		_, err := root.List(t.Context(), path, ListOptions{MaximumEntries: 9})
		refused(t, err, want)
	}
}

func TestListBounds(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)

	// A sparse file costs its maker nothing.
	must(t, os.WriteFile(dir+"/sparse", nil, 0o644), os.Truncate(dir+"/sparse", 1<<40))
	_, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: 9, Digests: true, MaximumBytes: 1 << 30})
	refused(t, err, ErrTooLarge)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = root.List(ctx, ".", ListOptions{MaximumEntries: 9, Digests: true})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	must(t, os.Remove(dir+"/sparse"))

	// Directories have the bound as well, also where they are no entries.
	for n := range 11 {
		must(t, os.Mkdir(fmt.Sprintf("%s/%d", dir, n), 0o755))
	}
	list, err := root.List(t.Context(), ".", ListOptions{MaximumDirectories: 11})
	if err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	_, err = root.List(t.Context(), ".", ListOptions{MaximumDirectories: 10})
	refused(t, err, ErrTooMany)
	must(t, root.RemoveAll(t.Context(), "."))

	// What has no admissible path cannot be told, and is not left out.
	must(t, root.WriteFile(t.Context(), longPath(4096), nil, 0o644))
	list, err = root.List(t.Context(), ".", ListOptions{MaximumEntries: 9})
	if err != nil || len(list) != 1 || list[0].Path != longPath(4096) {
		t.Error(len(list), err)
	}
	must(t, os.Mkdir(dir+"/one-more", 0o755))
	must(t, os.Rename(dir+"/"+strings.Repeat("d", 200), dir+"/one-more/below"))
	must(t, os.Rename(dir+"/one-more/below", dir+"/one-more/"+strings.Repeat("e", 200)))
	_, err = root.List(t.Context(), ".", ListOptions{MaximumEntries: 9})
	refused(t, err, ErrInvalidPath)
}

func TestListHundredThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	dir, err := os.MkdirTemp("/dev/shm", "contain") // memory: the disk would take most of a minute
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const most = 100_000
	var want []string
	for n := range most {
		name := fmt.Sprintf("file%06d", n)
		must(t, unix.Mknod(dir+"/"+name, unix.S_IFREG|0o644, 0))
		want = append(want, name)
	}
	root := open(t, dir)
	start := time.Now()
	list, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: most, Digests: true})
	must(t, err)
	t.Logf("%d empty files with digests in %v", len(list), time.Since(start))
	got := make([]string, len(list))
	for i := range list {
		got[i] = list[i].Path
	}
	if !slices.Equal(got, want) {
		t.Error("the listing is not the files that are there, in order")
	}
	write(t, dir+"/one-more", "")
	_, err = root.List(t.Context(), ".", ListOptions{MaximumEntries: most, Digests: true})
	refused(t, err, ErrTooMany)
	must(t, root.RemoveAll(t.Context(), "."))
}

// Every listing under a writer is of whole files, or says "changed".
func TestListUnderWriter(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)
	versions := []string{strings.Repeat("a", 100<<10), strings.Repeat("b", 90<<10)}
	known := map[string]bool{}
	for _, version := range versions {
		write(t, dir+"/file", version)
		list, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: 1, Digests: true})
		must(t, err)
		known[list[0].Digest] = true
	}
	for n := range 50 {
		write(t, fmt.Sprintf("%s/still/%d", dir, n), "x")
	}
	done, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				stopped <- nil
				return
			default:
			}
			if err := root.WriteFile(context.Background(), "file", []byte(versions[n%2]), 0o644); err != nil {
				stopped <- err
				return
			}
		}
	}()
	var told, changed int
	for limit := time.Now().Add(30 * time.Second); (told < 5 || changed < 5) && time.Now().Before(limit); {
		list, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: 60, Digests: true})
		if errors.Is(err, ErrChanged) {
			changed++
			continue
		}
		must(t, err)
		told++
		files := 0
		for _, entry := range list {
			if strings.HasPrefix(entry.Path, "still/") {
				files++
			}
			if entry.Path == "file" && !known[entry.Digest] {
				t.Fatalf("a mixture was listed: %v", entry)
			}
		}
		if files != 50 {
			t.Fatalf("%d of 50 files are listed", files)
		}
	}
	close(done)
	must(t, <-stopped)
	t.Logf("%d told, %d changed", told, changed)
}

// A file written in place while it is hashed is told as it was at one moment,
// or as changed. The writer sets its first byte, then its last, to one of four
// values, so that only eight pairs ever exist.
func TestListInPlace(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)
	data := make([]byte, 1<<20)
	known := map[string]bool{}
	for n := range 4 {
		for _, last := range []int{n, (n + 3) % 4} {
			data[0], data[len(data)-1] = byte(n), byte(last)
			sum := sha256.Sum256(data)
			known["sha256:"+hex.EncodeToString(sum[:])] = true
		}
	}
	must(t, os.WriteFile(dir+"/file", data, 0o644)) // the pair (3, 2): the next is (3, 3)
	file, err := os.OpenFile(dir+"/file", os.O_WRONLY, 0)
	must(t, err)
	done, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 7; ; n++ { // 7 is a half step: 2n is the first byte, 2n+1 the last
			select {
			case <-done:
				stopped <- file.Close()
				return
			default:
			}
			if _, err := file.WriteAt([]byte{byte(n / 2 % 4)}, int64(n%2*(len(data)-1))); err != nil {
				stopped <- err
				return
			}
		}
	}()
	var told, changed int
	for limit := time.Now().Add(30 * time.Second); changed < 3 && time.Now().Before(limit); {
		list, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: 9, Digests: true})
		if errors.Is(err, ErrChanged) {
			changed++
			continue
		}
		must(t, err)
		if told++; !known[list[0].Digest] {
			t.Fatalf("a mixture was listed after %d listings", told)
		}
	}
	close(done)
	must(t, <-stopped)
	t.Logf("%d told, %d changed", told, changed)
	if changed == 0 {
		t.Error("the race was cold")
	}
}

func FuzzNextDirent(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x18\x00\x08name\x00"))
	f.Add(make([]byte, 24))
	f.Fuzz(func(t *testing.T, buffer []byte) {
		for len(buffer) > 0 {
			entry, rest, err := nextDirent(buffer)
			if err != nil {
				return
			}
			if len(rest) >= len(buffer) || len(entry.name) == 0 || strings.ContainsAny(string(entry.name), "/\x00") {
				t.Fatalf("entry %q leaves %d of %d bytes", entry.name, len(rest), len(buffer))
			}
			buffer = rest
		}
	})
}

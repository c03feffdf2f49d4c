// Package treetest makes trees with everything that a filesystem can hold, and
// looks at them by a walk of its own, by path, that shares nothing with what it
// judges.
//
// For tests only. Needs: root. Concurrency: none.
package treetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// NeedsRoot skips a test that nobody but root can do.
func NeedsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: owners, special files, mounts")
	}
}

// Build fills dir with one of each kind of thing.
func Build(t testing.TB, dir string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, body string, mode fs.FileMode) {
		t.Helper()
		must(os.WriteFile(at(name), []byte(body), 0o600))
		must(os.Chmod(at(name), mode))
	}
	must(os.Mkdir(at("outputs"), 0o755))
	write("outputs/plain", "hello\n", 0o644)
	write("outputs/empty", "", 0o000)
	write("outputs/setuid", "x", 0o755|fs.ModeSetuid|fs.ModeSetgid)
	write("outputs/large", strings.Repeat("0123456789abcdef", 40_000), 0o600)
	must(os.Mkdir(at("empty directory"), 0o500))
	must(os.Mkdir(at("shut"), 0o700))
	write("shut/in", "inside", 0o400)
	must(os.Chmod(at("shut"), 0))
	must(os.Mkdir(at("sticky"), 0o700))
	must(os.Chmod(at("sticky"), 0o777|fs.ModeSticky|fs.ModeSetgid))

	for _, odd := range []string{"new\nline", "not \xff\xfe utf-8", strings.Repeat("n", 255), "-rf", " ", "\x01", "\u202e", "a\\b", "…", "*", "%s"} {
		write(odd, odd, 0o644)
	}
	must(os.Mkdir(at("links"), 0o755))
	write("links/one", "three names", 0o640)
	must(os.Link(at("links/one"), at("links/two")))
	must(os.Link(at("links/one"), at("outputs/three")))
	write("links/other", "two names", 0o640)
	must(os.Link(at("links/other"), at("zz-other")))
	for name, to := range map[string]string{"up": "../..", "out": "/etc/passwd", "loop": "loop", "dangling": "nowhere", "long": strings.Repeat("x/", 2000), "raw": "\xff\n"} {
		must(os.Symlink(to, at("links/"+name)))
	}
	must(os.Link(at("links/out"), at("links/out-again"))) // a link to a symbolic link
	must(unix.Mkfifo(at("fifo"), 0o620))
	must(unix.Mknod(at("socket"), unix.S_IFSOCK|0o755, 0))
	must(os.Link(at("fifo"), at("fifo-again")))

	Sparse(t, at("sparse-middle"), 1<<30, map[int64]string{0: "begin", 700 << 20: "middle"})
	Sparse(t, at("sparse-all"), 1<<32, nil)
	Sparse(t, at("sparse-end"), 8<<20, map[int64]string{8<<20 - 3: "end"})

	deep := dir
	for range 150 {
		deep = filepath.Join(deep, "d")
		must(os.Mkdir(deep, 0o755))
	}
	must(os.WriteFile(filepath.Join(deep, "bottom"), []byte("b"), 0o600))

	for name, value := range map[string]string{"user.text": "v", "user.empty": "", "user.bytes": "\x00\xff\n", "trusted.t": "root's"} {
		must(unix.Lsetxattr(at("outputs/plain"), name, []byte(value), 0))
	}
	must(unix.Lsetxattr(at("links"), "user.directory", []byte("d"), 0))
	must(unix.Lsetxattr(at("links/dangling"), "trusted.link", []byte("l"), 0))
	// What setcap writes: version 2, cap_net_bind_service, effective.
	must(unix.Lsetxattr(at("outputs/large"), "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))

	// Owners and times last; each its own.
	n := 0
	var all []string
	must(filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	slices.Reverse(all)
	for _, path := range all {
		n++
		var st unix.Stat_t
		must(unix.Lstat(path, &st))
		if st.Mode&0o6000 == 0 && !strings.HasSuffix(path, "/large") { // a new owner takes those away
			must(os.Lchown(path, 110000+n%7, 120000+n%5))
		}
		at := time.Unix(1_700_000_000+int64(n), int64(n)*1_000_003%1_000_000_000)
		stamp := []unix.Timespec{unix.NsecToTimespec(at.UnixNano()), unix.NsecToTimespec(at.UnixNano())}
		must(unix.UtimesNanoAt(unix.AT_FDCWD, path, stamp, unix.AT_SYMLINK_NOFOLLOW))
	}
}

// Unmount unmounts what a test has mounted. Whoever makes a mount namespace at that
// moment, as every start of a machine does, holds a copy of the mount for a while,
// and there is no event for its end.
func Unmount(t testing.TB, at string) {
	t.Helper()
	Eventually(t, "unmount "+at, func() error {
		if err := unix.Unmount(at, 0); err != nil && err != unix.EINVAL { // not mounted any more
			return err
		}
		return nil
	})
}

// Eventually tries until there is no error, for a minute at most.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: %v", what, err)
			return
		}
	}
}

// Sparse makes a file of a size with bytes at some offsets and holes between.
func Sparse(t testing.TB, path string, size int64, parts map[int64]string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for at, body := range parts {
		if _, err := f.WriteAt([]byte(body), at); err != nil {
			t.Fatal(err)
		}
	}
}

// Walk describes everything beneath dir and dir itself, by path: one line a
// name, which says all that must survive. Names of one inode say so. A file
// that takes less than half of its size on the disk is said to be sparse, and
// of its bytes those that are no holes count.
func Walk(t testing.TB, dir string) map[string]string {
	t.Helper()
	if f, err := os.Open(dir); err == nil { // or holes cannot be told from what is not written out
		err := unix.Syncfs(int(f.Fd()))
		if f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]string{}
	groups := map[uint64]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		line, err := describe(path, rel, groups)
		seen[rel] = line
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func describe(path, rel string, groups map[uint64]string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	line := fmt.Sprintf("%06o %d:%d %d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		line += fmt.Sprintf(" names=%d", st.Nlink)
		if st.Nlink > 1 {
			if groups[st.Ino] == "" {
				groups[st.Ino] = rel
			}
			line += " same as " + strconv.Quote(groups[st.Ino])
		}
	}
	list := make([]byte, 65536)
	n, err := unix.Llistxattr(path, list)
	if err != nil {
		return "", err
	}
	names := strings.FieldsFunc(string(list[:n]), func(r rune) bool { return r == 0 })
	slices.Sort(names)
	for _, name := range names {
		value := make([]byte, 65536)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return "", err
		}
		line += fmt.Sprintf(" %s=%x", name, value[:n])
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		to, err := os.Readlink(path)
		return line + " -> " + strconv.Quote(to), err
	case unix.S_IFREG:
		sum, err := content(path, st.Size)
		sparse := st.Size > 1<<20 && st.Blocks*512 < st.Size/2
		return line + fmt.Sprintf(" size=%d sparse=%v %s", st.Size, sparse, sum), err
	}
	return line, nil
}

// content digests a file's bytes that are not zero, each block with its place.
func content(path string, size int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, zero := sha256.New(), make([]byte, 64<<10)
	for at := int64(0); at < size; {
		if at, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA); err != nil {
			break // a hole to the end
		}
		at -= at % int64(len(zero))
		b := make([]byte, min(int64(len(zero)), size-at))
		if _, err := f.ReadAt(b, at); err != nil {
			return "", err
		}
		if string(b) != string(zero[:len(b)]) {
			fmt.Fprintf(h, "%d:", at)
			h.Write(b)
		}
		at += int64(len(b))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

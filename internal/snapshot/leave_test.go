package snapshot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestImages_LeaveBehindWhatIsGone_Copied(t *testing.T) {
	dir := t.TempDir()
	method(t, dir, MethodCopied)
	leavesBehind(t, dir, true)
}

func TestImages_LeaveBehindWhatIsGone_Shared(t *testing.T) {
	dir := onBtrfs(t)
	method(t, dir, MethodShared)
	leavesBehind(t, dir, false)
}

// leavesBehind: what a session deleted is not in the bytes of its snapshot, and what
// it held open without a name takes no space in who resumes it.
func leavesBehind(t *testing.T, dir string, reserved bool) {
	c := noon()
	s := open(t, filepath.Join(dir, "snapshots"), c)
	from := session(t, dir)
	kept, deleted := bytes.Repeat([]byte("mark kept"), 4000), bytes.Repeat([]byte("mark gone"), 4000)
	write := func(name string, body []byte) *os.File {
		t.Helper()
		f, err := os.Create(filepath.Join(from.at, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.Write(body); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		return f
	}
	write("kept", kept).Close()
	want := free(t, from.at)
	write("deleted", deleted).Close()
	unnamed := write("unnamed", make([]byte, 4<<20))
	if err := errors.Join(os.Remove(from.at+"/deleted"), os.Remove(unnamed.Name())); err != nil {
		t.Fatal(err)
	}
	ref := take(t, s, c.in(time.Hour), from)
	holds := func(path string, mark []byte) bool {
		t.Helper()
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(body, mark)
	}
	content := s.path("snapshots", string(ref.SnapshotID), "content")
	if !holds(from.image, deleted[:900]) || !holds(content, kept[:900]) {
		t.Fatal("there is nothing to be found")
	}
	if holds(content, deleted[:9]) {
		t.Error("the snapshot has the bytes of a file that was deleted before")
	}
	to := resume(t, s, dir, ref)
	if got, err := os.ReadFile(to.at + "/kept"); err != nil || !bytes.Equal(got, kept) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got := free(t, to.at); got != want {
		t.Errorf("%d blocks are free, %d were", got, want)
	}
	var st unix.Stat_t
	if err := unix.Stat(to.image, &st); err != nil {
		t.Fatal(err)
	}
	if has := st.Blocks*512 >= st.Size; has != reserved {
		t.Errorf("the disk gives %d of %d bytes", st.Blocks*512, st.Size)
	}
}

func free(t *testing.T, at string) uint64 {
	t.Helper()
	f, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := errors.Join(unix.Syncfs(int(f.Fd())), unix.Statfs(at, &st)); err != nil {
		t.Fatal(err)
	}
	return st.Bfree
}

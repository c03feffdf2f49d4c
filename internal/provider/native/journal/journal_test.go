package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/sandbox"
)

func TestMain(m *testing.M) {
	if home := os.Getenv("CHECKFU_TEST_HOME"); home != "" {
		child(home)
	}
	os.Exit(m.Run())
}

// me owns what the tests publish, so that they need no right to give files away.
var me = contain.Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}

// targets are three that exist, of which one has a name of odd bytes, and three
// that do not, of which two share a parent that does not.
var targets = []string{"a", "deep/b", "new/dir/c", "new/dir/d", "e", "odd\n\xff"}

var before = map[string]string{"a": "old a", "deep/b": "old b", "odd\n\xff": "old odd", "other": "other", "deep/": "", "empty/": ""}

var after = map[string]string{
	"a": "body 0", "deep/b": "body 1", "new/dir/c": "body 2", "new/dir/d": "body 3", "e": "body 4", "odd\n\xff": "body 5",
	"other": "other", "deep/": "", "empty/": "", "new/": "", "new/dir/": "",
}

// newHome makes a home with one mount.
func newHome(t testing.TB) string {
	t.Helper()
	home := t.TempDir()
	for name, text := range before {
		path := filepath.Join(home, "mounts/0", name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(path, 0o755))
		} else {
			must(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
	return home
}

// tree is what the mount holds, directories with a slash.
func tree(t testing.TB, home string) map[string]string {
	t.Helper()
	top, all := filepath.Join(home, "mounts/0"), map[string]string{}
	must(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(path, top), "/")
		if err != nil || name == "" {
			return err
		}
		if d.IsDir() {
			all[name+"/"] = ""
			return nil
		}
		text, err := os.ReadFile(path)
		all[name] = string(text)
		return err
	}))
	return all
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// opened is a journal and the root of its mount, closed with the test.
func opened(t testing.TB, home string, step func(string)) (*Journal, *contain.Root) {
	t.Helper()
	j, err := Open(t.Context(), home, me, step)
	must(t, err)
	root, err := contain.Open(filepath.Join(home, "mounts/0"), contain.Options{Owner: &me})
	must(t, err)
	t.Cleanup(func() { must(t, root.Close(), j.Close()) })
	return j, root
}

// staged is a transaction over all targets with its bodies.
func staged(ctx context.Context, j *Journal, root *contain.Root) (*Transaction, error) {
	tx, err := j.Begin(ctx, "mounts/0", root, targets)
	if err != nil {
		return nil, err
	}
	for n := range targets {
		if err := errors.Join(tx.Stage(ctx, n, []byte("wrong"), false), tx.Stage(ctx, n, fmt.Appendf(nil, "body %d", n), n == 2)); err != nil {
			return nil, errors.Join(err, tx.Close())
		}
	}
	return tx, nil
}

// left names what there is of transactions.
func left(t testing.TB, home string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(home, directory, "*"))
	must(t, err)
	return all
}

func TestTransaction(t *testing.T) {
	home := newHome(t)
	j, root := opened(t, home, nil)
	tx, err := staged(t.Context(), j, root)
	must(t, err)
	defer tx.Close()
	other, err := staged(t.Context(), j, root)
	must(t, err)
	defer other.Close()
	same(t, before, tree(t, home))
	if text := read(t, tx); strings.Contains(text, "body") || !strings.HasPrefix(text, "checkfu.active-write.v1\nopen       \n") {
		t.Errorf("the record is %q", text)
	}
	must(t, tx.Dispatch(Token(strings.Repeat("1a", 16)), Token(strings.Repeat("2b", 16))), tx.Publish())
	r, err := parse([]byte(read(t, tx)))
	must(t, err)
	if diff := cmp.Diff(tx.record, r, cmp.AllowUnexported(record{}, file{})); diff != "" {
		t.Errorf("on disk: %s", diff)
	}
	if r.state != sandbox.JournalDispatched || r.files[2].missing != 2 || r.files[1].old == 0 || r.pause != "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a" {
		t.Errorf("on disk: %+v", r)
	}
	must(t, tx.Commit(), tx.Remove(t.Context()))
	same(t, after, tree(t, home))
	info, err := os.Stat(filepath.Join(home, "mounts/0/new/dir/c"))
	must(t, err)
	if info.Mode() != 0o755 {
		t.Errorf("mode %v", info.Mode())
	}
	if other.State() != sandbox.JournalOpen || len(left(t, home)) != 1 {
		t.Errorf("another's is %s, left %q", other.State(), left(t, home))
	}
	must(t, other.Remove(t.Context()), other.Close())
	if got := left(t, home); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

func read(t testing.TB, tx *Transaction) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tx.j.home, directory, tx.id, recordName))
	must(t, err)
	return string(text)
}

func same(t testing.TB, want, got map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

// TestPublish_InTheWay: whatever the workload has put in the way, nothing of the
// batch is published, and the rollback leaves what was there.
func TestPublish_InTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		put  func(mount string) error
		want error
	}{
		"a target is a directory": {func(m string) error { return os.Mkdir(m+"/e", 0o755) }, contain.ErrNotRegular},
		"a target is a link":      {func(m string) error { return os.Symlink("/etc/passwd", m+"/e") }, contain.ErrOutsideRoot},
		"a target is a fifo":      {func(m string) error { return unix.Mkfifo(m+"/e", 0o600) }, contain.ErrNotRegular},
		"a parent is a link": {func(m string) error {
			return errors.Join(os.Rename(m+"/deep", m+"/shallow"), os.Symlink("shallow", m+"/deep"))
		}, contain.ErrOutsideRoot},
		"a parent is a link out": {func(m string) error { return os.Symlink("/tmp", m+"/new") }, contain.ErrOutsideRoot},
		"a parent is a file":     {func(m string) error { return os.WriteFile(m+"/new", nil, 0o600) }, contain.ErrNotDirectory},
		"a parent above is a file": {func(m string) error {
			return errors.Join(os.Mkdir(m+"/new", 0o755), os.WriteFile(m+"/new/dir", nil, 0o600))
		}, contain.ErrNotDirectory},
	} {
		t.Run(name, func(t *testing.T) {
			home := newHome(t)
			j, root := opened(t, home, nil)
			tx, err := staged(t.Context(), j, root)
			must(t, err)
			defer tx.Close()
			must(t, c.put(home+"/mounts/0"))
			was := listing(t, home)
			must(t, tx.Dispatch("", ""))
			if err := tx.Publish(); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			must(t, tx.Rollback())
			if tx.State() != sandbox.JournalRolledBack {
				t.Errorf("state %s", tx.State())
			}
			if diff := cmp.Diff(was, listing(t, home)); diff != "" {
				t.Error(diff)
			}
			must(t, tx.Remove(t.Context()))
			if got := left(t, home); len(got) > 0 {
				t.Errorf("left %q", got)
			}
		})
	}
}

// listing names every inode of the mount, without opening any.
func listing(t testing.TB, home string) (all []string) {
	t.Helper()
	must(t, filepath.WalkDir(home+"/mounts/0", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all = append(all, fmt.Sprint(path, " ", info.Mode(), " ", info.Sys().(*syscall.Stat_t).Ino))
		}
		return err
	}))
	return all
}

// TestPublish_FailsHalfWay: a publication that cannot go on at one of its targets
// is taken back to the inode, made directories included.
func TestPublish_FailsHalfWay(t *testing.T) {
	for n, target := range targets {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			home := newHome(t)
			path := filepath.Join(home, "mounts/0", target)
			_, exists := before[target]
			obstruct, clear := func() error { return os.Mkdir(path, 0o755) }, func() error { return os.Remove(path) }
			if exists {
				obstruct, clear = func() error { return os.Rename(path, home+"/away") }, func() error { return os.Rename(home+"/away", path) }
			} else if target == "new/dir/c" { // its parent, for it does not exist yet
				obstruct = func() error { return os.Symlink("/tmp", home+"/mounts/0/new") }
				clear = func() error { return os.Remove(home + "/mounts/0/new") }
			}
			last := "write: planned"
			if n > 0 {
				last = "write: published " + strconv.Itoa(n-1)
			}
			j, root := opened(t, home, func(step string) {
				if step == last {
					must(t, obstruct())
				}
			})
			tx, err := staged(t.Context(), j, root)
			must(t, err)
			defer tx.Close()
			was := listing(t, home)
			must(t, tx.Dispatch("", ""))
			if err := tx.Publish(); err == nil {
				t.Fatal("published over it")
			}
			if target == "new/dir/d" { // c's directory would not be empty otherwise
				must(t, clear())
			}
			err = tx.Rollback()
			if target != "new/dir/d" {
				must(t, clear())
			}
			must(t, err)
			if diff := cmp.Diff(was, listing(t, home)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// steps of a life, in order, and what a recovery makes of a death after each.
var steps = []struct {
	name string
	want map[string]string
}{
	{"open", before}, {"staged", before}, {"dispatched", before}, {"planned", before}, {"published 0", before}, {"published 1", before},
	{"published 2", before}, {"published 3", before}, {"published 4", before}, {"published 5", before}, {"committed", after}, {"removed", after},
}

// child goes through one life and dies where it is told to.
func child(home string) {
	die := os.Getenv("CHECKFU_TEST_STEP")
	step := func(name string) {
		if name == "write: "+die {
			fmt.Println("reached")
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
	}
	j, err := Open(ctx, home, me, step)
	fail(err)
	root, err := contain.Open(filepath.Join(home, "mounts/0"), contain.Options{Owner: &me})
	fail(err)
	tx, err := staged(ctx, j, root)
	fail(err)
	fail(tx.Dispatch("", ""))
	fail(tx.Publish())
	if os.Getenv("CHECKFU_TEST_UNDO") != "" {
		fail(tx.Rollback())
	} else {
		fail(tx.Commit())
	}
	fail(tx.Remove(ctx))
	os.Exit(4)
}

// dies runs a life that ends by SIGKILL at a step.
func dies(t *testing.T, home, step string, more ...string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), more...), "CHECKFU_TEST_HOME="+home, "CHECKFU_TEST_STEP="+step)
	out, _ := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL || string(out) != "reached\n" {
		t.Fatalf("it did not die at %q: %s", step, out)
	}
}

func recovered(t *testing.T, home string, want map[string]string) {
	t.Helper()
	opened(t, home, nil)
	same(t, want, tree(t, home))
	if got := left(t, home); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

// TestRecovery: the owner dies by SIGKILL after each step of a publication; the
// next one finds all of it or nothing.
func TestRecovery(t *testing.T) {
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			home := newHome(t)
			dies(t, home, s.name)
			recovered(t, home, s.want)
		})
	}
}

// TestRecovery_OfARollback: likewise of one that is being taken back, and of the
// recovery of one that was.
func TestRecovery_OfARollback(t *testing.T) {
	for _, step := range []string{"undone 5", "undone 4", "undone 3", "undone 2", "undone 1", "undone 0", "rolled_back", "removed"} {
		t.Run(step, func(t *testing.T) {
			home := newHome(t)
			dies(t, home, step, "CHECKFU_TEST_UNDO=1")
			recovered(t, home, before)
		})
		t.Run("recovery, "+step, func(t *testing.T) {
			home := newHome(t)
			dies(t, home, "published 5")
			dies(t, home, step) // as it opens the journal
			recovered(t, home, before)
		})
	}
}

// TestRecovery_GoesForward: with the committed marker there nothing is put back,
// also where evidence is left and some of it is gone.
func TestRecovery_GoesForward(t *testing.T) {
	home := newHome(t)
	dies(t, home, "committed")
	must(t, os.Remove(filepath.Join(left(t, home)[0], "0")))
	recovered(t, home, after)
}

// TestRecovery_BelievesNoOtherFile: what is neither the old nor the new file is
// left alone, and the journal stays.
func TestRecovery_BelievesNoOtherFile(t *testing.T) {
	for name, change := range map[string]func(home, tx string) error{
		"a target": func(home, _ string) error {
			return errors.Join(os.Remove(home+"/mounts/0/a"), os.Link(home+"/mounts/0/other", home+"/mounts/0/a"))
		},
		"evidence": func(home, tx string) error {
			return errors.Join(os.Remove(tx+"/0"), os.Link(home+"/mounts/0/other", tx+"/0"))
		},
		"no evidence": func(_, tx string) error { return os.Remove(tx + "/0") },
		"the record":  func(_, tx string) error { return os.Truncate(tx+"/journal", 40) },
	} {
		t.Run(name, func(t *testing.T) {
			home := newHome(t)
			dies(t, home, "published 5")
			must(t, change(home, left(t, home)[0]))
			for range 2 {
				j, err := Open(t.Context(), home, me, nil)
				if err == nil {
					j.Close()
					t.Fatal("it was recovered")
				}
			}
			if len(left(t, home)) != 1 {
				t.Error("the journal is gone")
			}
		})
	}
}

// TestFull: a workload has filled the home. What was staged is committed or put
// back all the same.
func TestFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small filesystem")
	}
	for _, undo := range []bool{false, true} {
		home := t.TempDir()
		must(t, unix.Mount("none", home, "tmpfs", 0, "size=128k,nr_inodes=40"))
		t.Cleanup(func() { must(t, unix.Unmount(home, 0)) })
		must(t, os.MkdirAll(home+"/mounts/0/new/dir", 0o755), os.MkdirAll(home+"/mounts/0/deep", 0o755), os.WriteFile(home+"/mounts/0/a", []byte("old a"), 0o600))
		j, root := opened(t, home, nil)
		tx, err := staged(t.Context(), j, root)
		must(t, err)
		for n := 0; os.WriteFile(fmt.Sprint(home, "/mounts/0/fill", n), make([]byte, 4096), 0o600) == nil; n++ {
		}
		must(t, tx.Dispatch("", ""), tx.Publish())
		want := "body 0"
		if undo {
			must(t, tx.Rollback())
			want = "old a"
		} else {
			must(t, tx.Commit())
		}
		if got := tree(t, home)["a"]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		must(t, tx.Remove(t.Context()))
	}
}

func TestBegin_Refusals(t *testing.T) {
	home := newHome(t)
	j, root := opened(t, home, nil)
	for name, paths := range map[string][]string{
		"none": nil, "above": {"../x"}, "absolute": {"/x"}, "empty": {""}, "too many": make([]string, maxFiles+1),
	} {
		if tx, err := j.Begin(t.Context(), "mounts/0", root, paths); err == nil {
			tx.Close()
			t.Errorf("%s: begun", name)
		}
	}
	if got := left(t, home); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

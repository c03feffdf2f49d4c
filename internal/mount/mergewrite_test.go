package mount

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/contain"
)

// A step that fails undoes those before it.
func TestMergeUndoes(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, start+`; chmod 0600 gone; git add -A; git commit -qm start`)
	base, patch := w.changed(GitOptions{}, `rm -r d gone l; echo x > d; echo 2 >> f; chmod +x tool; mkdir l; echo x > l/x; rm bin; ln -s f bin; mkdir -p n/n; echo n > n/n/n; echo z > z`)
	// What the last step finds is not what was decided on.
	_, err := mergeWith(context.Background(), MergeOptions{Dir: w.repo, Base: bytes.NewReader(base), Patch: bytes.NewReader(patch), Name: "run_1", TempDir: w.TempDir()}, func(*merger) error {
		w.sh(w.repo, `echo user > z`)
		return nil
	})
	if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "the tree is as it was") {
		t.Fatal(err)
	}
	want := everything(t, w.repo)
	fresh := filepath.Join(w.dir, "fresh")
	w.git(w.dir, "clone", "-q", w.repo, fresh)
	w.sh(fresh, `chmod 0600 gone; echo user > z`)
	for path := range want {
		if inGit(path) || path == "d" {
			delete(want, path)
		}
	}
	got := everything(t, fresh)
	for path := range got {
		if inGit(path) || path == "d" {
			delete(got, path)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the tree is not as it was:\n%s", d)
	}
}

// What somebody writes between a merge and its undoing is theirs, and is named.
func TestMergeUndoesNobodysWork(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, start+`; git add -A; git commit -qm start`)
	base, patch := w.changed(GitOptions{}, `sed -i s/^2$/two/ f; rm gone l bin; echo file > l; ln -s f bin; chmod +x tool; echo n > n; mkdir m; echo m > m/m; rm d/y; echo z > z`)
	w.sh(w.repo, `sed -i s/^19$/nineteen/ f`)
	before := treeOf(t, w.repo)
	_, err := mergeWith(context.Background(), MergeOptions{Dir: w.repo, Base: bytes.NewReader(base), Patch: bytes.NewReader(patch), Name: "run_1", TempDir: w.TempDir()}, func(m *merger) error {
		w.sh(w.repo, `echo user > z`)
		done, err := m.do(context.Background())
		if !errors.Is(err, ErrChanged) || len(done) != 8 {
			t.Errorf("%d steps, %v", len(done), err)
		}
		w.sh(w.repo, `echo mine >> f; echo mine > gone; rm bin; ln -s tool bin; echo mine > n`)
		return m.undo(context.Background(), done)
	})
	want := map[string]string{}
	for _, path := range []string{"bin", "f", "gone", "n"} {
		if err == nil || !strings.Contains(err.Error(), "merge "+path+": could not be put back: somebody changed it") {
			t.Errorf("%s: %v", path, err)
		}
		want[path] = ""
	}
	if !errors.Is(err, ErrChanged) || strings.Count(err.Error(), "could not be put back") != len(want) {
		t.Error(err)
	}
	w.sh(w.repo, `test "$(tail -1 f)" = mine; test "$(cat gone n | sort -u)" = mine; test "$(readlink bin)" = tool; test ! -e m`)
	after := treeOf(t, w.repo)
	for path := range want {
		delete(before, path)
		delete(after, path)
	}
	before["z"] = after["z"]
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("the rest is not as it was:\n%s", d)
	}
}

// A merge that is killed after any step, or in the middle of one, is done by the next
// one.
func TestMergeAfterAKill(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, start+`; ln -s f l2; ln -s f l3; git add -A; git commit -qm start`)
	base, patch := w.changed(GitOptions{}, `rm -r d l bin l2 l3; echo x > d; sed -i s/^2$/two/ f; echo 2 >> tool; chmod +x tool; mkdir l; echo x > l/x; ln -s f bin; echo file > l2; ln -s tool l3`)
	w.sh(w.repo, `sed -i s/^19$/nineteen/ f; echo user >> tool`)
	fresh := filepath.Join(w.dir, "fresh")
	w.run(w.dir, "cp", "-a", w.repo, fresh)
	if m, err := w.merge(base, patch, false); err != nil || len(m.Conflicts) != 1 || !m.Conflicts[0].Marked {
		t.Fatalf("%+v, %v", m, err)
	}
	want := treeOf(t, w.repo)
	ctx := context.Background()
	for kill, ended := 0, false; !ended; kill++ {
		w.sh(w.dir, `rm -rf repo; cp -a fresh repo`)
		left := kill // moments until it is killed
		killed := errors.New("killed")
		_, err := mergeWith(ctx, MergeOptions{Dir: w.repo, Base: bytes.NewReader(base), Patch: bytes.NewReader(patch), Name: "run_1", TempDir: t.TempDir()}, func(m *merger) error {
			for _, s := range m.order() {
				if left--; left < 0 {
					return killed
				}
				if s.ours.kind == directory {
					if err := m.removeEmpty(s.path); err != nil {
						return err
					}
				}
				_, data, err := m.at(s.path)
				if err != nil {
					return err
				}
				want, wanted, err := m.wanted(s, data)
				if err != nil {
					return err
				}
				if s.ours.kind == symlink && want.kind != absent || s.ours.kind == regular && want.kind == symlink {
					if left--; left < 0 {
						_, err := m.beside(ctx, s.path, want, wanted)
						return errors.Join(killed, err)
					}
				}
				if err := m.one(ctx, s, data); err != nil {
					return err
				}
			}
			ended = true
			return killed
		})
		if !errors.Is(err, killed) {
			t.Fatal(err)
		}
		if _, err := w.merge(base, patch, false); err != nil {
			t.Fatalf("after %d moments: %v", kill, err)
		}
		got := treeOf(t, w.repo)
		maps.DeleteFunc(got, func(path, _ string) bool {
			return strings.HasPrefix(filepath.Base(path), contain.TemporaryPrefix)
		})
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("after %d moments:\n%s", kill, d)
		}
		if ended && kill < 12 {
			t.Errorf("%d moments", kill)
		}
	}
}

// At no moment is there nothing where there was something and will be: the kernel
// tells of each name that goes.
func TestMergeLeavesNoNameFree(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, start+`; ln -s f l2; git add -A; git commit -qm start`)
	base, patch := w.changed(GitOptions{}, `echo 2 >> f; chmod +x tool; rm bin l l2 gone; ln -s f bin; echo file > l; ln -s tool l2; echo z > z`)
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Skip("needs to watch a directory: ", err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, w.repo, unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	undone := false
	_, err = mergeWith(context.Background(), MergeOptions{Dir: w.repo, Base: bytes.NewReader(base), Patch: bytes.NewReader(patch), Name: "run_1", TempDir: w.TempDir()}, func(m *merger) error {
		done, err := m.do(context.Background())
		undone = err == nil && len(done) == 7
		return errors.Join(err, m.undo(context.Background(), done), os.RemoveAll(filepath.Join(m.temp, "undo")))
	})
	if err != nil || !undone {
		t.Fatal(err)
	}
	buffer := make([]byte, 64<<10)
	n, err := unix.Read(watch, buffer)
	if err != nil {
		t.Fatal(err)
	}
	went, came := map[string]int{}, map[string]int{}
	for at := 0; at < n; {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&buffer[at]))
		at += unix.SizeofInotifyEvent
		name := string(bytes.TrimRight(buffer[at:at+int(e.Len)], "\x00"))
		at += int(e.Len)
		switch {
		case strings.HasPrefix(name, contain.TemporaryPrefix):
		case e.Mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
			went[name]++
		default:
			came[name]++
		}
	}
	// Done, undone and done again.
	if d := cmp.Diff(map[string]int{"gone": 2, "z": 1}, went); d != "" {
		t.Errorf("what went:\n%s", d)
	}
	if d := cmp.Diff(map[string]int{"bin": 3, "f": 3, "gone": 1, "l": 3, "l2": 3, "tool": 3, "z": 2}, came); d != "" {
		t.Errorf("what came:\n%s", d)
	}
}

// A disk that fills up half-way: everything is put back.
func TestMergeOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small filesystem")
	}
	w := newWorld(t)
	w.sh(w.repo, start+`; git add -A; git commit -qm start`)
	base, patch := w.changed(GitOptions{}, `rm -r d; echo 2 >> f; chmod +x tool; rm l; ln -s tool l; head -c 3000000 /dev/zero | tr '\000' z > z`)
	small := filepath.Join(w.dir, "small")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", small, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=2m,mode=755"); err != nil {
		t.Skip("needs to mount a small filesystem: ", err)
	}
	defer func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	w.run(w.dir, "cp", "-a", w.repo+"/.", small)
	w.repo = small
	before := everything(t, small)
	if _, err := w.merge(base, patch, false); err == nil || !strings.Contains(err.Error(), "the tree is as it was") || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v", err)
	}
	if d := cmp.Diff(before, everything(t, small)); d != "" {
		t.Errorf("the tree is not as it was:\n%s", d)
	}
}

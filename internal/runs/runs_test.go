package runs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

func id(n int) string { return fmt.Sprintf("run_%024x", n) }

func begin(t *testing.T, dir string, n int) *Run {
	t.Helper()
	r, err := Begin(dir, Entry{RunID: id(n), Provider: "memory", Command: []string{"make", "\xff"}, Repo: &Repo{Dir: "/r\xfe"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// ran is a Run that has ended with a patch and a base.
func ran(t *testing.T, dir string, n int, patch string) {
	t.Helper()
	r := begin(t, dir, n)
	io.WriteString(r.Patch(), patch)
	io.WriteString(r.Base(), "base of "+patch)
	code := int64(3)
	if err := errors.Join(r.End([]byte("{}"), true, func(e *Entry) { e.ExitCode = &code }), r.Close()); err != nil {
		t.Fatal(err)
	}
}

func states(t *testing.T, dir string) map[string]State {
	t.Helper()
	all, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]State{}
	for _, l := range all {
		states[l.RunID] = l.State
	}
	return states
}

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	ran(t, dir, 1, "patch one")
	ran(t, dir, 2, "")
	running := begin(t, dir, 3)
	lost := begin(t, dir, 4) // its process ends
	io.WriteString(lost.Patch(), "half")
	lost.Close()
	cut := begin(t, dir, 5) // and this one's between its record and its end
	if err := errors.Join(replace(cut.at, recordName, []byte("{}")), cut.Close()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{4, 5} { // half of a patch is none
		k, err := Open(dir, id(n))
		if err != nil {
			t.Fatal(err)
		}
		_, perr := k.Patch()
		_, berr := k.Base()
		if !errors.Is(perr, os.ErrNotExist) || !errors.Is(berr, os.ErrNotExist) || k.Close() != nil {
			t.Errorf("%s: %v, %v", id(n), perr, berr)
		}
	}
	begin(t, dir, 6).Close()
	if err := os.WriteFile(filepath.Join(placeOf(dir, id(6)), entryName), []byte(`{"schema":"checkfu.run.v9"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[string]State{id(1): Ended, id(2): Ended, id(3): Running, id(4): Lost, id(5): Lost, id(6): Damaged}
	if d := cmp.Diff(want, states(t, dir)); d != "" {
		t.Error(d)
	}

	k, err := Open(dir, id(1))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	patch, perr := k.Patch()
	base, berr := k.Base()
	record, rerr := k.Record()
	if err := errors.Join(perr, berr, rerr); err != nil {
		t.Fatal(err)
	}
	defer patch.Close()
	defer base.Close()
	patchText, _ := io.ReadAll(patch)
	baseText, _ := io.ReadAll(base)
	if string(patchText) != "patch one" || string(baseText) != "base of patch one" || string(record) != "{}" {
		t.Errorf("%q, %q, %q", patchText, baseText, record)
	}
	if *k.ExitCode != 3 || k.PatchBytes != 9 || k.Command[1] != "\uFFFD" || k.Repo.Dir != "/r\uFFFD" || k.NotKept != "" {
		t.Errorf("%+v", k.Entry)
	}
	for path, mode := range map[string]os.FileMode{
		"runs": 0o700 | os.ModeDir, "runs/" + id(1): 0o700 | os.ModeDir, "runs/" + id(1) + "/entry.json": 0o600, "runs/" + id(1) + "/record.json": 0o600,
		"runs/" + id(1) + "/patch": 0o600, "runs/" + id(1) + "/base": 0o600, "runs/" + id(1) + "/lock": 0o600,
	} {
		if info, err := os.Lstat(filepath.Join(dir, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}

	for _, c := range []struct {
		id   string
		kind Kind
	}{{id(3), UnderWay}, {id(9), NotFound}, {id(6), Unreadable}} {
		if _, err := Open(dir, c.id); !c.kind.Is(err) {
			t.Errorf("%s: %v", c.id, err)
		}
	}
	for _, bad := range []string{"", "run_", "../runs/" + id(1), id(1) + "/", "run_" + strings.Repeat("A", 24)} {
		if _, err := Open(dir, bad); err == nil || NotFound.Is(err) {
			t.Errorf("%q: %v", bad, err)
		}
		if err := Remove(dir, bad); err == nil {
			t.Errorf("%q was removed", bad)
		}
	}

	// What is read or under way stays.
	removed, err := Prune(dir, time.Now().Add(time.Hour), true)
	if err != nil || len(removed) != 5 || len(states(t, dir)) != 6 {
		t.Errorf("%v, %v", removed, err)
	}
	if err := Remove(dir, id(1)); !InUse.Is(err) {
		t.Error(err)
	}
	if _, err := Prune(dir, time.Now().Add(time.Hour), false); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(map[string]State{id(1): Ended, id(3): Running}, states(t, dir)); d != "" {
		t.Error(d)
	}
	if err := errors.Join(k.Close(), running.Close()); err != nil {
		t.Error(err)
	}
	if removed, err := Prune(dir, time.Now().Add(-time.Hour), false); err != nil || len(removed) != 0 {
		t.Errorf("%v, %v", removed, err)
	}
	if removed, err := Prune(dir, time.Now().Add(time.Hour), false); err != nil || len(removed) != 2 {
		t.Errorf("%v, %v", removed, err)
	}
	if left, err := os.ReadDir(root(dir)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestLatestIsTheNewestThatEnded(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir, "latest"); !NotFound.Is(err) {
		t.Error(err)
	}
	for n := range 4 {
		begin(t, dir, n).Close()
		e := Entry{Schema: Schema, RunID: id(n), Provider: "memory", Command: []string{"x"}, StartedAt: sandbox.At(time.Unix(int64(1000-n), 0))}
		if n > 0 {
			e.FinishedAt = e.StartedAt
		}
		if err := writeEntry(placeOf(dir, id(n)), e); err != nil {
			t.Fatal(err)
		}
	}
	k, err := Open(dir, "latest")
	if err != nil || k.RunID != id(1) {
		t.Fatalf("%+v, %v", k, err)
	}
	k.Close()
}

// What cannot be kept is told, and never fails the Run.
func TestPartsAreBounded(t *testing.T) {
	repo := &Repo{Dir: "/r"}
	for name, c := range map[string]struct {
		patch, base int
		whole       bool
		repo        *Repo
		want        string
	}{
		"both":                    {10, 20, true, repo, ""},
		"nothing changed":         {0, 0, true, repo, ""},
		"at the bound":            {MaxPart, 1, true, repo, ""},
		"patch over it":           {MaxPart + 1, 1, true, repo, "patch: larger than 64 MiB"},
		"base over it":            {1, MaxPart + 1, true, repo, "base: larger than 64 MiB"},
		"half a collection":       {10, 20, false, repo, "its changes were not collected in full"},
		"half of a large one":     {MaxPart + 1, 1, false, repo, "its changes were not collected in full"},
		"none of a collection":    {0, 0, false, repo, "its changes were not collected in full"},
		"no repository, no patch": {0, 0, false, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, err := Begin(dir, Entry{RunID: id(1), Provider: "memory", Command: []string{"make"}, Repo: c.repo})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			block := make([]byte, 1<<20)
			for _, p := range []struct {
				w io.Writer
				n int
			}{{r.Patch(), c.patch}, {r.Base(), c.base}} {
				for left := p.n; left > 0; left -= len(block) {
					if n, err := p.w.Write(block[:min(left, len(block))]); err != nil || n != min(left, len(block)) {
						t.Fatal(n, err)
					}
				}
			}
			if err := errors.Join(r.End(nil, c.whole, func(*Entry) {}), r.Close()); err != nil {
				t.Fatal(err)
			}
			k, err := Open(dir, id(1))
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			var wantPatch, wantBase int64
			if c.whole && c.patch <= MaxPart {
				wantPatch = int64(c.patch)
				if c.base <= MaxPart {
					wantBase = int64(c.base)
				}
			}
			if k.NotKept != c.want || k.PatchBytes != wantPatch || k.BaseBytes != wantBase {
				t.Errorf("%+v", k.Entry)
			}
			for name, n := range map[string]int64{patchName: wantPatch, baseName: wantBase} {
				info, err := os.Stat(filepath.Join(k.at, name))
				if n == 0 && !errors.Is(err, os.ErrNotExist) || n > 0 && (err != nil || info.Size() != n) {
					t.Errorf("%s: %v, %v", name, info, err)
				}
			}
		})
	}
}

func TestHistoryIsBounded(t *testing.T) {
	dir := t.TempDir()
	for n := range MaxRuns {
		at := placeOf(dir, id(n))
		e := Entry{Schema: Schema, RunID: id(n), Provider: "memory", Command: []string{"x"}, StartedAt: sandbox.At(time.Unix(int64(n), 0))}
		e.FinishedAt = e.StartedAt
		data, err := canonical.Encode(e)
		if err := errors.Join(err, os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(at, entryName), data, 0o600), os.WriteFile(filepath.Join(at, lockName), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	begin(t, dir, MaxRuns)
	if got := states(t, dir); len(got) != MaxRuns || got[id(0)] != "" || got[id(1)] != Ended || got[id(MaxRuns)] != Running {
		t.Errorf("%d runs: %v, %v", len(got), got[id(0)], got[id(1)])
	}
	// In bytes too: a file may be large without a cost.
	if err := os.Truncate(filepath.Join(placeOf(dir, id(100)), entryName), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(placeOf(dir, id(99)), patchName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(placeOf(dir, id(99)), patchName), MaxBytes); err != nil {
		t.Fatal(err)
	}
	begin(t, dir, MaxRuns+1)
	if got := states(t, dir); got[id(99)] != "" || got[id(98)] != "" || got[id(101)] != Ended {
		t.Errorf("%d runs: %v %v %v", len(got), got[id(99)], got[id(98)], got[id(101)])
	}
	if left, _ := filepath.Glob(root(dir) + "/.*"); len(left) > 0 {
		t.Error(left)
	}
}

func TestSweepTakesWhatCrashesLeft(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{gonePrefix + id(1), unbornPrefix + "old", unbornPrefix + "young"} {
		if err := os.MkdirAll(filepath.Join(root(dir), name, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(root(dir), unbornPrefix+"old"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := sweep(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(root(dir))
	if err != nil || len(left) != 1 || left[0].Name() != unbornPrefix+"young" {
		t.Errorf("%v, %v", left, err)
	}
}

func FuzzParse(f *testing.F) {
	data, err := canonical.Encode(Entry{Schema: Schema, RunID: id(1), Provider: "p", Command: []string{"x"}, StartedAt: "2026-01-01T00:00:00.000Z", Repo: &Repo{Dir: "/"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"schema":"checkfu.run.v1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parse(data, id(1))
		if err != nil {
			return
		}
		again, err := canonical.Encode(e)
		if back, berr := parse(again, id(1)); err != nil || berr != nil || !cmp.Equal(back, e) {
			t.Errorf("%v, %v: %+v", err, berr, back)
		}
	})
}

// Runs that begin and end at once make room for each other, and lose none.
func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	const workers, each = 6, 2
	for n := range MaxRuns - 3 { // so that room has to be made
		at := placeOf(dir, id(n))
		e := Entry{Schema: Schema, RunID: id(n), Provider: "memory", Command: []string{"x"}, StartedAt: sandbox.At(time.Unix(int64(n), 0))}
		data, err := canonical.Encode(e)
		if err := errors.Join(err, os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(at, entryName), data, 0o600), os.WriteFile(filepath.Join(at, lockName), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for n := range each {
				r, err := Begin(dir, Entry{RunID: id(1000 + w*each + n), Provider: "memory", Command: []string{"x"}})
				if err == nil {
					io.WriteString(r.Patch(), "patch")
					err = errors.Join(r.End([]byte("{}"), true, func(*Entry) {}), r.Close())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got := states(t, dir)
	for n := range workers * each {
		if got[id(1000+n)] != Ended {
			t.Errorf("%s: %q", id(1000+n), got[id(1000+n)])
		}
	}
	if len(got) > MaxRuns+workers {
		t.Errorf("%d runs", len(got))
	}
	if left, _ := filepath.Glob(root(dir) + "/.*"); len(left) > 0 {
		t.Error(left)
	}
}

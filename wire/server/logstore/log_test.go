package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/checkfu/checkfu/wire/server/store"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, dir string) *log {
	t.Helper()
	s, err := open(dir)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// content is all that a store holds.
func content(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, b := range store.Buckets() {
		must(t, s.Each(b, func(key string, value []byte) error {
			got, err := s.Get(b, key)
			if err != nil || !bytes.Equal(got, value) {
				t.Errorf("%s %q: %q, %v; each gave %q", b, key, got, err, value)
			}
			all[string(b)+"/"+key] = string(value)
			return nil
		}))
	}
	return all
}

// What was synced is there in the next store, whatever was written over, removed
// and compacted on the way.
func TestWhatWasSyncedStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{}
	for round := range 6 {
		s := opened(t, dir)
		s.compactMin = 4 << 10
		if got := content(t, s); !maps.Equal(got, want) {
			t.Fatalf("round %d: %d keys, want %d", round, len(got), len(want))
		}
		for range 60 {
			var changes []store.Change
			for range 1 + random.IntN(4) {
				b, key := store.Buckets()[random.IntN(4)], fmt.Sprint(random.IntN(20))
				if random.IntN(4) == 0 {
					changes = append(changes, store.Remove(b, key))
					delete(want, string(b)+"/"+key)
					continue
				}
				value := bytes.Repeat([]byte{byte(random.IntN(256))}, random.IntN(300))
				changes = append(changes, store.Set(b, key, value))
				want[string(b)+"/"+key] = string(value)
			}
			must(t, store.Put(s, changes...))
			if s.size > s.compactMin && s.size > 2*s.live {
				t.Fatalf("%d bytes hold %d", s.size, s.live)
			}
		}
		must(t, s.Queue(store.Set(store.Leases, "last", []byte{byte(round)})))
		want["leases/last"] = string([]byte{byte(round)})
		must(t, s.Close()) // syncs
		if err := s.Queue(store.Remove(store.Leases, "x")); !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, File))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Error(left, err)
	}
}

func TestOneHoldsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	opened(t, dir)
	if s, err := At(dir)(); err == nil {
		t.Error("two", s.Close())
	}
}

// three is a file of three records, and where each begins.
func three(t *testing.T) (data []byte, at [3]int64) {
	t.Helper()
	dir := t.TempDir()
	s := opened(t, dir)
	for n := range at {
		at[n] = s.size
		must(t, store.Put(s, store.Set(store.Leases, fmt.Sprint(n), []byte("value"))))
	}
	must(t, s.Close())
	data, err := os.ReadFile(filepath.Join(dir, File))
	must(t, err)
	return data, at
}

// A crash tears the last record alone: every length of it that is not the whole
// gives what was before it, and a store that goes on from there.
func TestATornRecordIsCutOff(t *testing.T) {
	data, at := three(t)
	zeros := bytes.Clone(data)
	clear(zeros[at[2]:])
	wrong := bytes.Clone(data)
	wrong[len(wrong)-1] ^= 1
	files := [][]byte{zeros, wrong}
	for n := int64(1); n < headBytes; n++ { // of the head so much was written, and zeros where the rest will be
		part := bytes.Clone(data)
		clear(part[at[2]+n:])
		files = append(files, part)
	}
	for end := at[2] + 1; end < int64(len(data)); end++ {
		files = append(files, data[:end])
	}
	for _, file := range files { // each as a store left it that was killed, too
		files = append(files, append(bytes.Clone(file), make([]byte, 5000)...))
	}
	for _, file := range files {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, File), file, 0o600))
		s := opened(t, dir)
		if got := content(t, s); len(got) != 2 {
			t.Errorf("%d bytes: %v", len(file), got)
		}
		must(t, store.Put(s, store.Set(store.Results, "more", []byte{})))
		must(t, s.Close())
		if got := content(t, opened(t, dir)); len(got) != 3 {
			t.Errorf("%d bytes, again: %v", len(file), got)
		}
	}
}

// What was durable is never passed over: each changed byte of the first two
// records, and of the line above them, is an error.
func TestDamageIsRefused(t *testing.T) {
	data, at := three(t)
	killed := append(bytes.Clone(data), make([]byte, 5000)...)
	for n := range 2 * at[2] {
		dir := t.TempDir()
		file := bytes.Clone(data)
		if n >= at[2] {
			n, file = n-at[2], bytes.Clone(killed)
		}
		file[n] ^= 0x55
		must(t, os.WriteFile(filepath.Join(dir, File), file, 0o600))
		if s, err := At(dir)(); err == nil {
			t.Errorf("byte %d: taken, %v", n, s.Close())
		}
	}
	for n := range at[:2] { // a block that was lost
		dir := t.TempDir()
		file := bytes.Clone(data)
		clear(file[at[n] : at[n]+headBytes])
		must(t, os.WriteFile(filepath.Join(dir, File), file, 0o600))
		damage := (*Damage)(nil)
		if _, err := At(dir)(); !errors.As(err, &damage) || damage.At != at[n] {
			t.Errorf("record %d without a head: %v", n, err)
		}
	}
}

// A store that was killed leaves zeros, and all that was synced.
func TestAKilledStoreIsTakenUp(t *testing.T) {
	s := opened(t, t.TempDir())
	sizes := map[int64]bool{}
	for n := range 100 {
		must(t, store.Put(s, store.Set(store.Leases, fmt.Sprint(n), make([]byte, 100))))
		info, err := os.Stat(s.path(File))
		must(t, err)
		sizes[info.Size()] = true
	}
	if len(sizes) != 1 {
		t.Errorf("the file grew %d times", len(sizes))
	}
	data, err := os.ReadFile(s.path(File))
	must(t, err)
	next := t.TempDir()
	must(t, os.WriteFile(filepath.Join(next, File), data, 0o600))
	again := opened(t, next)
	if !maps.Equal(content(t, again), content(t, s)) {
		t.Error("not the same")
	}
	must(t, again.Close())
	if info, err := os.Stat(filepath.Join(next, File)); err != nil || info.Size() != again.size {
		t.Errorf("%v; closed, it has %v", err, info)
	}
}

func TestAJournalOfAnotherFormIsNotForgotten(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, former), nil, 0o600))
	if s, err := At(dir)(); err == nil {
		t.Error("begun beside it", s.Close())
	}
}

// FuzzLoad: any file is taken or refused, in memory that it bounds, and what is
// taken is taken again.
func FuzzLoad(f *testing.F) {
	record, _ := encode([]store.Change{store.Set(store.Leases, "l", []byte("1")), store.Remove(store.Results, "r")})
	f.Add([]byte(head))
	f.Add(append([]byte(head), record...))
	f.Add(append(append([]byte(head), record...), 0, 0, 0, 9))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), File)
		must(t, os.WriteFile(path, data, 0o600))
		load := func() (*log, error) {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			must(t, err)
			t.Cleanup(func() { file.Close() })
			s := &log{file: file}
			return s, s.load()
		}
		first, err := load()
		if err != nil {
			return
		}
		again, err := load()
		if err != nil || again.size != first.size || again.live != first.live {
			t.Errorf("%v: %d and %d bytes", err, again.size, first.size)
		}
	})
}

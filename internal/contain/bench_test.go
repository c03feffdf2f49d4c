//go:build linux

package contain

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The tree of the benchmarks: 10,000 files of 4 KiB in 100 directories.
const (
	benchDirectories = 100
	benchFiles       = 100
	benchSize        = 4 << 10
)

func benchPath(d, f int) string { return fmt.Sprintf("src/dir%03d/file%03d.txt", d, f) }

func benchData(d, f int) []byte {
	data := make([]byte, benchSize)
	for i := range data {
		data[i] = byte(i*7 + d*31 + f)
	}
	return data
}

func stage(tb testing.TB, dir string) {
	tb.Helper()
	root := open(tb, dir)
	for d := range benchDirectories {
		for f := range benchFiles {
			if err := root.WriteFile(context.Background(), benchPath(d, f), benchData(d, f), 0o644); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

func peer(b *testing.B, name string, args ...string) {
	b.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// BenchmarkWrite stages 10,000 files; the peer is cp -r of the same tree.
func BenchmarkWrite(b *testing.B) {
	source := b.TempDir()
	stage(b, source)
	data := benchData(1, 1)
	b.Run("contain", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			dir := b.TempDir()
			root := open(b, dir)
			b.StartTimer()
			for d := range benchDirectories {
				for f := range benchFiles {
					if err := root.WriteFile(context.Background(), benchPath(d, f), data, 0o644); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.StopTimer()
			os.RemoveAll(dir)
			b.StartTimer()
		}
	})
	b.Run("cp", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			dir := b.TempDir()
			b.StartTimer()
			peer(b, "cp", "-r", filepath.Join(source, "src"), dir)
			b.StopTimer()
			os.RemoveAll(dir)
			b.StartTimer()
		}
	})
}

// BenchmarkList lists 10,000 files with and without digests; the peer is two
// sha256sum at a time over the same files.
func BenchmarkList(b *testing.B) {
	dir := b.TempDir()
	stage(b, dir)
	root := open(b, dir)
	for _, digests := range []bool{false, true} {
		b.Run(fmt.Sprintf("contain/digests=%v", digests), func(b *testing.B) {
			for b.Loop() {
				list, err := root.List(context.Background(), ".", ListOptions{MaximumEntries: 100_000, Digests: digests})
				if err != nil || len(list) != benchDirectories*benchFiles {
					b.Fatal(len(list), err)
				}
			}
		})
	}
	b.Run("sha256sum", func(b *testing.B) {
		for b.Loop() {
			peer(b, "sh", "-c", `find "$1" -type f -print0 | xargs -0 -P2 -n 5000 sha256sum >/dev/null`, "sh", dir)
		}
	})
}

// BenchmarkRemoveAll removes 10,000 files; the peer is rm -rf.
func BenchmarkRemoveAll(b *testing.B) {
	each := func(b *testing.B, remove func(dir string)) {
		for b.Loop() {
			b.StopTimer()
			dir := b.TempDir()
			stage(b, dir)
			b.StartTimer()
			remove(dir)
		}
	}
	b.Run("contain", func(b *testing.B) {
		each(b, func(dir string) {
			if err := open(b, dir).RemoveAll(context.Background(), "src"); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("rm", func(b *testing.B) {
		each(b, func(dir string) { peer(b, "rm", "-rf", filepath.Join(dir, "src")) })
	})
}

// BenchmarkReadFile reads one file of 4 KiB; the peer is os.ReadFile.
func BenchmarkReadFile(b *testing.B) {
	dir := b.TempDir()
	root := open(b, dir)
	if err := root.WriteFile(context.Background(), benchPath(0, 0), benchData(0, 0), 0o644); err != nil {
		b.Fatal(err)
	}
	b.Run("contain", func(b *testing.B) {
		for b.Loop() {
			if _, err := root.ReadFile(context.Background(), benchPath(0, 0), 1<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("os", func(b *testing.B) {
		for b.Loop() {
			if _, err := os.ReadFile(filepath.Join(dir, benchPath(0, 0))); err != nil {
				b.Fatal(err)
			}
		}
	})
}

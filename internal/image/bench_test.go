package image

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkUnpack compares one layer's way onto the disk: tar -x, our layer
// reader alone, the record of the finished tree, and a whole Rootfs (layer,
// record, and waiting for the disk). CHECKFU_BENCH_LAYER may name a plain tar;
// else it is made up: 8,000 files, most of them small, 200 MB together.
func BenchmarkUnpack(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("unpacking gives files away, which needs root")
	}
	path := os.Getenv("CHECKFU_BENCH_LAYER")
	if path == "" {
		path = filepath.Join(b.TempDir(), "layer.tar")
		if err := os.WriteFile(path, madeUp(b), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	plain, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	packed := filepath.Join(b.TempDir(), "layer.tar.gz")
	if err := os.WriteFile(packed, gz(plain), 0o600); err != nil {
		b.Fatal(err)
	}
	into := func(b *testing.B) *os.File {
		dir, err := os.MkdirTemp(b.TempDir(), "tree-")
		if err != nil {
			b.Fatal(err)
		}
		root, err := os.Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		return root
	}
	// each runs f on a fresh directory; only f is on the clock.
	each := func(b *testing.B, f func(root *os.File) error) {
		b.SetBytes(int64(len(plain)))
		for range b.N {
			b.StopTimer()
			root := into(b)
			b.StartTimer()
			if err := f(root); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := os.RemoveAll(root.Name()); err != nil {
				b.Fatal(err)
			}
			root.Close()
			b.StartTimer()
		}
	}
	for _, form := range []string{path, packed} {
		name := map[string]string{path: "plain", packed: "gzip"}[form]
		b.Run("tar/"+name, func(b *testing.B) {
			each(b, func(root *os.File) error {
				return exec.Command("tar", "-C", root.Name(), "--numeric-owner", "-xpf", form).Run()
			})
		})
		b.Run("layer/"+name, func(b *testing.B) {
			each(b, func(root *os.File) error {
				f, err := os.Open(form)
				if err != nil {
					return err
				}
				defer f.Close()
				u := newUnpacker(int(root.Fd()), Options{MaxBytes: DefaultMaxBytes, MaxEntries: DefaultEntries})
				defer u.tree.forget()
				return u.layer(b.Context(), f, digestOf(plain))
			})
		})
	}
	b.Run("record", func(b *testing.B) {
		root := into(b)
		defer root.Close()
		if err := exec.Command("tar", "-C", root.Name(), "--numeric-owner", "-xpf", path).Run(); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(plain)))
		for b.Loop() {
			if _, _, err := writeRecord(b.Context(), int(root.Fd()), 0, io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(int64(len(plain)))
		for b.Loop() {
			sha256.Sum256(plain)
		}
	})
	b.Run("rootfs", func(b *testing.B) {
		b.SetBytes(int64(len(plain)))
		for range b.N {
			b.StopTimer()
			s := openStore(b, Options{})
			img, err := s.Import(b.Context(), craft(b, nil, plain).directory(b))
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			r, err := s.Rootfs(b.Context(), img.Digest)
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			r.Release()
			if err := os.RemoveAll(s.dir); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("hold", func(b *testing.B) {
		s := openStore(b, Options{})
		img, err := s.Import(b.Context(), craft(b, nil, plain).directory(b))
		if err != nil {
			b.Fatal(err)
		}
		r, err := s.Rootfs(b.Context(), img.Digest)
		if err != nil {
			b.Fatal(err)
		}
		r.Release()
		for b.Loop() {
			r, err := s.Rootfs(b.Context(), img.Digest)
			if err != nil {
				b.Fatal(err)
			}
			r.Release()
		}
	})
}

func madeUp(b *testing.B) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var entries []e
	for i := range 8000 {
		size := 2 << 10
		if i%50 == 0 {
			size = 1 << 20
		}
		body := bytes.Repeat([]byte{byte(random.Uint32()), byte(random.Uint32()), 'a', 'b'}, size/4)
		for j := 0; j < size; j += 3 { // compresses about as well as programs do
			body[j] = byte(random.Uint32())
		}
		entries = append(entries, e{name: fmt.Sprintf("d%d/e%d/f%d", i%20, i%300, i), body: string(body)})
	}
	return layerOf(b, entries...)
}

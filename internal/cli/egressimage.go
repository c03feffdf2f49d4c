package cli

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/matrix"
	"github.com/checkfu/checkfu/internal/image"
)

// harnessImage brings an image into the store whose only program is this very
// binary: the harness of real Runs. So the matrix needs no image of anybody's. It
// has a name of its own, and remove takes it out again.
func harnessImage(ctx context.Context, store *image.Store) (reference string, remove func() error, err error) {
	dir, err := lab.Scratch()
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(dir)
	name := "checkfu.local/egress-harness-" + strings.ToLower(rand.Text()) + ":1"
	if err := writeHarness(dir, name); err != nil {
		return "", nil, err
	}
	found, err := store.Import(ctx, filepath.Join(dir, "image.tar"))
	if err != nil {
		return "", nil, err
	}
	name, _, _ = strings.Cut(found.Reference, "@")
	return name + "@" + found.Digest, func() error { return store.Remove(context.WithoutCancel(ctx), found.Reference) }, nil
}

// writeHarness writes dir/image.tar, as docker save does, of one layer.
func writeHarness(dir, name string) error {
	layer, err := os.Create(filepath.Join(dir, "layer.tar"))
	if err != nil {
		return err
	}
	defer layer.Close()
	sum := sha256.New()
	if err := harnessLayer(io.MultiWriter(layer, sum), name); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum.Sum(nil))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	whole, err := os.Create(filepath.Join(dir, "image.tar"))
	if err != nil {
		return err
	}
	defer whole.Close()
	w := tar.NewWriter(whole)
	for name, text := range map[string][]byte{"manifest.json": manifest, "config.json": config} {
		if err := putFile(w, name, 0o644, strings.NewReader(string(text)), int64(len(text))); err != nil {
			return err
		}
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = layer.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return errors.Join(putFile(w, "layer.tar", 0o644, layer, size), w.Close())
}

// harnessLayer is the root of the machine: this binary, and a file that makes it
// like no other image.
func harnessLayer(to io.Writer, name string) error {
	w := tar.NewWriter(to)
	for _, dir := range []string{"dev", "etc", "proc", "run", "sys", "tmp", "usr", path.Dir(matrix.HarnessPath)[1:]} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := putFile(w, "etc/image", 0o644, strings.NewReader(name), int64(len(name))); err != nil {
		return err
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	info, err := self.Stat()
	if err != nil {
		return err
	}
	return errors.Join(putFile(w, matrix.HarnessPath[1:], 0o755, self, info.Size()), w.Close())
}

func putFile(w *tar.Writer, name string, mode int64, from io.Reader, size int64) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}); err != nil {
		return err
	}
	_, err := io.CopyN(w, from, size)
	return err
}

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/sandbox"
)

// The measurements of this file are informative: no bound is set for them.

// unpackImage compares an image's way to a root with tar -x of its one layer.
func unpackImage(ctx context.Context, w *world) error {
	layer := filepath.Join(w.dir, "layer.tar")
	archive := filepath.Join(w.dir, "layered.tar")
	size, err := layeredImage(layer, archive)
	if err != nil {
		return err
	}
	defer os.Remove(layer)
	defer os.Remove(archive)
	target := filepath.Join(w.dir, "unpacked")
	clean := func() error { return os.RemoveAll(target) }
	argv := []string{"tar", "-C", target, "--numeric-owner", "-xpf", layer}
	w.rep.command("tar -x", argv)
	got, err := interleave(ctx, min(w.n, 5),
		func(ctx context.Context) (time.Duration, error) {
			s, err := image.Open(target, image.Options{IDBase: native.IDBase})
			if err != nil {
				return 0, err
			}
			img, err := s.Import(ctx, archive)
			if err != nil {
				return 0, errors.Join(err, clean())
			}
			begin := time.Now()
			root, err := s.Rootfs(ctx, img.Digest)
			took := time.Since(begin)
			if err == nil {
				root.Release()
			}
			return took, errors.Join(err, clean())
		},
		func(ctx context.Context) (time.Duration, error) {
			if err := os.Mkdir(target, 0o755); err != nil {
				return 0, err
			}
			took, err := timed(func(ctx context.Context) error { return sh(ctx, argv...) })(ctx)
			return took, errors.Join(err, clean())
		})
	if err != nil {
		return err
	}
	w.rep.add(line{what: "unpack an image of 8,000 files", unit: "ms", ours: got[0], rawName: "tar -x", raw: got[1],
		note: fmt.Sprintf("%.0f MB: %.0f MB/s against %.0f; ours also digests every file and waits for the disk", size/1e6, size/1e3/got[0].median(), size/1e3/got[1].median())})
	return nil
}

// layeredImage writes a layer of 8,000 files, 120 MB together, and a `docker
// save` archive of it.
func layeredImage(layer, archive string) (float64, error) {
	random := rand.New(rand.NewPCG(1, 2))
	content := make([]byte, 31<<10)
	source := rand.NewChaCha8([32]byte{3})
	var plain bytes.Buffer
	t := tar.NewWriter(&plain)
	for i := range 8000 {
		if i%100 == 0 {
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("d%02d/", i/100), Mode: 0o755}); err != nil {
				return 0, err
			}
		}
		part := content[:random.IntN(len(content))]
		source.Read(part)
		if err := put(t, fmt.Sprintf("d%02d/f%02d", i/100, i%100), part); err != nil {
			return 0, err
		}
	}
	if err := t.Close(); err != nil {
		return 0, err
	}
	sum := sha256.Sum256(plain.Bytes())
	config, err := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}}})
	if err != nil {
		return 0, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{"bench:many"}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return 0, err
	}
	var saved bytes.Buffer
	s := tar.NewWriter(&saved)
	err = errors.Join(put(s, "manifest.json", manifest), put(s, "config.json", config), put(s, "layer.tar", plain.Bytes()), s.Close())
	return float64(plain.Len()), errors.Join(err, os.WriteFile(layer, plain.Bytes(), 0o600), os.WriteFile(archive, saved.Bytes(), 0o600))
}

func put(t *tar.Writer, name string, content []byte) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

// streamOutput reads 1 GiB of a process's output.
func streamOutput(ctx context.Context, w *world) error {
	const size = 1 << 30
	program := []string{"/bin/dd", "if=/dev/zero", "bs=1M", "count=1024"}
	for _, driver := range []string{"runsc", "runc"} {
		id, end, err := w.active(ctx, driver)
		if err != nil {
			return err
		}
		argv := w.rawRunsc(append([]string{"exec", "--user=10001:10001", "--cwd=/", string(id)}, program...)...)
		sides := []side{timed(func(ctx context.Context) error { return w.stream(ctx, driver, id, size, program) })}
		l := line{what: driver + ": 1 GiB from openProcess", unit: "ms"}
		if driver == "runsc" {
			w.rep.command("runsc exec dd", argv)
			l.rawName = "runsc exec"
			sides = append(sides, timed(func(ctx context.Context) error {
				var n counter
				err := shInto(ctx, &n, "", argv...)
				if err == nil && n != size {
					err = fmt.Errorf("%d bytes", n)
				}
				return err
			}))
		}
		got, err := interleave(ctx, min(w.n, 5), sides...)
		err = errors.Join(err, end())
		reapOrphans()
		if err != nil {
			return err
		}
		l.ours = got[0]
		if len(got) > 1 {
			l.raw = got[1]
		}
		l.note = fmt.Sprintf("%.0f MiB/s", 1024*1000/got[0].median())
		w.rep.add(l)
	}
	return nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func (w *world) stream(ctx context.Context, driver string, id sandbox.InstanceID, size int64, argv []string) error {
	p, err := w.providers[driver].Optional().OpenProcess.OpenProcess(ctx, id, processID(), sandbox.ProcessRequest{
		Executable: argv[0], Arguments: argv[1:], WorkingDirectory: "/", Environment: map[string]string{}})
	if err != nil {
		return err
	}
	defer p.Destroy(context.WithoutCancel(ctx))
	go io.Copy(io.Discard, p.Error())
	p.Input().Close()
	n, err := io.Copy(io.Discard, p.Output())
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes of %d", n, size)
	}
	if err != nil {
		return err
	}
	_, err = p.Wait(ctx)
	return err
}

// patchRepository makes the patch of a repository of 10,000 files of which 100
// changed, from a listing with digests.
func patchRepository(ctx context.Context, w *world) error {
	repo := filepath.Join(w.dir, "repo")
	paths, err := manyFiles(repo)
	if err != nil {
		return err
	}
	defer os.RemoveAll(repo)
	git := func(args ...string) []string { return append([]string{"git", "-C", repo}, args...) }
	for _, argv := range [][]string{git("init", "-q"), git("add", "."), git("-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-qm", "many")} {
		if err := sh(ctx, argv...); err != nil {
			return err
		}
	}
	plan, err := mount.Git(ctx, mount.GitOptions{Dir: repo, TempDir: w.dir})
	if err != nil {
		return err
	}
	defer plan.Close()
	base := plan.Baseline()
	changed := map[string][]byte{}
	for i := 0; i < len(paths); i += 100 {
		content := []byte(fmt.Sprintf("changed %d\n", i))
		changed[paths[i]] = content
		if err := os.WriteFile(filepath.Join(repo, paths[i]), content, 0o644); err != nil {
			return err
		}
	}
	var after []mount.Entry
	for _, path := range paths {
		e := mount.Entry{Path: path, Type: mount.TypeFile, Size: base.Files[path].Size, Digest: base.Files[path].Digest}
		if content, ok := changed[path]; ok {
			e.Size, e.Digest = int64(len(content)), mount.Digest(content)
		}
		after = append(after, e)
	}
	read := func(path string) ([]byte, error) { return changed[path], nil }
	argv := git("diff", "--binary", "HEAD")
	w.rep.command("git diff", argv)
	got, err := interleave(ctx, min(w.n, 10),
		timed(func(ctx context.Context) error {
			change, err := mount.Diff(ctx, base, after, read)
			if err != nil {
				return err
			}
			var n counter
			err = plan.Patch(ctx, change, read, &n)
			if err == nil && (n == 0 || len(change.Modified) != len(changed)) {
				err = fmt.Errorf("patch of %d bytes for %s", n, change.Summary())
			}
			return err
		}),
		timed(func(ctx context.Context) error {
			var n counter
			return shInto(ctx, &n, "", argv...)
		}))
	if err != nil {
		return err
	}
	w.rep.add(line{what: "patch of 10,000 files, 100 changed", unit: "ms", ours: got[0], rawName: "git diff", raw: got[1]})
	return nil
}

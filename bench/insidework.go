package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/checkfu/checkfu/internal/image/imagetest"
)

const (
	unpacked    = 20_000 // files
	npmPackages = 50
	npmFiles    = 40 // of each, beside package.json
)

// insideUnpack unpacks 20,000 files of at most 4 KiB.
func insideUnpack(ctx context.Context, w *world) (err error) {
	s, err := w.sites(ctx, w.image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var archive bytes.Buffer
	t, source := tar.NewWriter(&archive), newSource(5)
	for i := range unpacked {
		if i%100 == 0 {
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("d%03d/", i/100), Mode: 0o755}); err != nil {
				return err
			}
		}
		if err := put(t, fmt.Sprintf("d%03d/f%02d", i/100, i%100), source.file()); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return s.measure(ctx, w, work{
		what:    fmt.Sprintf("unpack %d files inside", unpacked),
		prepare: func(in string) error { return os.WriteFile(filepath.Join(in, "files.tar"), archive.Bytes(), 0o644) },
		script:  "tar -C $OUT -xf $IN/files.tar",
		check:   exactly(unpacked),
	})
}

// insideNPM installs 50 packages with npm, each out of an archive beside the project,
// with an empty cache and no network.
func insideNPM(ctx context.Context, w *world) (err error) {
	archive, err := made(func() string { return imagetest.Node(maker{}, w.dir) })
	if err != nil {
		w.rep.note("no npm install: %v", err)
		return nil
	}
	img, err := w.images.Import(ctx, archive)
	if err := errors.Join(err, os.Remove(archive)); err != nil {
		return err
	}
	s, err := w.sites(ctx, img)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	packages, source := make([][]byte, npmPackages), newSource(6)
	depends := map[string]string{}
	for i := range packages {
		if packages[i], err = npmPackage(i, source); err != nil {
			return err
		}
		depends[npmName(i)] = "file:../in/" + npmName(i) + ".tgz"
	}
	project, err := json.Marshal(map[string]any{"name": "bench", "version": "1.0.0", "private": true, "dependencies": depends})
	if err != nil {
		return err
	}
	return s.measure(ctx, w, work{
		what: fmt.Sprintf("npm install of %d packages, %d files", npmPackages, npmPackages*(npmFiles+1)),
		prepare: func(in string) error {
			err := os.WriteFile(filepath.Join(in, "package.json"), project, 0o644)
			for i, p := range packages {
				err = errors.Join(err, os.WriteFile(filepath.Join(in, npmName(i)+".tgz"), p, 0o644))
			}
			return err
		},
		script: "cd $OUT; read -r project <$IN/package.json || true; echo \"$project\" >package.json; export HOME=$OUT; " +
			"/usr/bin/node " + imagetest.NPM + " install --offline --cache=$OUT/cache --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error",
		check: func(out string) error { // one is npm's own, .package-lock.json
			return exactly(npmPackages*(npmFiles+1) + 1)(filepath.Join(out, "node_modules"))
		},
	})
}

func npmName(i int) string { return fmt.Sprintf("package-%03d", i) }

// npmPackage is an archive as `npm pack` makes it.
func npmPackage(i int, source *source) ([]byte, error) {
	about, err := json.Marshal(map[string]any{"name": npmName(i), "version": "1.0.0", "main": "f00.js"})
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	t := tar.NewWriter(z)
	err = put(t, "package/package.json", about)
	for n := range npmFiles {
		err = errors.Join(err, put(t, fmt.Sprintf("package/f%02d.js", n), source.file()))
	}
	err = errors.Join(err, t.Close(), z.Close())
	return archive.Bytes(), err
}

// source gives files of 0 to 4 KiB, always the same.
type source struct {
	length  *rand.Rand
	content *rand.ChaCha8
	buffer  [4096]byte
}

func newSource(seed uint64) *source {
	return &source{length: rand.New(rand.NewPCG(seed, seed)), content: rand.NewChaCha8([32]byte{byte(seed)})}
}

func (s *source) file() []byte {
	b := s.buffer[:s.length.IntN(len(s.buffer))]
	s.content.Read(b)
	return b
}

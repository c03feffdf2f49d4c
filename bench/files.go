package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/sandbox"
)

const (
	manyDirs     = 100
	filesPerDir  = 100
	bytesPerFile = 4096
	repoPath     = "/workspace/repo"
)

var repoMount = sandbox.Mount{MountPath: repoPath, Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit}

// manyFiles writes 10,000 files of random bytes and returns their paths.
func manyFiles(dir string) ([]string, error) {
	random := rand.NewChaCha8([32]byte{1})
	content := make([]byte, bytesPerFile)
	var paths []string
	for d := range manyDirs {
		sub := fmt.Sprintf("dir%02d", d)
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
		for f := range filesPerDir {
			random.Read(content)
			path := fmt.Sprintf("%s/file%02d", sub, f)
			if err := os.WriteFile(filepath.Join(dir, path), content, 0o644); err != nil {
				return nil, err
			}
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// stagers is how many files the Runner writes at once.
const stagers = 4

// writeAll stages files by their paths, read by read.
func writeAll(ctx context.Context, p sandbox.Provider, id sandbox.InstanceID, n int, read func(i int) (string, []byte, error)) error {
	next := make(chan int)
	failed := make(chan error, stagers)
	var workers sync.WaitGroup
	for range stagers {
		workers.Go(func() {
			for i := range next {
				path, content, err := read(i)
				if err == nil {
					err = p.WriteFile(ctx, id, sandbox.FileWrite{Path: repoPath + "/" + path, Content: content})
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	var err error
	for i := 0; i < n && err == nil; i++ {
		select {
		case next <- i:
		case err = <-failed:
		}
	}
	close(next)
	workers.Wait()
	select {
	case late := <-failed:
		err = errors.Join(err, late)
	default:
	}
	return err
}

func stageFiles(ctx context.Context, w *world) error {
	source, target := filepath.Join(w.dir, "many"), filepath.Join(w.dir, "tmpfs")
	paths, err := manyFiles(source)
	if err != nil {
		return err
	}
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("bench", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=512m,noswap"); err != nil {
		return err
	}
	defer func() {
		unix.Unmount(target, unix.MNT_DETACH)
		os.RemoveAll(source)
	}()
	// staged has an instance of its own for each round; making and ending it
	// is not on the clock.
	staged := func(write func(ctx context.Context, id sandbox.InstanceID) error) side {
		return func(ctx context.Context) (time.Duration, error) {
			h, err := w.providers["runsc"].Provision(ctx, w.request("runsc", repoMount))
			if err != nil {
				return 0, err
			}
			took, err := timed(func(ctx context.Context) error { return write(ctx, h.Value.InstanceID) })(ctx)
			return took, errors.Join(err, w.providers["runsc"].Destroy(context.WithoutCancel(ctx), h.Value.InstanceID))
		}
	}
	copied := filepath.Join(target, "copy")
	argv := []string{"cp", "-r", source, copied}
	w.rep.command("cp -r", argv)
	got, err := interleave(ctx, w.n,
		staged(func(ctx context.Context, id sandbox.InstanceID) error {
			return writeAll(ctx, w.providers["runsc"], id, len(paths), func(i int) (string, []byte, error) {
				content, err := os.ReadFile(filepath.Join(source, paths[i]))
				return paths[i], content, err
			})
		}),
		func(ctx context.Context) (time.Duration, error) {
			took, err := timed(func(ctx context.Context) error { return sh(ctx, argv...) })(ctx)
			return took, errors.Join(err, os.RemoveAll(copied))
		},
		staged(func(ctx context.Context, id sandbox.InstanceID) error {
			plan, err := mount.Directory(ctx, mount.DirOptions{Dir: source})
			if err != nil {
				return err
			}
			err = writeAll(ctx, w.providers["runsc"], id, len(plan.Files), func(i int) (string, []byte, error) {
				content, err := plan.Files[i].Bytes()
				return plan.Files[i].Path, content, err
			})
			return errors.Join(err, plan.Close())
		}))
	if err != nil {
		return err
	}
	w.rep.add(
		line{what: "stage 10,000 files of 4 KiB by writeFile", unit: "ms", ours: got[0], rawName: "cp -r", raw: got[1], bound: 2},
		line{what: "the same with the plan and its digests before, checked after", unit: "ms", ours: got[2], rawName: "cp -r", raw: got[1]},
	)
	return nil
}

func listFiles(ctx context.Context, w *world) error {
	id, end, err := w.staged(ctx)
	if err != nil {
		return err
	}
	defer end()
	where := filepath.Join(w.providerDir("runsc"), "instances", string(id), "home", "mounts", "0")
	script := "find . -type f -print0 | xargs -0 -n 2500 -P 2 sha256sum"
	w.rep.command("sha256sum", []string{"sh", "-c", "cd " + where + " && " + script + " > /dev/null"})
	lister := w.providers["runsc"].Optional()
	listing := sandbox.Listing{Root: repoPath, MaxEntries: 100_000}
	got, err := interleave(ctx, w.n,
		timed(func(ctx context.Context) error {
			entries, err := lister.ListDir.ListDir(ctx, id, listing)
			if err == nil && len(entries) != manyDirs*filesPerDir {
				err = fmt.Errorf("%d entries", len(entries))
			}
			return err
		}),
		timed(func(ctx context.Context) error {
			return sh(ctx, "sh", "-c", "cd "+where+" && "+script+" > /dev/null")
		}),
		timed(func(ctx context.Context) error {
			all, err := lister.ListProjectDir.ListProjectDir(ctx, id, listing)
			if err == nil && len(all.Leaves) != manyDirs*filesPerDir {
				err = fmt.Errorf("%d leaves", len(all.Leaves))
			}
			return err
		}))
	if err != nil {
		return err
	}
	w.rep.add(
		line{what: "listDir of 10,000 files with digests", unit: "ms", ours: got[0], rawName: "sha256sum, 2 workers", raw: got[1], bound: 1},
		line{what: "listProjectDir of the same", note: "with the guest's own pass", unit: "ms", ours: got[2], rawName: "sha256sum, 2 workers", raw: got[1]},
	)
	return nil
}

// staged is an active instance that holds the 10,000 files.
func (w *world) staged(ctx context.Context) (sandbox.InstanceID, func() error, error) {
	p := w.providers["runsc"]
	h, err := p.Provision(ctx, w.request("runsc", repoMount))
	if err != nil {
		return "", nil, err
	}
	id := h.Value.InstanceID
	end := func() error { return p.Destroy(context.WithoutCancel(ctx), id) }
	content := make([]byte, bytesPerFile)
	random := rand.NewChaCha8([32]byte{2})
	for i := 0; i < manyDirs*filesPerDir && err == nil; i++ {
		random.Read(content)
		path := fmt.Sprintf("%s/dir%02d/file%02d", repoPath, i/filesPerDir, i%filesPerDir)
		err = p.WriteFile(ctx, id, sandbox.FileWrite{Path: path, Content: content})
	}
	if err == nil {
		_, err = p.Activate(ctx, id)
	}
	if err != nil {
		return "", nil, errors.Join(err, end())
	}
	return id, end, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/internal/snapshot/volume"
	"github.com/checkfu/checkfu/sandbox"
)

// The snapshots of a session of 10,000 files of 4 KiB, beside tar and cp of the
// same. A snapshot that was acknowledged is on the disk; the bound holds it
// against a tar that is not, and a second row shows one that is.

// session is a mounted home and a store beside it.
type session struct {
	store     *snapshot.Store
	dir       string // of everything
	image, at string
	home      *volume.Volume
}

func snapshotCopied(ctx context.Context, w *world) error {
	dir := filepath.Join(w.dir, "snapshot-copied")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(snapshots(ctx, w, dir, snapshot.MethodCopied, 0.85), os.RemoveAll(dir))
}

// snapshotShared has a btrfs of its own, in a file.
func snapshotShared(ctx context.Context, w *world) error {
	disk, dir := filepath.Join(w.dir, "btrfs"), filepath.Join(w.dir, "snapshot-shared")
	f, err := os.Create(disk)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(4<<30), f.Close(), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	if err := sh(ctx, "mkfs.btrfs", "-q", disk); err != nil {
		w.rep.note("no snapshots on btrfs: %v", err)
		return nil
	}
	if err := sh(ctx, "mount", "-o", "loop", disk, dir); err != nil {
		return err
	}
	err = snapshots(ctx, w, dir, snapshot.MethodShared, 0.5)
	return errors.Join(err, unix.Unmount(dir, 0), os.Remove(disk))
}

// snapshots measures one method, which dir must offer.
func snapshots(ctx context.Context, w *world, dir string, method snapshot.Method, bound float64) error {
	choice, err := snapshot.Choose(ctx, dir)
	if err != nil {
		return err
	}
	if choice.Method != method {
		w.rep.note("no snapshots by %s: %s", method, choice.Reason)
		return nil
	}
	s := session{dir: dir, image: filepath.Join(dir, "home.image"), at: filepath.Join(dir, "home")}
	if s.store, err = snapshot.Open(filepath.Join(dir, "snapshots"), snapshot.Options{}); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(s.at, 0o700), volume.Create(ctx, s.image, 512<<20, 131072)); err != nil {
		return err
	}
	if s.home, err = volume.Mount(s.image, s.at); err != nil {
		return err
	}
	defer unix.Unmount(s.at, unix.MNT_DETACH)
	defer s.home.Close()
	if _, err := manyFiles(s.at); err != nil {
		return err
	}
	if err := s.captures(ctx, w, string(method), bound); err != nil {
		return err
	}
	return s.resumes(ctx, w, string(method))
}

func reference() sandbox.Snapshot {
	return sandbox.Snapshot{
		Provider: "native", Placement: sandbox.PlacementLocal, SourceInstanceID: "bench", WorkspaceID: "bench", SessionID: "bench",
		ProfileID: "bench", ProfileVersion: 1, ProfileDigest: sandbox.Digest(fmt.Sprintf("sha256:%064d", 0)),
		ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	}
}

// capture freezes, captures and thaws.
func (s session) capture(ctx context.Context, form snapshot.Form) (sandbox.Snapshot, error) {
	src := snapshot.Source{Form: form, Path: s.at}
	if form == snapshot.FormTree { // nobody writes
		return s.store.Capture(ctx, reference(), nil, src)
	}
	frozen, err := s.home.Freeze(ctx)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	src.Path = s.image
	ref, err := s.store.Capture(ctx, reference(), nil, src)
	_, thawed := frozen.Thaw()
	return ref, errors.Join(err, thawed)
}

// change writes to one file, so that there is something to write out.
func (s session) change() error {
	return os.WriteFile(filepath.Join(s.at, "dir00", "file00"), fmt.Appendln(nil, time.Now().UnixNano()), 0o644)
}

func (s session) captures(ctx context.Context, w *world, name string, bound float64) error {
	tar := []string{"tar", "-C", s.at, "-cf", filepath.Join(s.dir, "home.tar"), "."}
	durable := []string{"sh", "-c", shellLine(tar) + " && sync " + tar[4]}
	w.rep.command(name+": tar", tar)
	w.rep.command(name+": tar and sync", durable)
	ours := func(form snapshot.Form) side {
		return func(ctx context.Context) (time.Duration, error) {
			if err := s.change(); err != nil {
				return 0, err
			}
			var ref sandbox.Snapshot
			took, err := timed(func(ctx context.Context) (err error) {
				ref, err = s.capture(ctx, form)
				return err
			})(ctx)
			return took, errors.Join(err, s.store.Destroy(ctx, ref.SnapshotID))
		}
	}
	raw := func(argv []string) side {
		return func(ctx context.Context) (time.Duration, error) {
			if err := s.change(); err != nil {
				return 0, err
			}
			took, err := timed(func(ctx context.Context) error { return sh(ctx, argv...) })(ctx)
			return took, errors.Join(err, os.Remove(tar[4]))
		}
	}
	got, err := interleave(ctx, w.n, ours(snapshot.FormImage), raw(durable), raw(tar), ours(snapshot.FormTree))
	if err != nil {
		return err
	}
	w.rep.add(
		line{what: name + ": snapshot of 10,000 files, on the disk", unit: "ms", ours: got[0], rawName: "tar", raw: got[2], bound: bound},
		line{what: name + ": the same beside a tar that is on the disk too", unit: "ms", ours: got[0], rawName: "tar and sync", raw: got[1]},
		line{what: name + ": the same as a stream of the tree", unit: "ms", ours: got[3], rawName: "tar and sync", raw: got[1]},
	)
	return nil
}

func (s session) resumes(ctx context.Context, w *world, name string) error {
	ref, err := s.capture(ctx, snapshot.FormImage)
	if err != nil {
		return err
	}
	content := filepath.Join(s.dir, "snapshots", "snapshots", string(ref.SnapshotID), "content")
	to, at := filepath.Join(s.dir, "copy"), filepath.Join(s.dir, "mounted")
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	cp := []string{"cp", "--sparse=always", "--reflink=auto", content, to}
	durable := []string{"sh", "-c", shellLine(cp) + " && sync " + to}
	w.rep.command(name+": cp", cp)
	w.rep.command(name+": cp and sync", durable)
	raw := func(argv []string) side {
		return func(ctx context.Context) (time.Duration, error) {
			took, err := timed(func(ctx context.Context) error { return sh(ctx, argv...) })(ctx)
			return took, errors.Join(err, os.Remove(to))
		}
	}
	got, err := interleave(ctx, w.n,
		func(ctx context.Context) (time.Duration, error) {
			took, err := timed(func(ctx context.Context) error { return s.resume(ctx, ref, to, at) })(ctx)
			return took, errors.Join(err, unix.Unmount(at, 0), os.Remove(to))
		},
		raw(cp),
		func(ctx context.Context) (time.Duration, error) {
			var clone sandbox.Snapshot
			took, err := timed(func(ctx context.Context) (err error) {
				clone, err = s.store.Clone(ctx, ref, "other")
				return err
			})(ctx)
			return took, errors.Join(err, s.store.Destroy(ctx, clone.SnapshotID))
		},
		raw(durable))
	if err != nil {
		return err
	}
	w.rep.add(
		line{what: name + ": clone", unit: "ms", ours: got[2], rawName: "cp and sync", raw: got[3]},
		line{what: name + ": from a clone to its mounted home, every byte verified", unit: "ms", ours: got[0], rawName: "cp", raw: got[1]},
		line{what: name + ": the same beyond the copy of its bytes", unit: "ms", ours: samples{got[0].median() - got[1].median()}, bound: 30},
	)
	return nil
}

// resume restores a snapshot and mounts it.
func (s session) resume(ctx context.Context, ref sandbox.Snapshot, to, at string) error {
	h, err := s.store.Hold(ctx, ref)
	if err != nil {
		return err
	}
	v, err := h.Mount(ctx, to, at)
	if err == nil {
		err = v.Close()
	}
	return errors.Join(err, h.Close())
}

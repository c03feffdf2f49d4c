package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/checkfu/checkfu/internal/lock"
)

// Remove takes an image out of the store, under all its references, with its
// unpacked trees and the blobs that no other image needs.
//
// Blocks: while another process imports, until ctx is done.
// Errors: ErrNotFound; ErrInUse if somebody holds a tree of the image or is
// just unpacking it; nothing is removed then.
func (s *Store) Remove(ctx context.Context, ref string) error {
	return s.RemoveUnused(ctx, ref, func() error { return nil })
}

// RemoveUnused is Remove for an image that something can need which holds none of its
// trees: what is paused holds nothing. unused is asked when the image is the store's
// alone, after every wait and before anything is removed; while it is asked nobody can
// take the image up. What it refuses stays. It must not use this store.
//
// Errors: those of Remove; what unused says.
func (s *Store) RemoveUnused(ctx context.Context, ref string, unused func() error) error {
	return within("remove", ref, s.remove(ctx, ref, unused))
}

func (s *Store) remove(ctx context.Context, ref string, unused func() error) error {
	unlockImport, err := s.lock(ctx, "import.lock")
	if err != nil {
		return err
	}
	defer unlockImport()
	if err := s.withdraw(ctx, ref, unused); err != nil {
		return err
	}
	return s.sweep(ctx)
}

// withdraw does the removal that others can see; what was a tree is left below
// tmp for the sweep.
func (s *Store) withdraw(ctx context.Context, ref string, unused func() error) error {
	unlock, err := s.lock(ctx, "store.lock")
	if err != nil {
		return err
	}
	defer unlock()
	img, err := s.resolve(ctx, ref)
	if err != nil {
		return err
	}
	h, err := v1.NewHash(img.Digest)
	if err != nil {
		return err
	}
	roots, err := s.rootsOf(img.Digest)
	if err != nil {
		return err
	}
	for _, path := range append([]string{s.blobPath(h)}, roots...) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		got, err := lock.Try(f, lock.Exclusive)
		if err != nil {
			return err
		}
		if !got {
			return &Error{Kind: ErrInUse, Path: path, Reason: "held by a sandbox or being unpacked"}
		}
	}
	// A machine that held the image until just now may be paused by now.
	if err := unused(); err != nil {
		return err
	}
	// The index goes first: after a crash the image is gone, and what it left
	// is collected by the next removal.
	m, err := s.index()
	if err != nil {
		return err
	}
	kept := m.Manifests[:0]
	for _, d := range m.Manifests {
		if d.Digest != h {
			kept = append(kept, d)
		}
	}
	m.Manifests = kept
	if err := s.writeIndex(m); err != nil {
		return err
	}
	for _, r := range roots {
		if err := s.retire(r); err != nil {
			return err
		}
	}
	return s.collect(ctx)
}

// retire moves a tree to where the sweep takes it. Its caller holds store.lock and the
// tree's own.
func (s *Store) retire(root string) error {
	gone, err := os.MkdirTemp(s.path("tmp"), "gone-")
	if err != nil {
		return err
	}
	return os.Rename(root, filepath.Join(gone, "root"))
}

// retireOthers retires the trees of an image for other bases, which only another
// version of Checkfu made, but those that somebody holds.
func (s *Store) retireOthers(ctx context.Context, digest string) error {
	unlock, err := s.lock(ctx, "store.lock")
	if err != nil {
		return err
	}
	defer unlock()
	roots, err := s.rootsOf(digest)
	if err != nil {
		return err
	}
	for _, r := range roots {
		if r == s.rootPath(digest) {
			continue
		}
		f, err := os.Open(r)
		if err != nil {
			return err
		}
		got, err := lock.Try(f, lock.Exclusive)
		if got && err == nil {
			err = s.retire(r)
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) rootsOf(digest string) ([]string, error) {
	names, err := os.ReadDir(s.path("roots"))
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, n := range names {
		if strings.HasPrefix(n.Name(), strings.Replace(digest, ":", "-", 1)+"-") {
			roots = append(roots, s.path("roots", n.Name()))
		}
	}
	return roots, nil
}

// collect deletes the blobs that no image needs. Both locks are held, so none
// of them is on its way into the index.
func (s *Store) collect(ctx context.Context) error {
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, one := range all {
		needed[strings.TrimPrefix(one.Digest, "sha256:")] = true
		needed[one.manifest.Config.Digest.Hex] = true
		for _, l := range one.manifest.Layers {
			needed[l.Digest.Hex] = true
		}
	}
	blobs, err := os.ReadDir(s.path("blobs", "sha256"))
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if !needed[b.Name()] {
			err = errors.Join(err, os.Remove(s.path("blobs", "sha256", b.Name())))
		}
	}
	return err
}

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/lock"
)

// Root is an unpacked tree that is held: as long as it is not released, the
// store does not remove it. The hold ends with the process at the latest.
type Root struct {
	// Path is the tree's host path. It is shared by everyone who runs this
	// image: mount it read-only. Only the store's owner can enter its parents.
	Path   string
	Config Config
	// TreeDigest is the digest of the tree as it was when it was unpacked.
	TreeDigest string

	held    *os.File
	release sync.Once
}

// Release ends the hold. It may be called again.
func (r *Root) Release() {
	r.release.Do(func() { r.held.Close() })
}

// rootRecord is root.json.
type rootRecord struct {
	Manifest   string `json:"manifest"`
	TreeDigest string `json:"tree_digest"`
	Entries    int64  `json:"entries"`
	leftOut
}

const (
	rootfsName = "rootfs"
	linesName  = "tree"
	recordName = "root.json"
)

func rootName(digest string, base uint32) string {
	return strings.Replace(digest, ":", "-", 1) + fmt.Sprint("-", base)
}

func (s *Store) rootPath(digest string) string {
	return s.path("roots", rootName(digest, s.opt.IDBase))
}

// Rootfs returns the tree of the image with this digest, held. It is unpacked
// first if it is not there yet; of several processes that ask at once, one
// unpacks and the others wait for it.
//
// Ownership: the caller calls Release when nothing uses the tree any more. A
// mount that outlives the hold does not keep the tree from being removed.
// Blocks: until the tree is there or ctx is done.
// Errors: ErrNotFound, ErrHostile, ErrTooLarge, ErrDigestMismatch (a layer is
// not the one its configuration names), ErrUnsupported (ids above MaxIDs).
func (s *Store) Rootfs(ctx context.Context, digest string) (*Root, error) {
	r, err := s.rootfs(ctx, digest)
	return r, within("rootfs", digest, err)
}

func (s *Store) rootfs(ctx context.Context, digest string) (*Root, error) {
	for {
		img, err := s.byDigest(digest)
		if err != nil {
			return nil, err
		}
		r, err := s.hold(ctx, img)
		if !errors.Is(err, fs.ErrNotExist) {
			return r, err
		}
		// It may be removed again before the next round holds it; then that
		// round finds no image either.
		if err := s.unpack(ctx, img); err != nil {
			return nil, err
		}
	}
}

func (s *Store) byDigest(digest string) (*stored, error) {
	m, err := s.index()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Manifests {
		if d.Digest.String() == digest {
			return s.load(d)
		}
	}
	return nil, &Error{Kind: ErrNotFound, Reason: "no image of this digest"}
}

// hold locks a tree that is there against removal; else fs.ErrNotExist.
func (s *Store) hold(ctx context.Context, img *stored) (*Root, error) {
	dir := s.rootPath(img.Digest)
	f, err := lock.Open(ctx, dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, lock.Shared)
	if err != nil {
		return nil, err
	}
	rec, err := readRecord(dir)
	if err == nil && rec.Manifest != img.Digest {
		err = &Error{Kind: ErrDigestMismatch, Path: dir, Reason: "record of another image", Expected: img.Digest, Got: rec.Manifest}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Root{Path: filepath.Join(dir, rootfsName), Config: img.Config, TreeDigest: rec.TreeDigest, held: f}, nil
}

func readRecord(dir string) (*rootRecord, error) {
	b, err := readBounded(filepath.Join(dir, recordName))
	if err != nil {
		// A published root without its record is damaged, not absent.
		return nil, &Error{Path: dir, Reason: "record", Got: err.Error()}
	}
	var rec rootRecord
	if err := json.Unmarshal(b, &rec); err != nil {
		return nil, &Error{Path: dir, Reason: "record", Err: err}
	}
	return &rec, nil
}

// unpack makes the tree of an image and publishes it. The manifest's file
// serves as the lock: whoever removes the image must have it too.
func (s *Store) unpack(ctx context.Context, img *stored) (err error) {
	h, err := v1.NewHash(img.Digest)
	if err != nil {
		return err
	}
	turn, err := lock.Open(ctx, s.blobPath(h), os.O_RDONLY, lock.Exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Kind: ErrNotFound, Reason: "removed meanwhile", Err: err}
	}
	if err != nil {
		return err
	}
	defer turn.Close()
	if _, err := os.Lstat(s.rootPath(img.Digest)); err == nil {
		return nil // somebody else's turn came first
	}
	if err := s.retireOthers(ctx, img.Digest); err != nil {
		return err
	}
	if err := s.sweep(ctx); err != nil {
		return err
	}
	st, err := s.stage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = joined(err, st.close()) }()

	dir := filepath.Join(st.dir, "root")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := s.fill(ctx, img, dir); err != nil {
		return err
	}
	unlock, err := s.lock(ctx, "store.lock")
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Rename(dir, s.rootPath(img.Digest)); err != nil {
		return err
	}
	return syncDir(s.path("roots"))
}

// fill makes rootfs, tree and root.json in dir, all of it on disk.
func (s *Store) fill(ctx context.Context, img *stored, dir string) error {
	top := filepath.Join(dir, rootfsName)
	if err := os.Mkdir(top, 0o755); err != nil {
		return err
	}
	root, err := os.Open(top)
	if err != nil {
		return err
	}
	defer root.Close()
	fd := int(root.Fd())
	u := newUnpacker(fd, s.opt)
	defer u.tree.forget()
	if err := u.tree.describe(fd, ".", unix.S_IFDIR, attributes{mode: 0o755}); err != nil {
		return err
	}
	var done, total int64
	for _, l := range img.manifest.Layers {
		total += l.Size
	}
	shared, err := s.shareBase(ctx, img, u)
	if err != nil {
		return err
	}
	for i, l := range img.manifest.Layers {
		if i < shared {
			done += l.Size
			continue
		}
		err := func() error {
			f, err := os.Open(s.blobPath(l.Digest))
			if err != nil {
				return absent(l, err)
			}
			defer f.Close()
			return u.layer(ctx, &counted{f, func(n int) {
				done += int64(n)
				s.report(Progress{Stage: "unpack", Detail: img.Digest, Done: done, Total: total})
			}}, img.diffIDs[i])
		}()
		if err != nil {
			return err
		}
	}
	lines, err := os.OpenFile(filepath.Join(dir, linesName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	digest, entries, err := writeRecord(ctx, fd, s.opt.IDBase, lines)
	if cerr := lines.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(rootRecord{img.Digest, digest, entries, u.left}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, recordName), append(b, '\n'), 0o600); err != nil {
		return err
	}
	// One call for all files: the rename that publishes must not reach the
	// disk before what it publishes.
	return unix.Syncfs(fd)
}

type counted struct {
	r     io.Reader
	count func(int)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.count(n)
	return n, err
}

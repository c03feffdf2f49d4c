package snapshot

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/tree"
	"github.com/checkfu/checkfu/internal/snapshot/volume"
)

// Verify compares every byte of the content with the manifest.
// Errors: ErrDamaged with the bytes that differ; host errors.
func (h *Hold) Verify(ctx context.Context) error {
	got, err := pass{from: h.content, size: h.Manifest.ContentBytes}.run(ctx)
	if err == nil {
		err = h.Manifest.compare(got)
	}
	return within("restore", string(h.Manifest.Snapshot.SnapshotID), err)
}

// Restore makes what was captured anew: an image as a new file at path, a tree
// in the empty directory at path. Not one byte of a damaged snapshot stays
// there. The snapshot stays as it was. The space of an image is reserved, as far as
// the filesystem can (volume.Reserve), and what was open without a name when it was
// captured is removed from it (volume.Check).
//
// The result is not forced to the disk: a running session does not outlive its
// host. Errors: ErrDamaged with the bytes that differ; host errors. An image
// that failed is removed; of a tree the caller removes what there is.
func (h *Hold) Restore(ctx context.Context, path string) error {
	var err error
	if h.Manifest.Form == FormImage {
		err = h.restoreImage(ctx, path, nil)
	} else {
		err = h.restoreTree(ctx, path)
	}
	return within("restore", string(h.Manifest.Snapshot.SnapshotID), err)
}

// Mount makes an image anew as Restore does, and mounts it at a directory. It does not
// wait until the host's disk has all of it, which Restore and volume.Mount do.
// Errors: those of Restore and volume.Mount; ErrUnsupported (a tree). Of an image that
// failed nothing is left.
func (h *Hold) Mount(ctx context.Context, path, at string) (*volume.Volume, error) {
	v, err := h.mount(ctx, path, at)
	return v, within("restore", string(h.Manifest.Snapshot.SnapshotID), err)
}

func (h *Hold) mount(ctx context.Context, path, at string) (v *volume.Volume, err error) {
	if h.Manifest.Form != FormImage {
		return nil, &Error{Kind: ErrUnsupported, Field: "form", Expected: string(FormImage), Got: string(h.Manifest.Form)}
	}
	attach := func() (err error) {
		v, err = volume.Attach(path)
		return err
	}
	err = h.restoreImage(ctx, path, attach)
	if err == nil {
		if err = v.Mount(at); err != nil {
			err = joined(err, os.Remove(path))
		}
	}
	if err != nil && v != nil {
		return nil, joined(err, v.Close())
	}
	return v, err
}

// restoreImage makes an image. If attach is not nil it is called when the image has
// its size and, where the bytes are copied, none of them yet.
func (h *Hold) restoreImage(ctx context.Context, path string, attach func() error) (err error) {
	to, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = joined(err, to.Close())
		if err != nil {
			err = joined(err, os.Remove(path))
		}
	}()
	h.s.opt.Step("restore: made")
	size := h.Manifest.ContentBytes
	shared, err := share(h.content, to)
	if err != nil {
		return err
	}
	into := to
	if shared {
		into, err = nil, volume.Room(to, size)
	} else if err = to.Truncate(size); err == nil {
		err = volume.Reserve(to, size)
	}
	if err != nil {
		return err
	}
	attached := make(chan error, 1)
	switch {
	case attach == nil:
		attached <- nil
	case shared: // the bytes are there: what the device waits for, we need not
		go func() { attached <- attach() }()
	default:
		if err := attach(); err != nil {
			return err
		}
		attached <- nil
	}
	got, err := pass{from: h.content, size: size, to: into}.run(ctx)
	if err = joined(err, <-attached); err != nil {
		return err
	}
	h.s.opt.Step("restore: copied")
	if err := h.Manifest.compare(got); err != nil {
		return err
	}
	if err := volume.Check(ctx, path); err != nil {
		return err
	}
	h.s.opt.Step("restore: checked")
	return nil
}

func (h *Hold) restoreTree(ctx context.Context, path string) error {
	if err := h.Verify(ctx); err != nil {
		return err
	}
	h.s.opt.Step("restore: verified")
	_, err := tree.Extract(ctx, io.NewSectionReader(h.content, 0, h.Manifest.ContentBytes), path)
	h.s.opt.Step("restore: extracted")
	return err
}

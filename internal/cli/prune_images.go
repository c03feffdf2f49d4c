package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/sandbox"
)

// pruneImages removes images that nothing uses. Each is looked at once more when it is
// about to go: while an import was waited for, a machine can have begun and been paused.
// One that begins after that finds its image gone.
func (a *app) pruneImages(cmd *cobra.Command, dir string, f pruneFlags, doc *pruneDocument) error {
	bar := a.progress(true)
	defer bar.end()
	store, err := openStore(dir, bar)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	images, err := store.List(ctx)
	if err != nil {
		return err
	}
	var going pruneDocument
	if f.dryRun {
		going = *doc // a sweep would have taken these away first
	}
	var failures []error
	for _, digest := range candidates(ctx, store, images, f.allImages) {
		unused := func() error { return a.unused(cmd, dir, images, digest, going) }
		err := unused()
		if errors.Is(err, image.ErrInUse) {
			continue
		}
		if err == nil && !f.dryRun {
			err = store.RemoveUnused(ctx, digest, unused)
		}
		if e, ok := errors.AsType[*unsureError](err); ok {
			doc.Stayed = append(doc.Stayed, "no image is removed: "+e.why)
			break
		}
		switch {
		case err == nil:
			doc.add("image", referenceOf(images, digest))
		case errors.Is(err, image.ErrInUse):
			doc.Stayed = append(doc.Stayed, fmt.Sprintf("image %s is in use", digest))
		default:
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// unsureError says why it cannot be known which images are in use.
type unsureError struct{ why string }

func (e *unsureError) Error() string { return "what is in use cannot be known: " + e.why }

// unused is nil when no machine and no session has the image of a digest, which is one
// of images, but those of going.
// Errors: image.ErrInUse; *unsureError; the operating system's.
func (a *app) unused(cmd *cobra.Command, dir string, images []image.Image, digest string, going pruneDocument) error {
	used, why, err := a.usedImages(cmd, dir, going)
	switch {
	case err != nil:
		return err
	case why != "":
		return &unsureError{why}
	case used[digest]:
		return image.ErrInUse
	}
	for _, i := range images {
		if d := i.Derivation; d != nil && i.Digest == digest && used[derived(d.Base, d.Profile)] {
			return image.ErrInUse
		}
	}
	return nil
}

// derived names, among the images in use, the one that was derived from a base for a
// profile.
func derived(base, profile string) string { return base + " for " + profile }

// candidates are the digests of images that could go: with any name that names
// nothing newer, an image stays, but a derived one only for as long as somebody can
// ask for it.
func candidates(ctx context.Context, store *image.Store, images []image.Image, all bool) []string {
	var digests []string
	newest := map[string]bool{}
	for _, i := range images {
		if !slices.Contains(digests, i.Digest) {
			digests = append(digests, i.Digest)
		}
		if d := i.Derivation; d != nil && (d.Materialization != native.MaterializationRevision || !held(images, d.Base)) {
			continue
		}
		name, _, _ := strings.Cut(i.Reference, "@")
		if found, err := store.Resolve(ctx, name); err != nil || found.Digest == i.Digest {
			newest[i.Digest] = true
		}
	}
	if all {
		return digests
	}
	return slices.DeleteFunc(digests, func(d string) bool { return newest[d] })
}

// held reports whether an image of a digest is among images.
func held(images []image.Image, digest string) bool {
	return slices.ContainsFunc(images, func(i image.Image) bool { return i.Digest == digest })
}

func referenceOf(images []image.Image, digest string) string {
	for _, i := range images {
		if i.Digest == digest {
			return i.Reference
		}
	}
	return digest
}

// usedImages are the digests of images that machines and sessions have, and the
// derived ones of paused sessions by derived, but those of going. why is not empty where that cannot be known.
func (a *app) usedImages(cmd *cobra.Command, dir string, going pruneDocument) (used map[string]bool, why string, err error) {
	used = map[string]bool{}
	known := map[string]bool{} // sessions whose image is
	var snapshots []sandbox.Snapshot
	// Machines before sessions: one that is paused in between is then a session.
	err = a.eachHost(cmd, func(ctx context.Context, o *all.Opened) error {
		machines, err := o.Host.List(ctx)
		for _, m := range machines {
			if going.has("machine", string(m.InstanceID)) {
				continue
			}
			used[string(sandbox.ImageDigest(m.RootImage))] = true
		}
		list, snapErr := o.Host.Snapshots(ctx)
		for _, s := range list {
			if going.has("snapshot", string(s.Snapshot.SnapshotID)) || going.has("session", s.Snapshot.SessionID) {
				continue
			}
			snapshots = append(snapshots, s.Snapshot)
		}
		return errors.Join(err, snapErr)
	})
	if err != nil {
		return nil, "", err
	}
	sessions, err := keeper.List(dir)
	if err != nil {
		return nil, "", err
	}
	for _, s := range sessions {
		if going.has("session", s.SessionID) {
			continue
		}
		if s.Damaged != nil {
			return nil, "the record of session " + s.SessionID + " cannot be read", nil
		}
		if s.Instance != nil {
			used[string(sandbox.ImageDigest(s.Instance.RootImage))] = true
			used[derived(string(sandbox.ImageDigest(s.Instance.RootImage)), string(s.Instance.Materialization.ProfileDigest))] = true
			known[s.SessionID] = true
		}
	}
	// A fork that is just being made has a snapshot and no machine yet.
	for _, s := range snapshots {
		if !known[s.SessionID] {
			return nil, "snapshot " + argument.Printable(string(s.SnapshotID)) + " is of no session here", nil
		}
	}
	return used, "", nil
}

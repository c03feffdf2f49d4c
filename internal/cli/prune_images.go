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
	"github.com/checkfu/checkfu/sandbox"
)

// pruneImages removes images that nothing uses. Each is looked at right before it
// goes: meanwhile a machine may have begun, or a session been paused. A machine that
// begins after that finds its image gone, or holds it, and then it stays.
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
	var failures []error
	for _, digest := range candidates(ctx, store, images, f.allImages) {
		used, why, err := a.usedImages(cmd, dir)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if why != "" {
			doc.Stayed = append(doc.Stayed, "no image is removed: "+why)
			break
		}
		if used[digest] {
			continue
		}
		if !f.dryRun {
			err := store.Remove(ctx, digest)
			if errors.Is(err, image.ErrInUse) {
				doc.Stayed = append(doc.Stayed, fmt.Sprintf("image %s is in use", digest))
				continue
			}
			if err != nil {
				failures = append(failures, err)
				continue
			}
		}
		doc.add("image", referenceOf(images, digest))
	}
	return errors.Join(failures...)
}

// candidates are the digests of images that could go: with any name that names
// nothing newer, an image stays.
func candidates(ctx context.Context, store *image.Store, images []image.Image, all bool) []string {
	var digests []string
	newest := map[string]bool{}
	for _, i := range images {
		if !slices.Contains(digests, i.Digest) {
			digests = append(digests, i.Digest)
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

func referenceOf(images []image.Image, digest string) string {
	for _, i := range images {
		if i.Digest == digest {
			return i.Reference
		}
	}
	return digest
}

// usedImages are the digests of images that machines and sessions have. why is not
// empty where that cannot be known.
func (a *app) usedImages(cmd *cobra.Command, dir string) (used map[string]bool, why string, err error) {
	used = map[string]bool{}
	kept := map[sandbox.SnapshotID]bool{}
	var snapshots []sandbox.SnapshotID
	// Machines before sessions: one that is paused in between is then a session.
	err = a.eachHost(cmd, func(ctx context.Context, o *all.Opened) error {
		machines, err := o.Host.List(ctx)
		for _, m := range machines {
			used[string(sandbox.ImageDigest(m.RootImage))] = true
		}
		list, snapErr := o.Host.Snapshots(ctx)
		for _, s := range list {
			snapshots = append(snapshots, s.Snapshot.SnapshotID)
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
		if s.Damaged != nil {
			return nil, "the record of session " + s.SessionID + " cannot be read", nil
		}
		if s.Instance != nil {
			used[string(sandbox.ImageDigest(s.Instance.RootImage))] = true
		}
		if s.Snapshot != nil {
			kept[s.Snapshot.SnapshotID] = true
		}
	}
	for _, id := range snapshots {
		if !kept[id] {
			return nil, "snapshot " + argument.Printable(string(id)) + " is of no session here", nil
		}
	}
	return used, "", nil
}

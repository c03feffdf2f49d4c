package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/runs"
	"github.com/checkfu/checkfu/sandbox"
)

// pruneFlags are those of "prune".
type pruneFlags struct {
	olderThan                 string
	dryRun, allImages, asJSON bool
}

func (a *app) pruneCommand() *cobra.Command {
	var f pruneFlags
	cmd := &cobra.Command{
		Use: "prune", Short: "Free disk: what nothing uses any more", Args: noArguments,
		Long: `Remove what nothing uses any more, and show what the disk holds of each kind before
and after:

  what checkfu sweep removes: machines and staging whose owner is gone, records of
    dead sessions, snapshots past their expiry
  runs of the history that are older than --older-than and not under way
  images that no machine and no session uses, live or paused, and that have a newer
    one of the same name; with --all-images also those that have none
  images with packages, likewise, that nobody can ask for any more: their base is
    gone, or another version of checkfu made them; they are built again when needed

An image that anything holds stays, and so does every one while there is a session
whose record cannot be read, or a snapshot of no session here: it could be of any.`,
		Example: "  checkfu prune --dry-run\n  checkfu prune --older-than 24h --all-images",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.prune(cmd, f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be removed and remove nothing")
	flags.StringVar(&f.olderThan, "older-than", "168h", "age from which on runs are removed from the history")
	flags.BoolVar(&f.allImages, "all-images", false, "remove the newest image of a name too, where nothing uses it")
	flags.BoolVar(&f.asJSON, "json", false, "print canonical JSON")
	return cmd
}

type pruneDocument struct {
	Schema  string       `json:"schema"`
	DryRun  bool         `json:"dry_run"`
	Removed []prunedLine `json:"removed"` // or what would be
	Stayed  []string     `json:"stayed"`  // why something that nothing seems to use is still there
	Before  diskUse      `json:"before"`
	After   diskUse      `json:"after"`
}

type prunedLine struct {
	Kind string `json:"kind"` // machine, staging, session, snapshot, run, image
	ID   string `json:"id"`
}

func (a *app) prune(cmd *cobra.Command, f pruneFlags) error {
	age, err := argument.Duration("--older-than", f.olderThan)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context(), a.progress(false).note)
	defer stop()
	cmd.SetContext(ctx)
	dir, err := a.usableState()
	if err != nil {
		return err
	}
	doc := pruneDocument{Schema: "checkfu.prune.v1", DryRun: f.dryRun, Before: diskUseOf(dir)}
	var failures []error
	if f.dryRun {
		failures = append(failures, a.sweepable(cmd, dir, &doc))
	} else {
		swept, err := a.sweep(cmd)
		doc.swept(swept)
		failures = append(failures, err)
	}
	removed, err := runs.Prune(dir, time.Now().Add(-age), f.dryRun)
	failures = append(failures, err)
	for _, r := range removed {
		doc.add("run", r.RunID)
	}
	failures = append(failures, a.pruneImages(cmd, dir, f, &doc))
	doc.After = diskUseOf(dir)
	if f.asJSON {
		failures = append(failures, a.printJSON(doc))
	} else {
		failures = append(failures, a.sayPruned(doc))
	}
	return errors.Join(failures...)
}

func (d *pruneDocument) add(kind string, ids ...string) {
	for _, id := range ids {
		d.Removed = append(d.Removed, prunedLine{kind, id})
	}
}

func (d *pruneDocument) has(kind, id string) bool {
	return slices.Contains(d.Removed, prunedLine{kind, id})
}

func (d *pruneDocument) swept(s sweepDocument) {
	d.add("machine", s.InstanceIDs...)
	d.add("staging", s.RunIDs...)
	d.add("session", s.SessionIDs...)
	d.add("snapshot", s.SnapshotIDs...)
}

// sweepable names what a sweep would remove.
func (a *app) sweepable(cmd *cobra.Command, dir string, doc *pruneDocument) error {
	now := sandbox.At(time.Now())
	err := a.eachHost(cmd, func(ctx context.Context, o *all.Opened) error {
		machines, err := o.Host.List(ctx)
		for _, m := range machines {
			if !m.Owned || m.ExpiresAt <= now {
				doc.add("machine", string(m.InstanceID))
			}
		}
		snapshots, snapErr := o.Host.Snapshots(ctx)
		for _, s := range snapshots {
			if s.Snapshot.ExpiresAt <= now {
				doc.add("snapshot", string(s.Snapshot.SnapshotID))
			}
		}
		return errors.Join(err, snapErr)
	})
	sessions, listErr := keeper.List(dir)
	for _, s := range sessions {
		if s.Keeping() {
			continue
		}
		kept, keptErr := stillKept(cmd.Context(), dir, s, func(*store) error { return nil })
		listErr = errors.Join(listErr, keptErr)
		if !kept {
			doc.add("session", s.SessionID)
		}
	}
	staging, scratchErr := idleScratch(dir)
	doc.add("staging", staging...)
	return errors.Join(err, listErr, scratchErr)
}

func (a *app) sayPruned(doc pruneDocument) error {
	verb := "removed"
	if doc.DryRun {
		verb = "would remove"
	}
	for _, r := range doc.Removed {
		if _, err := fmt.Fprintf(a.stdout, "%s %s %s\n", verb, r.Kind, argument.Printable(r.ID)); err != nil {
			return err
		}
	}
	if len(doc.Removed) == 0 {
		fmt.Fprintln(a.stdout, "nothing to remove")
	}
	for _, why := range doc.Stayed {
		a.complain(errors.New(why))
	}
	return doc.Before.print(a.stdout, doc.After, doc.DryRun)
}

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/internal/runs"
)

// applyFlags are those of "runs apply".
type applyFlags struct {
	dir           string
	check, asJSON bool
}

func (a *app) runsApplyCommand() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use: "apply RUN", Short: "Merge what a run changed into a working tree", Args: oneArgument("RUN"),
		Long: `Merge what a run changed into the working tree that it began with, or another one
(--dir), which may have changed since: line by line, between what was staged, what
is there now and what the run made of it. Your index, and all else of .git, is not
touched, and nothing of the repository's configuration, attributes or hooks is in
force.

Where both sides changed the same lines the file holds both, between conflict
markers. Any other conflict leaves your file as it is: a deletion against a change,
binary files, a link or directory in the way, a link of the run that leads out of
the tree. Every conflict is named, and checkfu then ends with 7.

After an error the tree is as it was, but for what somebody changed meanwhile, which
is named and stays. A merge that was killed leaves each file whole, old or new, and
can be done again. --check tells what would happen.`,
		Example: `  checkfu runs apply latest --check
  checkfu runs apply latest
  checkfu runs apply run_0123456789abcdef01234567 --dir ../other-clone`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runsApply(cmd, f, args[0]) },
	}
	cmd.Flags().StringVar(&f.dir, "dir", "", "working tree that takes the changes (default the one that the run began with)")
	cmd.Flags().BoolVar(&f.check, "check", false, "say what would happen and touch nothing")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print what happened as canonical JSON")
	return cmd
}

type applyDocument struct {
	Schema    string         `json:"schema"`
	RunID     string         `json:"run_id"`
	Dir       string         `json:"dir"`
	Checked   bool           `json:"checked"` // nothing was touched
	Written   []runner.Named `json:"written"`
	There     []runner.Named `json:"there"` // was so already
	Conflicts []conflictLine `json:"conflicts"`
}

type conflictLine struct {
	Path    string `json:"path"`
	PathHex string `json:"path_hex,omitzero"`
	Reason  string `json:"reason"`
	Marked  bool   `json:"marked"` // the file holds both sides
}

func (a *app) runsApply(cmd *cobra.Command, f applyFlags, id string) error {
	k, err := a.openRun(id)
	if err != nil {
		return err
	}
	defer k.Close()
	if err := lost(k); err != nil {
		return err
	}
	dir, err := workingTree(f.dir, k)
	if err != nil {
		return err
	}
	merged, err := a.merge(cmd, k, dir, f.check)
	if err != nil {
		return err
	}
	if len(merged.Conflicts) > 0 {
		a.code = ExitConflict
	}
	doc := applyDocument{Schema: "checkfu.apply.v1", RunID: k.RunID, Dir: dir, Checked: f.check}
	for _, w := range merged.Written {
		doc.Written = append(doc.Written, runner.Name(w.Path, w.How))
	}
	for _, path := range merged.There {
		doc.There = append(doc.There, runner.Name(path, "there"))
	}
	for _, c := range merged.Conflicts {
		n := runner.Name(c.Path, string(c.Reason))
		doc.Conflicts = append(doc.Conflicts, conflictLine{n.Path, n.PathHex, n.Why, c.Marked})
	}
	if f.asJSON {
		return a.printJSON(doc)
	}
	return a.sayApplied(doc)
}

// merge does the work in a directory that a sweep finds after a crash.
func (a *app) merge(cmd *cobra.Command, k *runs.Kept, dir string, check bool) (*mount.Merged, error) {
	patch, err := k.Patch()
	if errors.Is(err, os.ErrNotExist) {
		return &mount.Merged{}, noPatch(k)
	}
	if err != nil {
		return nil, err
	}
	defer patch.Close()
	base, err := k.Base()
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("run %s: what its files were before is not in the history (%s), so it cannot be merged; git apply takes its patch (checkfu runs show %s --patch)", k.RunID, k.NotKept, k.RunID)
	}
	if err != nil {
		return nil, err
	}
	defer base.Close()
	state, err := a.usableState()
	if err != nil {
		return nil, err
	}
	s, err := makeScratch(state, runner.NewRunID())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := s.remove(); err != nil {
			a.complain(err)
		}
	}()
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return mount.Merge(ctx, mount.MergeOptions{Dir: dir, Base: base, Patch: patch, Name: k.RunID, Check: check, TempDir: s.dir})
}

// workingTree is the top of the tree that takes the changes, without links.
func workingTree(dir string, k *runs.Kept) (string, error) {
	flag := "--dir"
	if dir == "" {
		if k.Repo == nil {
			return "", argument.Wrong("RUN: expected a run of a repository, got %s, which had none", k.RunID)
		}
		dir = k.Repo.Dir
	}
	expected := "the top of a Git working tree"
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return "", argument.Unexpected(flag, expected, dir)
	}
	if _, err := os.Lstat(filepath.Join(real, ".git")); err != nil {
		return "", argument.Unexpected(flag, expected, dir)
	}
	return real, nil
}

// inWords is a conflict in words.
var inWords = map[mount.ConflictReason]string{
	mount.BothChanged:   "both sides changed the same lines",
	mount.BinaryChanged: "both sides changed it, and it is binary; yours stays",
	mount.DeletedThere:  "the run deleted it, and it has changed here; yours stays",
	mount.DeletedHere:   "the run changed it, and it was deleted here",
	mount.OtherType:     "one side made a link of it; yours stays",
	mount.InTheWay:      "something else is in its place, which stays",
	mount.BehindLink:    "a link stands above it, which is not followed",
	mount.InRepository:  "it lies in what git takes for a repository of its own",
	mount.LinkLeadsOut:  "the run made it a link that leads out of the tree",
	mount.OursTooLarge:  "the file here is too large to be merged",
	mount.OursUnread:    "the file here cannot be read",
}

func (a *app) sayApplied(doc applyDocument) error {
	for _, w := range doc.Written {
		if hasConflict(doc, w) {
			continue
		}
		if _, err := fmt.Fprintf(a.stdout, "%-8s %s\n", w.Why, argument.Printable(w.Path)); err != nil {
			return err
		}
	}
	for _, c := range doc.Conflicts {
		text := inWords[mount.ConflictReason(c.Reason)]
		if c.Marked {
			text += ", which stand in it between markers"
		}
		if _, err := fmt.Fprintf(a.stdout, "%-8s %s (%s)\n", "conflict", argument.Printable(c.Path), text); err != nil {
			return err
		}
	}
	did := "merged into"
	if doc.Checked {
		did = "would be merged into"
	}
	changes := 0
	for _, w := range doc.Written {
		if !hasConflict(doc, w) {
			changes++
		}
	}
	fmt.Fprintf(a.stderr, "checkfu: %s %s %s: %s, %d there already, %d in conflict\n",
		doc.RunID, did, argument.Printable(doc.Dir), files(int64(changes)), len(doc.There), len(doc.Conflicts))
	return nil
}

func hasConflict(doc applyDocument, w runner.Named) bool {
	for _, c := range doc.Conflicts {
		if c.Path == w.Path && c.PathHex == w.PathHex {
			return true
		}
	}
	return false
}

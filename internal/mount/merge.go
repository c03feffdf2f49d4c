package mount

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/contain"
)

// MergeOptions say what is merged, and where to.
type MergeOptions struct {
	// Dir is the top of the working tree that takes the change, without a link at
	// its end.
	Dir string
	// Base and Patch are what Plan.Base and Plan.Patch wrote of one change. The
	// patch is a stranger's work: nothing of it is believed.
	Base, Patch io.Reader
	// Name is the change's, for the markers of a conflict: printable, one word.
	Name string
	// Check says what would happen, and writes nothing.
	Check bool
	// TempDir keeps what merging needs; "" is the system's.
	TempDir string
}

// Merged is what became of a change, or would. Every list is in path order.
type Merged struct {
	Written   []Merging  // files and links that hold the change now
	There     []string   // were so already
	Conflicts []Conflict // where both sides changed the same; the first word is the tree's
}

// Merging is one path and what was done: "added", "modified", "merged", "mode",
// "deleted" or "link".
type Merging struct{ Path, How string }

// Conflict is one path at which the change does not fit. Where Marked is set the
// file holds both sides between conflict markers; everywhere else the tree's own
// stays as it is.
type Conflict struct {
	Path   string
	Reason ConflictReason
	Marked bool
}

// ConflictReason says why a change does not fit, one of a closed set.
type ConflictReason string

// The reasons of a Conflict.
const (
	BothChanged   ConflictReason = "both_changed"          // the same lines
	BinaryChanged ConflictReason = "both_changed_binary"   // no lines to merge
	DeletedThere  ConflictReason = "changed_here_deleted"  // changed in the tree, deleted by the change
	DeletedHere   ConflictReason = "deleted_here_changed"  // deleted from the tree, changed by the change
	OtherType     ConflictReason = "another_type"          // a link against a file
	InTheWay      ConflictReason = "in_the_way"            // a directory or special file stands there, or a file above it
	BehindLink    ConflictReason = "behind_link"           // a link stands above it: it is not followed
	InRepository  ConflictReason = "in_another_repository" // a directory above it is a repository of its own, or becomes one
	LinkLeadsOut  ConflictReason = "link_leads_out"        // its target is not a plain way within the tree
	OursTooLarge  ConflictReason = "too_large"             // the tree's file is over MaxFile
	OursUnread    ConflictReason = "unreadable"            // or cannot be read
)

// Merge brings a change into a tree that may have changed since: for each file the
// three sides are what was staged, what the tree holds now and what the change made
// of it. Conflicts are no error.
//
// Git computes in a repository of our own, on copies; it sees nothing of the tree,
// so no hook, filter, attribute, driver or configuration of it is in force. The
// tree is read and written by descriptor: no link is followed, nothing outside it
// and nothing of a .git is written, its index is not touched.
//
// All is decided before the first byte is written, and each file is looked at once
// more just before it is replaced. After an error the tree is as it was, or the
// error says that this is not so and names each path: one that somebody changed
// after Merge had written it stays as they made it. As root, what is written belongs
// to whom the top belongs to. A process that is killed leaves each file and link
// whole, old or new; to merge again then does the rest.
//
// Blocks: while git computes; once writing has begun, ctx ends nothing. Another
// Merge into the same directory at that time is refused.
// Bounds: MaxFile a file, MaxEntries files, MaxPatch, MaxBase.
// Errors: *Error, with ErrRefused where the change holds what no tree may take.
func Merge(ctx context.Context, o MergeOptions) (*Merged, error) {
	m, err := mergeWith(ctx, o, func(*merger) error { return nil })
	if _, typed := errors.AsType[*Error](err); err != nil && !typed {
		err = &Error{Op: "merge", Path: o.Dir, Reason: "cannot be done", Err: err}
	}
	return m, err
}

// ErrRefused is the cause when a change names what no merge writes.
var ErrRefused = errors.New("refused")

// mergeWith calls decided between the decision and the first write, and ends with its
// error.
func mergeWith(ctx context.Context, o MergeOptions, decided func(*merger) error) (_ *Merged, err error) {
	temp, err := os.MkdirTemp(o.TempDir, "checkfu-merge-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	g, err := newGit(temp)
	if err != nil {
		return nil, err
	}
	m := &merger{git: g, temp: temp, name: o.Name, result: &Merged{}}
	if m.tree, err = openTree(o.Dir); err != nil {
		return nil, err
	}
	defer m.tree.Close()
	// Two at once would each undo the other's work on an error. A filesystem that
	// locks no directory is merged into without.
	if err := unix.Flock(int(m.tree.root.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, &Error{Op: "merge", Path: o.Dir, Reason: "another merge writes there", Err: err}
	}
	owner, err := m.owner()
	if err != nil {
		return nil, err
	}
	if m.to, err = contain.Open(o.Dir, contain.Options{Owner: owner}); err != nil {
		return nil, err
	}
	defer m.to.Close()
	steps, err := m.read(ctx, o.Base, o.Patch)
	if err != nil {
		return nil, err
	}
	defer m.blobs.Close()
	if err := m.decide(ctx, steps); err != nil {
		return nil, err
	}
	if o.Check {
		return m.result, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := decided(m); err != nil {
		return nil, err
	}
	if err := m.write(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	return m.result, nil
}

// owner is whom the tree belongs to: root, who runs this for somebody, leaves no
// files in it that they cannot write. Other processes give nothing away.
func (m *merger) owner() (*contain.Owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(m.tree.root.Fd()), &st); err != nil {
		return nil, err
	}
	return &contain.Owner{UID: st.Uid, GID: st.Gid}, nil
}

// merger is one Merge under way.
type merger struct {
	git   *git
	temp  string
	name  string
	tree  *tree
	to    *contain.Root
	blobs *blobs
	steps []*step // in path order
	// brought are the paths that the change writes, and the directories above them.
	brought map[string]bool
	result  *Merged
}

// step is one path of the change: base and theirs are nil where the file is absent
// on that side. The rest is decided.
type step struct {
	path         string
	base, theirs *entry

	ours   look   // what the tree held when it was decided
	do     action // keep is nothing
	merged string // a file of ours with the bytes to write, for doMerged
	perm   os.FileMode
	marked bool
	wrote  look // what it made of its path, once it is done
}

// read makes the two trees of the change and compares them.
func (m *merger) read(ctx context.Context, base, patch io.Reader) ([]*step, error) {
	dir := filepath.Join(m.temp, "git")
	format, err := readBase(ctx, m.git, dir, base)
	if err != nil {
		return nil, err
	}
	env := []string{"GIT_DIR=" + dir}
	if _, err := m.git.output(ctx, dir, env, nil, "read-tree", beforeRef); err != nil {
		return nil, err
	}
	before, err := m.entries(ctx, dir, env)
	if err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: patch, N: MaxPatch + 1}
	if _, err := m.git.output(ctx, dir, env, limited, "apply", "--cached", "--whitespace=nowarn", "-p1", "-"); err != nil {
		return nil, err
	}
	after, err := m.entries(ctx, dir, env)
	if err != nil {
		return nil, err
	}
	m.blobs = &blobs{git: m.git, dir: dir, env: env, format: format}
	var steps []*step
	for path, e := range after {
		b, was := before[path]
		delete(before, path)
		switch {
		case !was:
			steps = append(steps, &step{path: path, theirs: &e})
		case b.oid != e.oid || b.mode != e.mode:
			steps = append(steps, &step{path: path, base: &b, theirs: &e})
		}
	}
	for path, b := range before {
		steps = append(steps, &step{path: path, base: &b})
	}
	slices.SortFunc(steps, func(a, b *step) int { return strings.Compare(a.path, b.path) })
	for _, s := range steps {
		if err := s.admit(); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// entries lists the index of our repository.
func (m *merger) entries(ctx context.Context, dir string, env []string) (map[string]entry, error) {
	all := map[string]entry{}
	err := m.git.stream(ctx, dir, env, nil, func(r *bufio.Reader) error {
		return records(r, MaxEntries, func(s string) error {
			e, err := parseIndex(s)
			all[e.path] = e
			return err
		})
	}, "ls-files", "-s", "-t", "-z")
	return all, err
}

// admit refuses what no tree may take. The Runner lets none of it into a patch:
// whoever put it there did not go through the Runner.
func (s *step) admit() error {
	refuse := func(why string) error {
		return &Error{Op: "merge", Path: s.path, Reason: why, Err: ErrRefused}
	}
	switch {
	case !admitted(s.path):
		return refuse("no path within a tree")
	case Reserved(s.path):
		return refuse("a repository's own file")
	}
	for _, e := range []*entry{s.base, s.theirs} {
		switch {
		case e == nil:
		case e.stage != 0 || !e.known() || e.mode == modeSubmodule || e.mode == modeTree:
			return refuse(fmt.Sprintf("mode %s, neither a file nor a link", e.mode))
		case e.mode == modeLink && gitmodules(s.path):
			return refuse("a link where git looks for submodules")
		}
	}
	return nil
}

package mount

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Entry is one line of a listing of the mount.
type Entry struct {
	Path       string
	Type       string // "file", "symlink", "directory"; all else is special
	Size       int64
	Executable bool
	Digest     string // "sha256:<hex>" of a file; "" makes Diff read it
	Target     string // of a symlink; "" when it is not known
}

// The types of Entry that Diff tells apart.
const (
	TypeFile      = "file"
	TypeSymlink   = "symlink"
	TypeDirectory = "directory"
)

// ReadFunc reads a file of the changed tree, by its path in the mount.
type ReadFunc func(path string) ([]byte, error)

// Baseline is what a mount held when it was staged, its .git not included.
type Baseline struct {
	Files   map[string]File
	Links   map[string]string // staged links: path to target
	leftOut map[string]Reason
	ignored func(context.Context, []string) (map[string]bool, error)
}

// Baseline returns what the plan put into the mount.
func (p *Plan) Baseline() Baseline {
	b := Baseline{Files: make(map[string]File, len(p.Files)), Links: map[string]string{}, leftOut: p.leftOut, ignored: p.ignoredAmong}
	for _, f := range p.Files {
		if !inGit(f.Path) {
			b.Files[f.Path] = f
		}
	}
	if p.linksStaged {
		for _, l := range p.Links {
			b.Links[l.Path] = l.Target
		}
	}
	return b
}

// Change is what became of a mount. Every list is in path order. The first
// five make the patch; the others say what is not in it and why.
type Change struct {
	Added       []Entry // files
	Modified    []Entry // files with other bytes
	ModeChanged []Entry // files with another executable bit, other bytes or not
	Deleted     []string
	Links       []Link // new links, and links with another target

	Special   []Entry  // neither file, link nor directory; or a link without a target
	TooLarge  []Entry  // over MaxFile
	Conflicts []string // at or below a path that was left out at staging: the user has one there
	Refused   []string // names that git takes in no patch
	Ignored   []string // new, and covered by the ignore rules as they were at staging
}

// Empty reports whether a patch of the change would hold nothing.
func (c *Change) Empty() bool {
	return len(c.Added)+len(c.Modified)+len(c.ModeChanged)+len(c.Deleted)+len(c.Links) == 0
}

// Diff compares a complete listing of the mount with its baseline. What was
// left out at staging is never reported as deleted.
//
// Preconditions: after is complete; a shortened listing reads as deletions.
// Errors: *Error for a path or type that no listing can hold, or if read fails.
func Diff(ctx context.Context, base Baseline, after []Entry, read ReadFunc) (*Change, error) {
	c := &Change{}
	seen := make(map[string]bool, len(after))
	var fresh []Entry
	for _, e := range after {
		if !admitted(e.Path) || seen[e.Path] {
			return nil, &Error{Op: "diff", Path: e.Path, Reason: "listing holds a path twice, or one that is none"}
		}
		seen[e.Path] = true
		if e.Type == TypeDirectory || inGit(e.Path) {
			delete(seen, e.Path) // a file here before is a deleted file
			continue
		}
		isNew, err := c.sort(base, e, read)
		if err != nil {
			return nil, err
		}
		if isNew {
			fresh = append(fresh, e)
		}
		if err := ctx.Err(); err != nil {
			return nil, &Error{Op: "diff", Path: e.Path, Reason: "interrupted", Err: err}
		}
	}
	for path := range seen {
		for i, ch := range []byte(path) {
			if ch == '/' && seen[path[:i]] {
				return nil, &Error{Op: "diff", Path: path, Reason: "listing holds a path below a file"}
			}
		}
	}
	for path := range base.Files {
		if !seen[path] {
			c.Deleted = append(c.Deleted, path)
		}
	}
	for path := range base.Links {
		if !seen[path] {
			c.Deleted = append(c.Deleted, path)
		}
	}
	if err := c.addFresh(ctx, base, fresh); err != nil {
		return nil, err
	}
	c.order()
	return c, nil
}

// sort puts one entry where it belongs, or says that it is new.
func (c *Change) sort(base Baseline, e Entry, read ReadFunc) (isNew bool, err error) {
	f, wasFile := base.Files[e.Path]
	target, wasLink := base.Links[e.Path]
	switch {
	case wasLink && e.Type == TypeSymlink && e.Target == target:
		return false, nil
	case !wasFile && !wasLink && covered(base.leftOut, e.Path) == Ignored:
		c.Ignored = append(c.Ignored, e.Path)
		return false, nil
	case !wasFile && !wasLink && covered(base.leftOut, e.Path) != "":
		c.Conflicts = append(c.Conflicts, e.Path)
		return false, nil
	case !wasFile && !wasLink && Reserved(e.Path), e.Type == TypeSymlink && gitmodules(e.Path):
		c.Refused = append(c.Refused, e.Path)
		return false, nil
	case e.Type == TypeSymlink && e.Target != "" && len(e.Target) <= maxPath && !strings.Contains(e.Target, "\x00"):
		if !wasFile && !wasLink {
			return true, nil
		}
		c.Links = append(c.Links, Link{e.Path, e.Target})
		return false, nil
	case e.Type != TypeFile:
		c.Special = append(c.Special, e)
		return false, nil
	case e.Size > MaxFile:
		c.TooLarge = append(c.TooLarge, e)
		return false, nil
	case !wasFile && !wasLink:
		return true, nil
	case wasLink:
		c.Modified = append(c.Modified, e)
		return false, nil
	}
	if e.Size == f.Size && e.Digest == "" {
		data, err := read(e.Path)
		if err != nil {
			return false, &Error{Op: "diff", Path: e.Path, Reason: "cannot read", Err: err}
		}
		e.Digest = Digest(data)
	}
	if e.Size != f.Size || e.Digest != f.Digest {
		c.Modified = append(c.Modified, e)
	}
	if e.Executable != f.Executable {
		c.ModeChanged = append(c.ModeChanged, e)
	}
	return false, nil
}

func (c *Change) addFresh(ctx context.Context, base Baseline, fresh []Entry) error {
	ignored := map[string]bool{}
	if base.ignored != nil && len(fresh) > 0 {
		paths := make([]string, len(fresh))
		for i, e := range fresh {
			paths[i] = e.Path
		}
		var err error
		if ignored, err = base.ignored(ctx, paths); err != nil {
			return &Error{Op: "diff", Path: ".gitignore", Reason: "ignore rules cannot be applied", Err: err}
		}
	}
	for _, e := range fresh {
		switch {
		case ignored[e.Path]:
			c.Ignored = append(c.Ignored, e.Path)
		case e.Type == TypeSymlink:
			c.Links = append(c.Links, Link{e.Path, e.Target})
		default:
			c.Added = append(c.Added, e)
		}
	}
	return nil
}

func (c *Change) order() {
	for _, list := range [][]Entry{c.Added, c.Modified, c.ModeChanged, c.Special, c.TooLarge} {
		slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	}
	for _, list := range [][]string{c.Deleted, c.Conflicts, c.Refused, c.Ignored} {
		slices.Sort(list)
	}
	slices.SortFunc(c.Links, func(a, b Link) int { return strings.Compare(a.Path, b.Path) })
}

// Summary says in one printable line what changed and what is not in the
// patch.
func (c *Change) Summary() string {
	line := fmt.Sprintf("%d added, %d modified, %d deleted", len(c.Added), len(c.Modified), len(c.Deleted))
	for _, part := range []struct {
		n    int
		what string
	}{
		{len(c.ModeChanged), "with another mode"},
		{len(c.Links), "links"},
		{len(c.Special), "special files not in the patch"},
		{len(c.TooLarge), "too large for the patch"},
		{len(c.Conflicts), "not in the patch: left out at staging"},
		{len(c.Refused), "not in the patch: names that git refuses"},
		{len(c.Ignored), "not in the patch: ignored"},
	} {
		if part.n > 0 {
			line += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	return line
}

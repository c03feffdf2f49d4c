package mount

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// GitOptions says how a repository becomes a mount. With Dir alone, the mount
// holds the tracked files as they are in the working tree.
type GitOptions struct {
	Dir           string // top of a working tree, or a git directory
	Revision      string // stage this commit instead of the working tree
	CommittedOnly bool   // stage HEAD instead of the working tree
	Untracked     bool   // stage untracked files too; never ignored ones
	Links         bool   // the caller stages Plan.Links, so they are no skips
	NoGitDir      bool   // leave out the .git inside
	Alternates    bool   // accept objects borrowed from another repository
	TempDir       string // where the plan keeps its directory; "" for the system's
}

// Git plans a mount of a repository: its files, and a .git that holds the one
// commit they stand on, without remotes, credentials, hooks or history.
//
// No program that the repository names is run, and no filter is applied: the
// bytes are those of the blobs, or those in the working tree. A bare
// repository without a Revision gives the commit of its HEAD. Contents that
// are not in a commit are copied into the plan, so what is staged, and what a
// patch is made against, does not change with the working tree.
//
// Errors: *Error; its cause is ErrTooMany past MaxEntries.
// Blocks: while it reads every file once; ends when ctx does.
func Git(ctx context.Context, o GitOptions) (*Plan, error) {
	p := &Plan{Counts: map[Reason]int{}, leftOut: map[string]Reason{}, linksStaged: o.Links, isGit: true}
	err := p.planGit(ctx, o)
	if err == nil {
		return p, nil
	}
	if cerr := p.Close(); cerr != nil {
		err = errors.Join(err, cerr)
	}
	if typed := (*Error)(nil); errors.As(err, &typed) {
		return nil, err
	}
	if errors.Is(err, ErrTooMany) {
		return nil, tooMany("git", o.Dir)
	}
	return nil, &Error{Op: "git", Path: o.Dir, Reason: "cannot be mounted", Err: err}
}

func (p *Plan) planGit(ctx context.Context, o GitOptions) (err error) {
	if p.temp, err = os.MkdirTemp(o.TempDir, "checkfu-mount-"); err != nil {
		return err
	}
	if p.git, err = newGit(p.temp); err != nil {
		return err
	}
	r, err := openRepository(ctx, p.git, o.Dir, o.Alternates)
	if err != nil {
		return err
	}
	p.format, p.exclude = r.format, r.exclude
	s := &stager{p: p, r: r, hidden: map[string]bool{}, blobs: &blobs{git: p.git, dir: r.view, env: r.env, format: r.format}}
	p.close = append(p.close, s.blobs)
	revision := o.Revision
	if revision == "" {
		revision = "HEAD"
	}
	if p.Commit, err = r.resolve(ctx, revision); err != nil {
		return err
	}
	fromWork := r.work != "" && o.Revision == "" && !o.CommittedOnly
	if p.Commit == "" && !fromWork {
		return errors.New("there is no commit yet")
	}
	if err := s.list(ctx, fromWork); err != nil {
		return err
	}
	if fromWork {
		err = s.stageWork(ctx, o.Untracked)
	} else {
		err = s.stageCommit(ctx)
	}
	if err != nil {
		return err
	}
	if !o.NoGitDir {
		if o.Revision != "" {
			r.branch = "" // that commit is the head of no branch we know
		}
		if err := s.stageGitDir(ctx); err != nil {
			return err
		}
	}
	if path := collision(p.Files, p.Links); path != "" {
		return fmt.Errorf("two entries at or above one path: %s", printable(path))
	}
	sortPlan(p)
	p.Summary = p.summarize(p.gitState())
	return nil
}

// stager fills a plan from a repository.
type stager struct {
	p      *Plan
	r      *repository
	blobs  *blobs
	root   string           // tree of the commit, or ""
	parent bool             // the commit has one
	trees  []entry          // trees of the commit, but for the root
	head   []entry          // files, links and submodules of the commit
	index  []entry          // of the working tree; nil when a commit is staged
	sizes  map[string]int64 // of every blob named above that is here
	hidden map[string]bool  // paths that the git inside must not look for
}

func (s *stager) list(ctx context.Context, fromWork bool) (err error) {
	if s.p.Commit != "" {
		if err := s.readCommit(ctx); err != nil {
			return err
		}
	}
	if fromWork {
		if err := s.r.copyIndex(); err != nil {
			return err
		}
		if s.index, err = s.r.lsFiles(ctx); err != nil {
			return err
		}
		if s.index == nil {
			s.index = []entry{}
		}
	}
	oids := make(map[string]bool, len(s.head))
	for _, list := range [][]entry{s.head, s.index} {
		for _, e := range list {
			if e.mode != modeSubmodule {
				oids[e.oid] = true
			}
		}
	}
	s.sizes, err = s.r.sizes(ctx, oids)
	return err
}

// readCommit lists the commit and holds every object between its id and the
// names of the files to its own id.
func (s *stager) readCommit(ctx context.Context) error {
	data, err := s.blobs.object("commit", s.p.Commit)
	if err != nil {
		return err
	}
	head, _, _ := strings.Cut(string(data), "\n\n")
	lines := strings.Split(head, "\n")
	root, ok := strings.CutPrefix(lines[0], "tree ")
	if !ok || !validOID(root) {
		return fmt.Errorf("commit %s names no tree", s.p.Commit)
	}
	s.root, s.parent = root, len(lines) > 1 && strings.HasPrefix(lines[1], "parent ")
	if s.trees, s.head, err = s.r.lsTree(ctx, root); err != nil {
		return err
	}
	checked := map[string]bool{}
	for _, e := range append(s.trees, entry{oid: root}) {
		if checked[e.oid] {
			continue
		}
		checked[e.oid] = true
		if _, err := s.blobs.object("tree", e.oid); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// leave records a path that is not staged, and hides it from the git inside.
func (s *stager) leave(path string, reason Reason) {
	s.p.skip(path, reason)
	s.hidden[path] = true
}

func (s *stager) link(l Link) {
	s.p.link(l)
	if !s.p.linksStaged {
		s.hidden[l.Path] = true
	}
}

func (s *stager) stageCommit(ctx context.Context) error {
	for _, e := range s.head {
		if err := ctx.Err(); err != nil {
			return err
		}
		size, present := s.sizes[e.oid]
		switch {
		case e.mode == modeSubmodule:
			s.leave(e.path, Submodule)
		case Reserved(e.path):
			s.leave(e.path, UnsafePath)
		case !present:
			s.leave(e.path, Missing)
		case e.mode == modeLink && size > maxPath, size > MaxFile:
			s.leave(e.path, TooLarge)
		default:
			data, err := s.blobs.read(e.oid)
			if err != nil {
				return err
			}
			if e.mode == modeLink {
				s.stageLinkBlob(e.path, data)
				continue
			}
			s.stageBlob(e, e.executable(), data)
		}
		if err := s.p.admitCount("git", s.r.gitDir); err != nil {
			return err
		}
	}
	return nil
}

func (s *stager) stageLinkBlob(path string, target []byte) {
	if len(target) == 0 || bytes.IndexByte(target, 0) >= 0 {
		s.leave(path, Special) // no file system can hold such a link
		return
	}
	s.link(Link{path, string(target)})
}

func (s *stager) stageBlob(e entry, executable bool, data []byte) {
	s.p.add(File{Path: e.path, Executable: executable, Size: int64(len(data)), Digest: Digest(data),
		open: func() (io.ReadCloser, error) {
			data, err := s.blobs.read(e.oid)
			return io.NopCloser(bytes.NewReader(data)), err
		}})
	if isLFSPointer(data) {
		s.p.skip(e.path, LFSPointer)
	}
}

// stageSpooled stages bytes that no commit holds, from a copy of our own.
func (s *stager) stageSpooled(f File, data []byte) error {
	name, err := s.p.spool(f.Digest, data)
	if err != nil {
		return err
	}
	f.open = func() (io.ReadCloser, error) { return os.Open(name) }
	s.p.add(f)
	if isLFSPointer(data) {
		s.p.skip(f.Path, LFSPointer)
	}
	return nil
}

func (p *Plan) spool(digest string, data []byte) (string, error) {
	dir := filepath.Join(p.temp, "base")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, strings.TrimPrefix(digest, "sha256:"))
	return name, os.WriteFile(name, data, 0o600)
}

func blobID(format string, data []byte) string { return objectID(format, "blob", data) }

// objectID is the id that git gives to these bytes.
func objectID(format, kind string, data []byte) string {
	var h hash.Hash = sha1.New()
	if format == "sha256" {
		h = sha256.New()
	}
	fmt.Fprintf(h, "%s %d\x00", kind, len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// gitState says what the files are, for the summary.
func (p *Plan) gitState() string {
	if p.Commit == "" {
		return "no commit yet"
	}
	state := "commit " + p.Commit[:12]
	if p.Dirty {
		state += " with uncommitted changes"
	}
	return state
}

// summarize is one line of counts; names can be hostile and long, so they
// stay in Skips.
func (p *Plan) summarize(what string) string {
	n := 0
	for _, f := range p.Files {
		if !inGit(f.Path) || !p.isGit {
			n++
		}
	}
	line := what + ": " + counted(n, "file")
	if p.linksStaged && len(p.Links) > 0 {
		line += ", " + counted(len(p.Links), "link")
	}
	var out, kept []string
	for _, reason := range Reasons() {
		if c := p.Counts[reason]; c > 0 {
			text := fmt.Sprintf("%d %s", c, strings.ReplaceAll(string(reason), "_", " "))
			if reason.Staged() {
				kept = append(kept, text)
			} else {
				out = append(out, text)
			}
		}
	}
	if len(out) > 0 {
		line += "; left out: " + strings.Join(out, ", ")
	}
	if len(kept) > 0 {
		line += "; as they are: " + strings.Join(kept, ", ")
	}
	return line
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

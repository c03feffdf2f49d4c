package mount

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// MaxPatch is the largest patch, in bytes: git apply takes no more.
const MaxPatch = 1<<30 - 1

// Patch writes what "git apply" takes in the user's working tree as it was at
// staging, uncommitted changes included. Nothing of the user's is touched.
//
// The two sides go into a fresh bare repository that holds the changed files
// alone, and git compares their trees: there is no working tree from which a
// .gitattributes of the sandbox could hide a file or name a program.
// An empty change writes nothing. A plan of a Revision, or of CommittedOnly,
// gives a patch for that commit.
//
// The patch speaks of bytes as they lie in the working tree. Where the user's
// git converts a file on its way in (LFS content, ident, an encoding), git
// apply compares the converted form and can refuse that file's part.
//
// Preconditions: the plan is open; read ends when ctx does.
// Bounds: each file MaxFile, the patch MaxPatch; memory holds one file at a time.
// Errors: *Error; its cause is ErrChanged when a file is not the one that the
// listing named, or the plan's source changed under a Directory plan.
func (p *Plan) Patch(ctx context.Context, c *Change, read ReadFunc, w io.Writer) error {
	if c.Empty() {
		return nil
	}
	if err := p.patch(ctx, c, read, w); err != nil {
		if typed := (*Error)(nil); errors.As(err, &typed) {
			return err
		}
		return &Error{Op: "patch", Path: ".", Reason: "cannot be made", Err: err}
	}
	return nil
}

func (p *Plan) patch(ctx context.Context, c *Change, read ReadFunc, w io.Writer) error {
	temp, err := os.MkdirTemp(p.temp, "checkfu-patch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	g := p.git
	if g == nil {
		if g, err = newGit(temp); err != nil {
			return err
		}
	}
	dir := filepath.Join(temp, "git")
	if err := bareGitDir(dir, p.format); err != nil {
		return err
	}
	env := []string{"GIT_DIR=" + dir}
	if err := p.importSides(ctx, g, dir, env, c, read); err != nil {
		return err
	}
	return g.streamN(ctx, dir, env, nil, MaxPatch, func(r *bufio.Reader) error {
		_, err := io.Copy(w, r)
		return err
	}, "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--no-color", "--src-prefix=a/", "--dst-prefix=b/", beforeRef, "refs/checkfu/new")
}

// bareGitDir makes an empty bare repository.
func bareGitDir(dir, format string) error {
	config := strings.Replace(string(configFile(format, nil)), "bare = false", "bare = true", 1)
	if err := emptyGitDir(dir, []byte(config)); err != nil {
		return err
	}
	// The strongest source of attributes says that none is set.
	return os.WriteFile(filepath.Join(dir, "info", "attributes"), []byte("* !diff !text !filter !merge !eol !ident !working-tree-encoding\n"), 0o600)
}

// importSides feeds both trees to fast-import, one file at a time.
func (p *Plan) importSides(ctx context.Context, g *git, dir string, env []string, c *Change, read ReadFunc) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		out := bufio.NewWriter(w)
		err := p.sides(ctx, out, c, read)
		if err == nil {
			err = out.Flush()
		}
		// Without "done" fast-import refuses the stream, so a failure here
		// cannot become a short patch.
		w.CloseWithError(err)
		done <- err
	}()
	_, err := g.output(ctx, dir, env, r, "fast-import", "--quiet", "--done", "--date-format=raw")
	r.Close() // frees the writer if git ended early
	if werr := <-done; werr != nil && !errors.Is(werr, io.ErrClosedPipe) {
		return werr
	}
	return err
}

func (p *Plan) sides(ctx context.Context, w *bufio.Writer, c *Change, read ReadFunc) error {
	after, touched := c.touched()
	if err := p.before(ctx, w, touched); err != nil {
		return err
	}
	commit(w, "refs/checkfu/new")
	for _, path := range touched {
		e, ok := after[path]
		if !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.Type == TypeSymlink {
			put(w, modeLink, path, []byte(e.Target))
			continue
		}
		data, err := read(path)
		if err != nil {
			return &Error{Op: "patch", Path: path, Reason: "cannot read", Err: err}
		}
		if int64(len(data)) != e.Size || e.Digest != "" && Digest(data) != e.Digest {
			return &Error{Op: "patch", Path: path, Reason: "not as listed", Err: ErrChanged}
		}
		put(w, fileMode(e.Executable), path, data)
	}
	_, err := w.WriteString("done\n")
	return err
}

// touched are the paths of the change, and what is there after it; a path without
// that is deleted.
func (c *Change) touched() (after map[string]Entry, paths []string) {
	after = map[string]Entry{}
	for _, l := range c.Links {
		after[l.Path] = Entry{Path: l.Path, Type: TypeSymlink, Target: l.Target}
	}
	for _, list := range [][]Entry{c.ModeChanged, c.Added, c.Modified} {
		for _, e := range list {
			after[e.Path] = e
		}
	}
	return after, append(slices.Sorted(maps.Keys(after)), c.Deleted...)
}

// before writes what was staged at these paths as one commit.
func (p *Plan) before(ctx context.Context, w *bufio.Writer, touched []string) error {
	base := p.Baseline()
	commit(w, beforeRef)
	for _, path := range touched {
		if err := ctx.Err(); err != nil {
			return err
		}
		if target, ok := base.Links[path]; ok {
			put(w, modeLink, path, []byte(target))
		} else if f, ok := base.Files[path]; ok {
			data, err := f.Bytes()
			if err != nil {
				return err
			}
			put(w, fileMode(f.Executable), path, data)
		}
	}
	return nil
}

// beforeRef names the tree that a change began with.
const beforeRef = "refs/checkfu/old"

func commit(w *bufio.Writer, ref string) {
	fmt.Fprintf(w, "commit %s\ncommitter checkfu <checkfu@localhost> 0 +0000\ndata 0\n", ref)
}

func put(w *bufio.Writer, mode, path string, data []byte) {
	fmt.Fprintf(w, "M %s inline %s\ndata %d\n", mode, quotePath(path), len(data))
	w.Write(data) // a bufio.Writer keeps its first error for Flush
	w.WriteByte('\n')
}

func fileMode(executable bool) string {
	if executable {
		return "100755"
	}
	return "100644"
}

// quotePath is the C style that fast-import reads, for any bytes.
func quotePath(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(path) {
		if c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func exitCode(err error) int {
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return e.ExitCode()
	}
	return -1
}

package mount

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxBase is the largest base, in bytes.
const MaxBase = 1<<30 - 1

// basePrefix begins the first line of a base, which git reads as a comment; the
// object format of its patch ends it.
const basePrefix = "# checkfu-base "

// Base writes what the files that a change touches were when they were staged, in
// the form that Merge reads: with it a patch can be merged later into a tree that
// has changed since, also where it began with changes that were never committed.
//
// Preconditions and errors are those of Patch. The caller bounds what w takes.
func (p *Plan) Base(ctx context.Context, c *Change, w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s%s\n", basePrefix, p.format)
	_, touched := c.touched()
	err := p.before(ctx, out, touched)
	if err == nil {
		_, err = out.WriteString("done\n")
	}
	return errors.Join(err, out.Flush())
}

// readBase makes a bare repository of a base, with the tree at beforeRef.
func readBase(ctx context.Context, g *git, dir string, base io.Reader) (format string, err error) {
	limited := &io.LimitedReader{R: base, N: MaxBase + 1}
	r := bufio.NewReader(limited)
	line, err := r.ReadString('\n')
	if err != nil && err != io.EOF {
		return "", err
	}
	format, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), basePrefix)
	if !found || format != "sha1" && format != "sha256" {
		return "", fmt.Errorf("base: want %q and an object format, got %q", basePrefix, clip(line))
	}
	if err := bareGitDir(dir, format); err != nil {
		return "", err
	}
	_, err = g.output(ctx, dir, []string{"GIT_DIR=" + dir}, r, "fast-import", "--quiet", "--done", "--date-format=raw")
	if limited.N == 0 {
		err = fmt.Errorf("base: larger than %d bytes", MaxBase)
	}
	return format, err
}

// isBinary is how git tells that a file has no lines to merge.
func isBinary(data []byte) bool { return bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 }

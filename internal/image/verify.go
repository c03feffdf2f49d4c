package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Verify reads the unpacked tree of an image again and compares it with what
// was recorded when it was unpacked.
//
// Errors: ErrNotFound if there is no image or no tree; ErrDigestMismatch with
// the first entry that differs, and both its lines in Expected and Got ("absent"
// for one that is gone, or came later).
func (s *Store) Verify(ctx context.Context, digest string) error {
	return within("verify", digest, s.verify(ctx, digest))
}

func (s *Store) verify(ctx context.Context, digest string) error {
	img, err := s.byDigest(digest)
	if err != nil {
		return err
	}
	r, err := s.hold(ctx, img)
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Kind: ErrNotFound, Reason: "not unpacked", Err: err}
	}
	if err != nil {
		return err
	}
	defer r.Release()
	root, err := os.Open(r.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	return s.compare(ctx, r, int(root.Fd()))
}

// compare reads the tree at root, and fails at the first entry that is not as the
// record of r has it.
func (s *Store) compare(ctx context.Context, r *Root, root int) error {
	recorded, err := os.Open(filepath.Join(filepath.Dir(r.Path), linesName))
	if err != nil {
		return err
	}
	defer recorded.Close()
	c := &comparison{want: bufio.NewReader(recorded)}
	got, _, err := writeRecord(ctx, root, s.opt.IDBase, c)
	if err != nil {
		return err
	}
	if err := c.end(); err != nil {
		return err
	}
	if got != r.TreeDigest {
		return &Error{Kind: ErrDigestMismatch, Path: r.Path, Reason: "tree digest", Expected: r.TreeDigest, Got: got}
	}
	return nil
}

// comparison is a writer that reads the recorded lines along with those it is
// given, and fails at the first that is another.
type comparison struct {
	want *bufio.Reader
	part []byte // a line whose end has not come yet
}

func (c *comparison) Write(p []byte) (int, error) {
	c.part = append(c.part, p...)
	for {
		line, rest, ok := bytes.Cut(c.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		want, err := c.want.ReadString('\n')
		if err != nil && err != io.EOF {
			return 0, err
		}
		if want = strings.TrimSuffix(want, "\n"); want != string(line) {
			return 0, differ(want, string(line))
		}
		c.part = append(c.part[:0], rest...)
	}
}

// end fails if lines are recorded beyond those that came.
func (c *comparison) end() error {
	want, err := c.want.ReadString('\n')
	if err == io.EOF && want == "" {
		return nil
	}
	if err != nil {
		return err
	}
	return differ(strings.TrimSuffix(want, "\n"), "")
}

// differ tells a changed entry from one that is gone or new: of two lines the
// one that comes first in the walk has no partner.
func differ(want, got string) error {
	w, g := entryOf(want), entryOf(got)
	e := &Error{Kind: ErrDigestMismatch, Reason: "tree differs", Entry: w, Expected: want, Got: got}
	switch {
	case got == "" || want != "" && before(w, g):
		e.Got = "absent"
	case want == "" || before(g, w):
		e.Entry, e.Expected = g, "absent"
	}
	return e
}

func entryOf(line string) string {
	prefix, err := strconv.QuotedPrefix(line)
	if err != nil {
		return ""
	}
	name, _ := strconv.Unquote(prefix)
	return name
}

// before is the order of the walk: component by component.
func before(a, b string) bool {
	return strings.ReplaceAll(a, "/", "\x00") < strings.ReplaceAll(b, "/", "\x00")
}

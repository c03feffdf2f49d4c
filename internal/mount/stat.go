package mount

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// FileLines is how many lines of one file a patch adds and deletes; both are 0 for a
// binary one.
type FileLines struct {
	Path           string
	Added, Deleted int64
	Binary         bool
}

// PatchLines counts the lines of a patch by file, in its order. Git reads the patch in
// an empty directory of ours; nothing is applied.
// Bounds: MaxPatch, MaxEntries. Errors: git's.
func PatchLines(ctx context.Context, patch io.Reader, tempDir string) ([]FileLines, error) {
	temp, err := os.MkdirTemp(tempDir, "checkfu-stat-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	g, err := newGit(temp)
	if err != nil {
		return nil, err
	}
	var all []FileLines
	err = g.stream(ctx, temp, []string{"GIT_DIR=/dev/null"}, io.LimitReader(patch, MaxPatch), func(r *bufio.Reader) error {
		return records(r, MaxEntries, func(s string) error {
			l, err := parseNumstat(s)
			all = append(all, l)
			return err
		})
	}, "apply", "--numstat", "-z", "-p1", "-")
	return all, err
}

// parseNumstat reads a record of "apply --numstat -z":
// <added> TAB <deleted> TAB <path>, with - for both of a binary file.
func parseNumstat(s string) (FileLines, error) {
	f := strings.SplitN(s, "\t", 3)
	wrong := func() (FileLines, error) {
		return FileLines{}, fmt.Errorf("record of apply --numstat: want two counts and a path, got %q", clip(s))
	}
	if len(f) != 3 || f[2] == "" {
		return wrong()
	}
	l := FileLines{Path: f[2], Binary: f[0] == "-" && f[1] == "-"}
	if l.Binary {
		return l, nil
	}
	added, err := strconv.ParseUint(f[0], 10, 53)
	deleted, err2 := strconv.ParseUint(f[1], 10, 53)
	if err != nil || err2 != nil {
		return wrong()
	}
	l.Added, l.Deleted = int64(added), int64(deleted)
	return l, nil
}

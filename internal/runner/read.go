package runner

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/sandbox"
)

// aheadBytes bounds what one batch of reads holds in memory; a single file may
// be as large as mount.MaxFile.
const aheadBytes = 16 << 20

// files reads files below one root, in batches along the order in which they
// are going to be asked for. Asking in another order is right too, and slow.
type files struct {
	s     *session
	ctx   context.Context
	root  string
	order []sandbox.FileMember // paths relative to root
	place map[string]int
	have  map[string]sandbox.FileResult
}

func (s *session) files(ctx context.Context, root string, order []sandbox.FileMember) *files {
	f := &files{s: s, ctx: ctx, root: root, order: order, place: map[string]int{}, have: map[string]sandbox.FileResult{}}
	for i, m := range order {
		f.place[m.Path] = i
	}
	return f
}

// read gives one file, or why it was refused.
func (f *files) read(path string) (sandbox.FileResult, error) {
	if r, ok := f.have[path]; ok {
		delete(f.have, path)
		return r, nil
	}
	clear(f.have)
	batch := []sandbox.FileMember{{Path: path, MaximumBytes: mount.MaxFile}}
	if i, ok := f.place[path]; ok {
		batch = ahead(f.order[i:])
	}
	full := make([]sandbox.FileMember, len(batch))
	for i, m := range batch {
		full[i] = sandbox.FileMember{Path: f.root + "/" + m.Path, MaximumBytes: m.MaximumBytes}
	}
	results, err := f.s.runtime.ReadFiles(f.ctx, f.s.id, full)
	if err != nil {
		return sandbox.FileResult{}, err
	}
	for i, m := range batch[1:] {
		f.have[m.Path] = results[i+1]
	}
	return results[0], nil
}

// ahead is the longest start of order, at least one, that fits one batch.
func ahead(order []sandbox.FileMember) []sandbox.FileMember {
	n, sum := 1, order[0].MaximumBytes
	for n < len(order) && n < sandbox.MaxReadFiles && sum+order[n].MaximumBytes <= aheadBytes {
		sum += order[n].MaximumBytes
		n++
	}
	return order[:n]
}

// content is read for whoever takes a refusal as an error.
func (f *files) content(path string) ([]byte, error) {
	r, err := f.read(path)
	if err == nil && r.Refused != "" {
		err = errors.New(string(r.Refused))
	}
	return r.Content, err
}

// byPath merges lists of entries in the order of their paths.
func byPath(lists ...[]mount.Entry) []mount.Entry {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b mount.Entry) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

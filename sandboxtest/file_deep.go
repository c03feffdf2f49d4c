package sandboxtest

import (
	"bytes"
	"context"
	"path"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/checkfu/checkfu/sandbox"
)

// tries is how long the gap between a check and its use is: so many looks at
// the path, until it has changed.
const tries = 200

// gap opens a path by its name after it was checked, and gives what is there
// once it is something else, or nil if it stayed as it was.
func gap(ctx context.Context, p sandbox.Provider, id sandbox.InstanceID, path string, checked []byte) []byte {
	for range tries {
		runtime.Gosched() // the workload gets its turn
		if content, ok := inside(ctx, p, id, "cat "+path, nil); ok && !bytes.Equal(content, checked) {
			return content
		}
	}
	return nil
}

// linkedNames gives the paths, below a root, of what lies in the directories
// that links lead to.
func linkedNames(ctx context.Context, p sandbox.Provider, id sandbox.InstanceID, root string, leaves []sandbox.Leaf) []string {
	var names []string
	for _, leaf := range leaves {
		if leaf.Type != sandbox.LeafSymlink {
			continue
		}
		out, _ := inside(ctx, p, id, "ls "+root+"/"+leaf.Path, nil)
		for name := range strings.FieldsSeq(string(out)) {
			names = append(names, leaf.Path+"/"+name)
		}
	}
	return names
}

// deepFileFaults show in the suite of files: under a swapper, with special
// files and odd names, and where there is much.
func deepFileFaults() []Saboteur {
	const zeros = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	beside := func(r *reading) bool { return path.Dir(r.Path) == r.AllowedRoot }
	raced := func(r *reading) bool {
		if r.err != nil {
			return false
		}
		content := gap(r.ctx, r.p, r.id, r.Path, r.content)
		return content != nil && r.give(content)
	}
	return []Saboteur{
		{ID: "F5", Fault: "the file is checked and then opened", Kills: "files.swapped-file",
			Wrap: reader(func(r *reading) bool { return beside(r) && plain(r.Path) && raced(r) })},
		{ID: "F54", Fault: "the directory is checked and then entered", Kills: "files.swapped-parent",
			Wrap: reader(func(r *reading) bool { return !beside(r) && len(r.Path) < 200 && raced(r) })},
		{ID: "F55", Fault: "the files of a batch are checked and then opened", Kills: "files.swapped-batch", Wrap: batcher(func(b *batch) bool {
			return len(b.results) < 8 && b.each(func(m sandbox.FileMember, r *sandbox.FileResult) bool {
				if r.Refused != "" {
					return false
				}
				content := gap(b.ctx, b.p, b.id, m.Path, r.Content)
				if content != nil {
					r.Content = content
				}
				return content != nil
			})
		})},
		{ID: "F56", Fault: "a listing enters linked directories", Kills: "files.swapped-listing", Wrap: dirLister(func(l *listed[sandbox.DirEntry]) bool {
			names := linkedNames(l.ctx, l.p, l.id, l.Root, l.leaves())
			for _, name := range names {
				l.entries = append(l.entries, sandbox.DirEntry{Path: name, Digest: zeros})
			}
			slices.SortFunc(l.entries, func(a, b sandbox.DirEntry) int { return strings.Compare(a.Path, b.Path) })
			return len(names) > 0
		})},
		{ID: "F57", Fault: "a write goes through a linked directory", Kills: "files.write-contained/parent", Wrap: throughLink("[ ! -L ")},
		{ID: "F58", Fault: "a write goes through a link", Kills: "files.write-contained/last", Wrap: throughLink("[ -L ")},
		{ID: "F6", Fault: "a read waits for the other end of a FIFO", Kills: "files.fifo-read", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return reader(func(r *reading) bool {
				if r.failed(sandbox.ReasonNotRegular) {
					env.Fire()
					env.Hang()
				}
				return false
			})(p, env)
		}},
		{ID: "F59", Fault: "a batch waits for the other end of a FIFO", Kills: "files.fifo-batch", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return batcher(func(b *batch) bool {
				return b.each(func(_ sandbox.FileMember, r *sandbox.FileResult) bool {
					if r.Refused == sandbox.RefusedNotRegular {
						env.Fire()
						env.Hang()
					}
					return false
				})
			})(p, env)
		}},
		{ID: "F60", Fault: "a name that is not UTF-8 is not found", Kills: "files.odd-names-read",
			Wrap: reader(func(r *reading) bool { return !utf8.ValidString(r.Path) && r.fail(sandbox.ReasonNotFound) })},
		{ID: "F61", Fault: "a listing replaces what is not UTF-8", Kills: "files.odd-names-listed", Wrap: dirLister(func(l *listed[sandbox.DirEntry]) bool {
			return l.each(func(e *sandbox.DirEntry) bool { return madeUTF8(&e.Path) })
		})},
		{ID: "F62", Fault: "a project listing replaces what is not UTF-8", Kills: "files.odd-names-in-project", Wrap: projectLister(func(l *listed[sandbox.Leaf]) bool {
			return l.each(func(e *sandbox.Leaf) bool { return madeUTF8(&e.Path) })
		})},
		{ID: "F63", Fault: "a path over 1,024 bytes is not found", Kills: "files.deep-path",
			Wrap: reader(func(r *reading) bool { return len(r.Path) > 1024 && r.fail(sandbox.ReasonNotFound) })},
		{ID: "F64", Fault: "a batch of exactly 128 MiB is refused", Kills: "files.aggregate-edge", Wrap: batcher(func(b *batch) bool {
			if b.err != nil || b.AggregateMaximumBytes < sandbox.MaxReadFilesBytes {
				return false
			}
			b.results, b.err = nil, sandbox.Failed(sandbox.OpReadFiles, sandbox.ReasonInvalidRequest, nil)
			return true
		})},
		{ID: "F72", Fault: "a byte in the middle of a large file is lost to the workload", Kills: "files.largest-whole/written", Wrap: writer(func(w *write) (error, bool) {
			n := len(w.Content)
			if n < 1<<20 {
				return w.pass(), false
			}
			w.Content = slices.Delete(bytes.Clone(w.Content), n/2, n/2+1)
			return w.pass(), true
		})},
		{ID: "F73", Fault: "a large file is read without its last byte", Kills: "files.largest-whole/read",
			Wrap: reader(func(r *reading) bool { n := len(r.content); return n >= 1<<20 && r.give(r.content[:n-1]) })},
		{ID: "F65", Fault: "a large file is listed with the digest of another", Kills: "files.large-digest", Wrap: dirLister(func(l *listed[sandbox.DirEntry]) bool {
			return l.each(func(e *sandbox.DirEntry) bool {
				if e.Size < 1<<16 {
					return false
				}
				e.Digest = zeros
				return true
			})
		})},
		{ID: "F66", Fault: "a listing ends after 1,500 files", Kills: "files.many-listed", Wrap: dirLister((*listed[sandbox.DirEntry]).page)},
		{ID: "F67", Fault: "a project listing ends after 1,500 leaves", Kills: "files.many-in-project", Wrap: projectLister((*listed[sandbox.Leaf]).page)},
	}
}

// plain reports whether a path needs no quotes in a shell.
func plain(path string) bool {
	return strings.Trim(path, "/abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// madeUTF8 makes a name valid UTF-8.
func madeUTF8(name *string) bool {
	before := *name
	*name = strings.ToValidUTF8(before, "\ufffd")
	return *name != before
}

// page gives one page of a listing as if it were all.
func (l *listed[E]) page() bool {
	const most = 1500
	if len(l.entries) <= most {
		return false
	}
	l.entries = l.entries[:most]
	return true
}

// throughLink makes a provider whose refused writes follow the workload's
// links after all, where the test holds for the path.
func throughLink(test string) func(sandbox.Provider, *Env) sandbox.Provider {
	return writer(func(w *write) (error, bool) {
		err := w.pass()
		if err == nil || w.active == 0 || !sandbox.Within(w.Path, sandbox.OutputPath) {
			return err, false
		}
		if _, ok := inside(w.ctx, w.p, w.id, test+w.Path+" ] && cat > "+w.Path, w.Content); ok {
			return nil, true
		}
		return err, false
	})
}

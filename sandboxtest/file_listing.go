package sandboxtest

import (
	"context"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// listed is one listing that the provider inside has answered.
type listed[E any] struct {
	sandbox.Listing
	ctx     context.Context
	p       sandbox.Provider
	id      sandbox.InstanceID
	op      sandbox.Operation
	mount   sandbox.Mount // that the root is, if it is one
	again   func(most int64) ([]E, error)
	leaves  func() []sandbox.Leaf // every leaf of the root
	entries []E
	err     error
}

// fail makes the answer a failure.
func (l *listed[E]) fail(reason string) bool {
	l.entries, l.err = nil, sandbox.FailedAt(l.op, l.Root, reason, nil)
	return true
}

// all gives, of a listing that was refused as too long, every entry.
func (l *listed[E]) all() bool {
	if l.err == nil {
		return false
	}
	entries, err := l.again(sandbox.MaxListEntries)
	if err != nil {
		return false
	}
	l.entries, l.err = entries, nil
	return true
}

// cut gives only so many of them as were asked for.
func (l *listed[E]) cut() bool {
	if l.MaxEntries > sandbox.MaxListEntries || !l.all() {
		return false
	}
	l.entries = l.entries[:l.MaxEntries]
	return true
}

// over answers what asks for more than a listing may have.
func (l *listed[E]) over() bool { return l.MaxEntries > sandbox.MaxListEntries && l.all() }

// full refuses a listing of exactly max_entries.
func (l *listed[E]) full() bool {
	return l.err == nil && int64(len(l.entries)) == l.MaxEntries && l.fail(sandbox.ReasonTooManyEntries)
}

// without drops entries.
func (l *listed[E]) without(drop func(e E) bool) bool {
	before := len(l.entries)
	l.entries = slices.DeleteFunc(l.entries, drop)
	return len(l.entries) < before
}

// each changes entries one by one.
func (l *listed[E]) each(change func(e *E) bool) bool {
	changed := false
	for i := range l.entries {
		changed = change(&l.entries[i]) || changed
	}
	return changed
}

// dirLister makes a provider of which bad changes the answers of listDir.
func dirLister(bad func(l *listed[sandbox.DirEntry]) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var plans mountPlans
		return plans.watched(Override{Provider: p, Members: func(o *sandbox.Optional) {
			next, project := o.ListDir, o.ListProjectDir
			if next == nil {
				return
			}
			o.ListDir = ListDirFunc(func(ctx context.Context, id sandbox.InstanceID, q sandbox.Listing) ([]sandbox.DirEntry, error) {
				l := &listed[sandbox.DirEntry]{Listing: q, ctx: ctx, p: p, id: id, op: sandbox.OpListDir, mount: plans.at(id, q.Root)}
				l.again = func(most int64) ([]sandbox.DirEntry, error) {
					return next.ListDir(ctx, id, sandbox.Listing{Root: q.Root, MaxEntries: most})
				}
				l.leaves = func() []sandbox.Leaf {
					if project == nil {
						return nil
					}
					all, _ := project.ListProjectDir(ctx, id, sandbox.Listing{Root: q.Root, MaxEntries: sandbox.MaxListEntries})
					return all.Leaves
				}
				l.entries, l.err = l.again(q.MaxEntries)
				if bad(l) {
					env.Fire()
				}
				return l.entries, l.err
			})
		}})
	}
}

// projectLister makes a provider of which bad changes the answers of
// listProjectDir.
func projectLister(bad func(l *listed[sandbox.Leaf]) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, Members: func(o *sandbox.Optional) {
			next := o.ListProjectDir
			if next == nil {
				return
			}
			o.ListProjectDir = ListProjectDirFunc(func(ctx context.Context, id sandbox.InstanceID, q sandbox.Listing) (sandbox.ProjectListing, error) {
				l := &listed[sandbox.Leaf]{Listing: q, ctx: ctx, p: p, id: id, op: sandbox.OpListProjectDir}
				l.again = func(most int64) ([]sandbox.Leaf, error) {
					all, err := next.ListProjectDir(ctx, id, sandbox.Listing{Root: q.Root, MaxEntries: most})
					return all.Leaves, err
				}
				l.entries, l.err = l.again(q.MaxEntries)
				if bad(l) {
					env.Fire()
				}
				if l.err != nil {
					return sandbox.ProjectListing{}, l.err
				}
				return sandbox.ProjectListing{Leaves: l.entries, Complete: true}, nil
			})
		}}
	}
}

// hidden reports whether a component of a path begins with a dot.
func hidden(path string) bool { return strings.Contains("/"+path, "/.") }

// listFaults are wrong in listDir.
func listFaults() []Saboteur {
	type dir = listed[sandbox.DirEntry]
	type entry = sandbox.DirEntry
	return append(in(report.Contract, []Saboteur{
		{ID: "F13", Fault: "a listing goes over max_entries", Kills: "list-dir.form",
			Wrap: dirLister(func(l *dir) bool { return l.MaxEntries <= sandbox.MaxListEntries && l.all() })},
		{ID: "X16", Fault: "a digest in upper case", Kills: "list-dir.form", Wrap: dirLister(func(l *dir) bool {
			return l.each(func(e *entry) bool {
				algorithm, hex, _ := strings.Cut(string(e.Digest), ":")
				e.Digest = sandbox.Digest(algorithm + ":" + strings.ToUpper(hex))
				return true
			})
		})},
	}), []Saboteur{
		{ID: "F14", Fault: "a wrong SHA-256", Kills: "list-dir.size-and-digest/digest", Wrap: dirLister(func(l *dir) bool {
			return l.each(func(e *entry) bool {
				e.Digest = "sha256:" + sandbox.Digest(strings.Repeat("0", 64))
				return true
			})
		})},
		{ID: "F15", Fault: "hidden files are left out", Kills: "list-dir.hidden",
			Wrap: dirLister(func(l *dir) bool { return l.without(func(e entry) bool { return hidden(e.Path) }) })},
		{ID: "F42", Fault: "sizes are rounded up to blocks", Kills: "list-dir.size-and-digest/size", Wrap: dirLister(func(l *dir) bool {
			return l.each(func(e *entry) bool {
				before := e.Size
				e.Size = (e.Size + 511) &^ 511
				return e.Size != before
			})
		})},
		{ID: "F43", Fault: "directories are not entered", Kills: "list-dir.nested",
			Wrap: dirLister(func(l *dir) bool { return l.without(func(e entry) bool { return strings.Contains(e.Path, "/") }) })},
		{ID: "F44", Fault: "symbolic links are listed as files", Kills: "list-dir.only-regular", Wrap: dirLister(func(l *dir) bool {
			before := len(l.entries)
			for _, leaf := range l.leaves() {
				if leaf.Type == sandbox.LeafSymlink {
					l.entries = append(l.entries, entry{Path: leaf.Path, Digest: "sha256:" + sandbox.Digest(strings.Repeat("0", 64))})
				}
			}
			slices.SortFunc(l.entries, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
			return len(l.entries) > before
		})},
		{ID: "F45", Fault: "an empty root is not found", Kills: "list-dir.empty",
			Wrap: dirLister(func(l *dir) bool { return l.err == nil && len(l.entries) == 0 && l.fail(sandbox.ReasonNotFound) })},
		{ID: "F46", Fault: "a read-only mount is not listed", Kills: "list-dir.mount",
			Wrap: dirLister(func(l *dir) bool { return l.mount.Access == sandbox.AccessReadOnly && l.fail(sandbox.ReasonNotFound) })},
		{ID: "F47", Fault: "a listing of exactly max_entries is refused", Kills: "list-dir.fits-exactly", Wrap: dirLister((*dir).full)},
		{ID: "F48", Fault: "a listing is cut at max_entries", Kills: "list-dir.too-many", Wrap: dirLister((*dir).cut)},
		{ID: "F70", Fault: "a max_entries over 100,000 is taken for 100,000", Kills: "list-dir.over-bound", Wrap: dirLister((*dir).over)},
	}...)
}

// projectFaults are wrong in listProjectDir.
func projectFaults() []Saboteur {
	type dir = listed[sandbox.Leaf]
	type leaf = sandbox.Leaf
	return append(in(report.Contract, []Saboteur{
		{ID: "F17", Fault: "a project listing that is not complete", Kills: "list-project-dir.form", Wrap: incomplete},
	}), []Saboteur{
		{ID: "F16", Fault: "a project listing drops sockets and FIFOs", Kills: "list-project-dir.special",
			Wrap: projectLister(func(l *dir) bool {
				return l.without(func(e leaf) bool { return e.Type == sandbox.LeafSocket || e.Type == sandbox.LeafFIFO })
			})},
		{ID: "F18", Fault: "a project listing is cut and says that it is complete", Kills: "list-project-dir.too-many", Wrap: projectLister((*dir).cut)},
		{ID: "F49", Fault: "a symbolic link loses its target", Kills: "list-project-dir.symlink/target", Wrap: projectLister(func(l *dir) bool {
			return l.each(func(e *leaf) bool {
				had := e.Target != ""
				e.Target = ""
				return had
			})
		})},
		{ID: "F50", Fault: "no file is executable", Kills: "list-project-dir.executable/set", Wrap: projectLister(func(l *dir) bool {
			return l.each(func(e *leaf) bool {
				was := e.Executable
				e.Executable = false
				return was
			})
		})},
		{ID: "F51", Fault: "a project listing with a wrong SHA-256", Kills: "list-project-dir.size-and-digest/digest", Wrap: projectLister(func(l *dir) bool {
			return l.each(func(e *leaf) bool {
				if e.Digest == "" {
					return false
				}
				e.Digest = "sha256:" + sandbox.Digest(strings.Repeat("0", 64))
				return true
			})
		})},
		{ID: "F52", Fault: "a project listing leaves hidden leaves out", Kills: "list-project-dir.every-leaf",
			Wrap: projectLister(func(l *dir) bool { return l.without(func(e leaf) bool { return hidden(e.Path) }) })},
		{ID: "F53", Fault: "a project listing of exactly max_entries is refused", Kills: "list-project-dir.fits-exactly", Wrap: projectLister((*dir).full)},
		{ID: "F71", Fault: "a max_entries over 100,000 is taken for 100,000 in a project", Kills: "list-project-dir.over-bound", Wrap: projectLister((*dir).over)},
	}...)
}

// incomplete says of every project listing that it is not all.
func incomplete(p sandbox.Provider, env *Env) sandbox.Provider {
	return Override{Provider: p, Members: func(o *sandbox.Optional) {
		next := o.ListProjectDir
		if next == nil {
			return
		}
		o.ListProjectDir = ListProjectDirFunc(func(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
			all, err := next.ListProjectDir(ctx, id, l)
			if err == nil {
				all.Complete = false
				env.Fire()
			}
			return all, err
		})
	}}
}

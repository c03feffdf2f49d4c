package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// reading is one readFile that the provider inside has answered.
type reading struct {
	sandbox.FileRead
	ctx     context.Context
	p       sandbox.Provider
	id      sandbox.InstanceID
	mount   sandbox.Mount   // that the root is, if it is one
	mounts  []sandbox.Mount // of the instance
	content []byte
	err     error
}

// failed reports whether the answer was a failure with this reason.
func (r *reading) failed(reason string) bool {
	return errors.Is(r.err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: reason})
}

func (r *reading) tooLarge() bool {
	return errors.Is(r.err, &sandbox.Error{Kind: sandbox.FileTooLarge})
}

// fail makes the answer a failure.
func (r *reading) fail(reason string) bool {
	r.content, r.err = nil, sandbox.FailedAt(sandbox.OpReadFile, r.Path, reason, nil)
	return true
}

// give makes the answer a content.
func (r *reading) give(content []byte) bool {
	r.content, r.err = content, nil
	return true
}

// whole is the file without regard to the bound.
func (r *reading) whole() []byte {
	q := r.FileRead
	q.MaximumBytes = sandbox.MaxFileBytes
	content, _ := r.p.ReadFile(r.ctx, r.id, q)
	return content
}

// follow answers with what the workload finds at the path, if condition holds
// for it.
func (r *reading) follow(condition string) bool {
	if !r.failed(sandbox.ReasonOutsideRoot) {
		return false
	}
	content, ok := inside(r.ctx, r.p, r.id, condition+" && cat "+r.Path, nil)
	return ok && r.give(content)
}

// reader makes a provider of which bad changes the answers and says whether
// it did.
func reader(bad func(r *reading) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var plans mountPlans
		return plans.watched(Override{
			Provider: p,
			ReadFileFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
				content, err := p.ReadFile(ctx, id, q)
				r := &reading{q, ctx, p, id, plans.at(id, q.AllowedRoot), plans.of(id), content, err}
				if bad(r) {
					env.Fire()
				}
				return r.content, r.err
			},
		})
	}
}

// readFaults are wrong in readFile.
func readFaults() []Saboteur {
	return append(in(report.Contract, []Saboteur{
		{ID: "F7", Fault: "a file over maximum_bytes is given whole", Kills: "read-file.bound",
			Wrap: reader(func(r *reading) bool { return r.tooLarge() && r.give(r.whole()) })},
	}), []Saboteur{
		{ID: "F4", Fault: "a read follows a symbolic link out of its root", Kills: "read.symlink-out",
			Wrap: reader(func(r *reading) bool { return r.follow("[ -L " + r.Path + " ]") })},
		{ID: "F19", Fault: "a mount around a nested read-only one shadows it", Kills: "read.nested-mount/read-nested",
			Wrap: reader(func(r *reading) bool {
				return r.mount.Access == sandbox.AccessReadOnly && r.mount.Kind == sandbox.MountGit && nested(r.mounts, r.mount) && r.err == nil && r.fail(sandbox.ReasonNotFound)
			})},
		{ID: "F30", Fault: "a read ends at the first NUL", Kills: "read.bytes-exact", Wrap: reader(func(r *reading) bool {
			before, _, cut := bytes.Cut(r.content, []byte{0})
			return cut && r.give(before)
		})},
		{ID: "F31", Fault: "an empty file is not found", Kills: "read.empty-file",
			Wrap: reader(func(r *reading) bool { return r.err == nil && len(r.content) == 0 && r.fail(sandbox.ReasonNotFound) })},
		{ID: "F32", Fault: "a file as long as maximum_bytes is too large", Kills: "read.fits-exactly", Wrap: reader(func(r *reading) bool {
			if r.err != nil || int64(len(r.content)) != r.MaximumBytes || r.MaximumBytes == sandbox.MaxFileBytes {
				return false
			}
			r.content, r.err = nil, sandbox.TooLarge(sandbox.OpReadFile, r.Path, r.MaximumBytes)
			return true
		})},
		{ID: "F33", Fault: "a file over maximum_bytes is cut there", Kills: "read.too-large",
			Wrap: reader(func(r *reading) bool { return r.tooLarge() && r.give(r.whole()[:r.MaximumBytes]) })},
		{ID: "F34", Fault: "16 MiB are more than it can read", Kills: "read.largest",
			Wrap: reader(func(r *reading) bool {
				return len(r.content) == sandbox.MaxFileBytes && r.fail(sandbox.ReasonProviderError)
			})},
		{ID: "F35", Fault: "a file that is not there is empty", Kills: "read.missing",
			Wrap: reader(func(r *reading) bool { return r.failed(sandbox.ReasonNotFound) && r.give([]byte{}) })},
		{ID: "F36", Fault: "a directory is an empty file", Kills: "read.directory",
			Wrap: reader(func(r *reading) bool { return r.failed(sandbox.ReasonNotRegular) && r.give([]byte{}) })},
		{ID: "F37", Fault: "a read follows a linked directory out of its root", Kills: "read.symlink-parent",
			Wrap: reader(func(r *reading) bool { return r.follow("[ ! -L " + r.Path + " ]") })},
		{ID: "F68", Fault: "a bound over 16 MiB is taken for 16 MiB", Kills: "read.over-bound", Wrap: reader(func(r *reading) bool {
			return r.MaximumBytes > sandbox.MaxFileBytes && r.give(r.whole())
		})},
		{ID: "F38", Fault: "a lone read-only mount is not read from", Kills: "read.from-mount", Wrap: reader(func(r *reading) bool {
			return len(r.mounts) == 1 && r.mount.Access == sandbox.AccessReadOnly && r.err == nil && r.fail(sandbox.ReasonNotFound)
		})},
	}...)
}

// batch is one readFiles that the provider inside has answered.
type batch struct {
	sandbox.FilesRead
	ctx     context.Context
	p       sandbox.Provider
	id      sandbox.InstanceID
	mounts  []sandbox.Mount
	results []sandbox.FileResult
	err     error
}

// each changes results one by one.
func (b *batch) each(change func(m sandbox.FileMember, r *sandbox.FileResult) bool) bool {
	changed := false
	for i := range b.results {
		changed = change(b.Files[i], &b.results[i]) || changed
	}
	return changed
}

// batcher makes a provider of which bad changes the answers to batches.
func batcher(bad func(b *batch) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var plans mountPlans
		return plans.watched(Override{Provider: p, Members: func(o *sandbox.Optional) {
			next := o.ReadFiles
			if next == nil {
				return
			}
			o.ReadFiles = ReadFilesFunc(func(ctx context.Context, id sandbox.InstanceID, q sandbox.FilesRead) ([]sandbox.FileResult, error) {
				results, err := next.ReadFiles(ctx, id, q)
				b := &batch{q, ctx, p, id, plans.of(id), results, err}
				if bad(b) {
					env.Fire()
				}
				return b.results, b.err
			})
		}})
	}
}

// batchFaults are wrong in readFiles.
func batchFaults() []Saboteur {
	return append(in(report.Contract, []Saboteur{
		{ID: "F9", Fault: "the last result of a batch is missing", Kills: "read-files.union", Wrap: batcher(func(b *batch) bool {
			if len(b.results) < 2 {
				return false
			}
			b.results = b.results[:len(b.results)-1]
			return true
		})},
		{ID: "F10", Fault: "a batch goes over its budget", Kills: "read-files.union", Wrap: batcher(func(b *batch) bool {
			return b.each(func(m sandbox.FileMember, r *sandbox.FileResult) bool {
				if r.Refused != sandbox.RefusedTooLarge {
					return false
				}
				content, err := b.p.ReadFile(b.ctx, b.id, sandbox.FileRead{Path: m.Path, AllowedRoot: b.AllowedRoot, MaximumBytes: sandbox.MaxFileBytes})
				r.Content, r.Refused = content, ""
				return err == nil
			})
		})},
	}), []Saboteur{
		{ID: "F8", Fault: "the first and the last of several results change places", Kills: "read-files.order", Wrap: batcher(func(b *batch) bool {
			last := len(b.results) - 1
			if last < 3 || b.results[0].Refused != "" || b.results[last].Refused != "" {
				return false
			}
			b.results[0], b.results[last] = b.results[last], b.results[0]
			return true
		})},
		{ID: "F11", Fault: "one missing member fails the group", Kills: "read-files.refusals", Wrap: batcher(func(b *batch) bool {
			for i, r := range b.results {
				if r.Refused == sandbox.RefusedNotFound && i+1 < len(b.results) {
					b.results, b.err = nil, sandbox.FailedAt(sandbox.OpReadFiles, b.Files[i].Path, sandbox.ReasonNotFound, nil)
					return true
				}
			}
			return false
		})},
		{ID: "F12", Fault: "a member of one root is read from another", Kills: "read-files.one-root", Wrap: batcher(func(b *batch) bool {
			return b.each(func(m sandbox.FileMember, r *sandbox.FileResult) bool {
				if r.Refused != sandbox.RefusedOutsideRoot {
					return false
				}
				target, _ := inside(b.ctx, b.p, b.id, "readlink "+m.Path, nil)
				path := strings.TrimSuffix(string(target), "\n")
				mount, _ := sandbox.OwningMount(b.mounts, path)
				content, err := b.p.ReadFile(b.ctx, b.id, sandbox.FileRead{Path: path, AllowedRoot: mount.MountPath, MaximumBytes: m.MaximumBytes})
				if err != nil {
					return false
				}
				r.Content, r.Refused = content, ""
				return true
			})
		})},
		{ID: "F69", Fault: "a batch over the bounds finds nothing", Kills: "read-files.over-bound", Wrap: batcher(func(b *batch) bool {
			if len(b.Files) <= sandbox.MaxReadFiles && b.AggregateMaximumBytes <= sandbox.MaxReadFilesBytes {
				return false
			}
			b.results, b.err = make([]sandbox.FileResult, len(b.Files)), nil
			return b.each(func(_ sandbox.FileMember, r *sandbox.FileResult) bool {
				r.Refused = sandbox.RefusedNotFound
				return true
			})
		})},
		{ID: "F39", Fault: "the last byte of the budget cannot be used", Kills: "read-files.whole-budget", Wrap: batcher(func(b *batch) bool {
			var sum int64
			for _, r := range b.results {
				sum += int64(len(r.Content))
			}
			if b.err != nil || sum != b.AggregateMaximumBytes {
				return false
			}
			b.results[len(b.results)-1] = sandbox.FileResult{Refused: sandbox.RefusedTooLarge}
			return true
		})},
		{ID: "F40", Fault: "more than 1,000 files are too many", Kills: "read-files.most", Wrap: batcher(func(b *batch) bool {
			if b.err != nil || len(b.Files) <= 1000 {
				return false
			}
			b.results, b.err = nil, sandbox.Failed(sandbox.OpReadFiles, sandbox.ReasonInvalidRequest, nil)
			return true
		})},
		{ID: "F41", Fault: "a batch drops blank lines at the end of a file", Kills: "read-files.agrees", Wrap: batcher(func(b *batch) bool {
			return b.each(func(_ sandbox.FileMember, r *sandbox.FileResult) bool {
				before := len(r.Content)
				r.Content = bytes.TrimSuffix(r.Content, []byte("\n\n"))
				return len(r.Content) < before
			})
		})},
	}...)
}

package sandboxtest

import (
	"bytes"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// stale is what was once found at each place.
type stale[V comparable] struct {
	mu   sync.Mutex
	last map[string]V
}

// keep answers with what is kept of a place, and reports whether that is not
// what is there now.
func (s *stale[V]) keep(place string, now *V) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, there := s.last[place]
	if !there {
		s.last[place] = *now
		return false
	}
	changed := kept != *now
	*now = kept
	return changed
}

// keeping gives each provider a memory of its own.
func keeping[V comparable](wrap func(s *stale[V]) func(sandbox.Provider, *Env) sandbox.Provider) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return wrap(&stale[V]{last: map[string]V{}})(p, env)
	}
}

// staleFaults take what a file was for what it is, leave out what looks like
// nothing, or take a name for a place.
func staleFaults() []Saboteur {
	place := func(id sandbox.InstanceID, name string, size int64) string {
		return string(id) + " " + name + " " + strconv.FormatInt(size, 10)
	}
	// again changes a second write to the same path.
	again := func(when func(w *write) bool, change func(w *write)) func(sandbox.Provider, *Env) sandbox.Provider {
		return writer(func(w *write) (error, bool) {
			fires := w.before != nil && when(w)
			if fires {
				change(w)
			}
			return w.pass(), fires
		})
	}
	return []Saboteur{
		{ID: "F74", Fault: "a file of the output tree is read as it was when it was first read", Kills: "read.afresh/content", Wrap: keeping(func(contents *stale[string]) func(sandbox.Provider, *Env) sandbox.Provider {
			return reader(func(r *reading) bool {
				content := string(r.content)
				changed := r.err == nil && r.AllowedRoot == sandbox.OutputPath && contents.keep(place(r.id, r.Path, int64(len(content))), &content)
				return changed && r.give([]byte(content))
			})
		})},
		{ID: "F75", Fault: "a link is followed to where the name begins like the root", Kills: "read.like-named-root", Wrap: reader(func(r *reading) bool {
			to, _ := inside(r.ctx, r.p, r.id, "readlink "+r.Path, nil)
			target := path.Clean(strings.TrimSpace(string(to)))
			return strings.HasPrefix(target, r.AllowedRoot) && !sandbox.Within(target, r.AllowedRoot) && r.follow("true")
		})},
		{ID: "F76", Fault: "a digest is kept for as long as the size is the same", Kills: "list-dir.size-and-digest/afresh", Wrap: keeping(func(digests *stale[sandbox.Digest]) func(sandbox.Provider, *Env) sandbox.Provider {
			return dirLister(func(l *listed[sandbox.DirEntry]) bool {
				return l.each(func(e *sandbox.DirEntry) bool {
					return digests.keep(place(l.id, l.Root+"/"+e.Path, e.Size), &e.Digest)
				})
			})
		})},
		{ID: "F77", Fault: "a project's digest is kept for as long as the size is the same", Kills: "list-project-dir.size-and-digest/afresh", Wrap: keeping(func(digests *stale[sandbox.Digest]) func(sandbox.Provider, *Env) sandbox.Provider {
			return projectLister(func(l *listed[sandbox.Leaf]) bool {
				return l.each(func(e *sandbox.Leaf) bool {
					return e.Digest != "" && digests.keep(place(l.id, l.Root+"//"+e.Path, e.Size), &e.Digest)
				})
			})
		})},
		{ID: "F78", Fault: "empty files are left out", Kills: "list-dir.nested", Wrap: dirLister(func(l *listed[sandbox.DirEntry]) bool {
			return l.without(func(e sandbox.DirEntry) bool { return e.Size == 0 })
		})},
		{ID: "F79", Fault: "a project listing leaves empty files out", Kills: "list-project-dir.every-leaf", Wrap: projectLister(func(l *listed[sandbox.Leaf]) bool {
			return l.without(func(e sandbox.Leaf) bool { return e.Type == sandbox.LeafRegular && e.Size == 0 })
		})},
		{ID: "F80", Fault: "a project listing leaves links out that lead nowhere", Kills: "list-project-dir.symlink/nowhere", Wrap: projectLister(func(l *listed[sandbox.Leaf]) bool {
			return l.without(func(e sandbox.Leaf) bool {
				if e.Type != sandbox.LeafSymlink {
					return false
				}
				_, leads := inside(l.ctx, l.p, l.id, "[ -e "+l.Root+"/"+e.Path+" ]", nil)
				return !leads
			})
		})},
		{ID: "F81", Fault: "a second write of the same length is taken for the first", Kills: "write.overwrites/same-length", Wrap: again(
			func(w *write) bool { return len(w.before) == len(w.Content) && !bytes.Equal(w.before, w.Content) },
			func(w *write) { w.Content = w.before })},
		{ID: "F82", Fault: "a file that is written again keeps its first flag", Kills: "write.executable/changed", Wrap: again(
			func(w *write) bool { return bytes.Equal(w.before, w.Content) && w.active > 0 },
			func(w *write) { w.Executable = !w.Executable })},
	}
}

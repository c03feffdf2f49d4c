package runner

import (
	"path"
	"strings"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/mount"
)

// folder is a directory of the host that names of a machine are copied into.
type folder struct {
	root    *contain.Root   // nil where there is none
	brought map[string]bool // folded: what is copied, and the directories above it
	judged  map[string]bool // directories, and whether git takes them for a repository
	large   Large           // nil leaves out what no provider reads from outside
	unread  error           // why large could not bring some of them
}

// into is the folder below root, into which names are to come.
func into(root *contain.Root, names []string) *folder {
	f := &folder{root: root, brought: map[string]bool{}, judged: map[string]bool{}}
	for _, name := range names {
		for p := folded(path.Clean(name)); p != "." && !f.brought[p]; p = path.Dir(p) {
			f.brought[p] = true
		}
	}
	return f
}

// reserves reports whether git would take a name for a repository's own: one that is
// called so, or lies in a directory that with what is copied has the form of a
// repository. The config in there would say what runs when somebody types git status.
// One copy can bring a part of it and a later one the rest, so what lies there already
// counts as well.
func (f *folder) reserves(name string) bool {
	if mount.Reserved(name) {
		return true
	}
	for dir := path.Clean(name); dir != "."; {
		if dir = path.Dir(dir); f.repository(dir) {
			return true
		}
	}
	return false
}

func (f *folder) repository(dir string) bool {
	is, known := f.judged[dir]
	if !known {
		is = mount.Bare(func(name string) bool { return f.holds(path.Join(dir, name)) })
		f.judged[dir] = is
	}
	return is
}

// holds reports whether something is at p, or may be when all is copied.
func (f *folder) holds(p string) bool {
	if f.brought[folded(p)] {
		return true
	}
	if f.root == nil {
		return false
	}
	_, err := f.root.Stat(p) // behind a link nothing is written
	return err == nil
}

// folded is a name as a file system has it that does not tell case.
func folded(name string) string { return strings.ToLower(strings.ToUpper(name)) }

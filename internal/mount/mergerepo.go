package mount

import "path"

// broughtBy are the paths that a change writes, and the directories above them.
func broughtBy(steps []*step) map[string]bool {
	all := map[string]bool{}
	for _, s := range steps {
		if s.theirs == nil {
			continue
		}
		for p := s.path; p != "." && !all[p]; p = path.Dir(p) {
			all[p] = true
		}
	}
	return all
}

// inRepository reports whether a directory above p, below the top, is a repository of
// its own, or becomes one by the change. What lies in one is not this tree's. And git
// takes any directory with the right names in it for a repository: its config would
// say what runs when somebody types git status in there.
func (m *merger) inRepository(p string) bool {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if m.holds(dir+"/.git") || Bare(func(name string) bool { return m.holds(dir + "/" + name) }) {
			return true
		}
	}
	return false
}

// Bare reports whether git would take a directory that holds these names, and is not
// called .git, for a repository.
func Bare(holds func(name string) bool) bool {
	return holds("HEAD") && (holds("objects") && holds("refs") || holds("commondir"))
}

// holds reports whether something is at p, or may be after the merge.
func (m *merger) holds(p string) bool {
	if m.brought[p] {
		return true
	}
	n, err := m.tree.open(p)
	if n.file != nil {
		n.file.Close()
	}
	return err != nil || n.kind != absent && n.kind != behindLink
}

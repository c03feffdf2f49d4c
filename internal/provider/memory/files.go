package memory

import (
	"strings"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// tree is the file system of one machine: a read-only root, the declared
// mounts, and what the provider makes for the workload.
//
// The methods of this file are the workload's view: they follow symbolic
// links, obey permission bits and may change only what lies in a read-write
// mount, the output tree, the home directory or /tmp. trusted.go has the
// provider's view.
//
// Concurrency: every method locks the tree for its whole length, so nobody
// sees a half of any change.
type tree struct {
	mounts []sandbox.Mount // immutable
	limit  int64           // bytes; immutable

	mu   sync.Mutex
	root *node // nil once erased
	used int64
}

// writable are the roots that the workload may change beside its mounts. The
// control root is the provider's.
var writable = []string{sandbox.OutputPath, sandbox.HomePath, "/tmp"}

// newTree makes the root with every program, every provider-made directory and
// every mount point. What it makes is not charged to the instance.
func newTree(mounts []sandbox.Mount, limit int64, programs []string) *tree {
	t := &tree{mounts: mounts, limit: limit, root: newDirectory(0o755)}
	for _, path := range []string{"/bin", "/usr", "/dev", "/proc", "/run", "/sys", "/tmp", sandbox.HomePath, sandbox.ControlRoot, sandbox.OutputPath} {
		t.makeAll(path)
	}
	for _, name := range programs {
		t.makeAll("/bin").kids[name] = &node{mode: 0o755, data: []byte(programMagic + name)}
	}
	t.makeAll("/usr").kids["bin"] = &node{kind: symlink, mode: 0o777, target: "/bin"}
	t.makeAll("/dev").kids["null"] = &node{kind: device, mode: 0o666}
	for _, m := range mounts {
		t.makeAll(m.MountPath)
	}
	return t
}

// makeAll returns the directory at a clean path and makes what is missing. It
// is for building a tree that nobody uses yet.
func (t *tree) makeAll(path string) *node {
	at := t.root
	for name := range strings.SplitSeq(path[1:], "/") {
		if at.kids[name] == nil {
			at.kids[name] = newDirectory(0o755)
		}
		at = at.kids[name]
	}
	return at
}

// place is where a path led: the directory that holds the last name, the node
// there or nil, and the physical path without any link.
type place struct {
	parent *node
	name   string
	node   *node
	path   string
}

// maxLinks is how many symbolic links one resolution follows; Linux's bound.
const maxLinks = 40

// find resolves an absolute path as the workload does. The last name is
// followed if follow is set. A missing last name is not an error; place.node
// is then nil.
func (t *tree) find(path string, follow bool) (place, error) {
	if len(path) > sandbox.MaxPathBytes {
		return place{}, errNameTooLong
	}
	type step struct {
		name string
		node *node
	}
	stack := []step{{"", t.root}}
	rest := strings.Split(path, "/")
	links := 0
	here := func() string {
		s := ""
		for _, st := range stack[1:] {
			s += "/" + st.name
		}
		return s
	}
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		at := stack[len(stack)-1].node
		if at.kind != directory {
			return place{}, errNotDirectory
		}
		switch {
		case name == "" || name == ".":
			continue
		case name == "..":
			if len(stack) > 1 {
				stack = stack[:len(stack)-1]
			}
			continue
		case len(name) > sandbox.MaxNameBytes:
			return place{}, errNameTooLong
		case at.mode&0o100 == 0:
			return place{}, errDenied
		}
		last := true
		for _, r := range rest {
			last = last && r == ""
		}
		kid := at.kids[name]
		if kid == nil {
			if !last {
				return place{}, errNotFound
			}
			return place{at, name, nil, here() + "/" + name}, nil
		}
		if kid.kind == symlink && (follow || !last) {
			if links++; links > maxLinks {
				return place{}, errLoop
			}
			if strings.HasPrefix(kid.target, "/") {
				stack = stack[:1]
			}
			rest = append(strings.Split(kid.target, "/"), rest...)
			if len(rest) > sandbox.MaxPathBytes {
				return place{}, errNameTooLong
			}
			continue
		}
		stack = append(stack, step{name, kid})
	}
	top := stack[len(stack)-1]
	p := place{name: top.name, node: top.node, path: here()}
	if len(stack) > 1 {
		p.parent = stack[len(stack)-2].node
	} else {
		p.path = "/"
	}
	return p, nil
}

// mayWrite says whether the workload may change what lies at a physical path.
func (t *tree) mayWrite(path string) bool {
	if m, ok := sandbox.OwningMount(t.mounts, path); ok {
		return m.Access == sandbox.AccessReadWrite
	}
	for _, root := range writable {
		if sandbox.Within(path, root) {
			return true
		}
	}
	return false
}

// fixed says whether path is a mount point or a directory of the provider,
// which nobody can remove, or lies above one.
func (t *tree) fixed(path string) bool {
	for _, m := range t.mounts {
		if sandbox.Within(m.MountPath, path) {
			return true
		}
	}
	for _, root := range writable {
		if sandbox.Within(root, path) {
			return true
		}
	}
	return false
}

// charge adds n bytes to what is used, or refuses. n may be negative.
func (t *tree) charge(n int64) error {
	if n > 0 && t.used+n > t.limit {
		return errNoSpace
	}
	t.used += n
	return nil
}

// insert puts a node at a place that find returned, as the workload.
func (t *tree) insert(p place, n *node) error {
	switch {
	case !t.mayWrite(p.path):
		return errReadOnly
	case p.node != nil:
		return errExists
	case p.parent.mode&0o200 == 0:
		return errDenied
	}
	if err := t.charge(n.size() + int64(len(p.name))); err != nil {
		return err
	}
	p.parent.kids[p.name] = n
	return nil
}

// add makes a new node at path.
func (t *tree) add(path string, n *node) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(path, false)
	if err != nil {
		return err
	}
	return t.insert(p, n)
}

// addAll makes a directory and its missing parents.
func (t *tree) addAll(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	made := ""
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		made += "/" + name
		p, err := t.find(made, true)
		if err != nil {
			return err
		}
		if p.node == nil {
			if err := t.insert(p, newDirectory(0o755)); err != nil {
				return err
			}
		} else if p.node.kind != directory {
			return errExists
		}
	}
	return nil
}

// lookup returns a copy of the node at path without its children and its
// physical path; data is shared, and safe to read.
func (t *tree) lookup(path string, follow bool) (node, string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(path, follow)
	if err != nil {
		return node{}, "", err
	}
	if p.node == nil {
		return node{}, "", errNotFound
	}
	n := *p.node
	n.kids = nil
	return n, p.path, nil
}

// list returns the names in the directory at path.
func (t *tree) list(path string) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(path, true)
	switch {
	case err != nil:
		return nil, err
	case p.node == nil:
		return nil, errNotFound
	case p.node.kind != directory:
		return nil, errNotDirectory
	case p.node.mode&0o400 == 0:
		return nil, errDenied
	}
	return p.node.names(), nil
}

// remove unlinks path; a directory only if recursive.
func (t *tree) remove(path string, recursive bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(path, false)
	switch {
	case err != nil:
		return err
	case p.node == nil:
		return errNotFound
	case t.fixed(p.path):
		return errBusy
	case p.node.kind == directory && !recursive:
		return errIsDirectory
	case !t.mayWrite(p.path):
		return errReadOnly
	case p.parent.mode&0o200 == 0:
		return errDenied
	}
	delete(p.parent.kids, p.name)
	return t.charge(-p.node.size() - int64(len(p.name)))
}

// rename moves from over to, replacing a file.
func (t *tree) rename(from, to string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	src, err := t.find(from, false)
	if err != nil {
		return err
	}
	dst, err := t.find(to, false)
	switch {
	case err != nil:
		return err
	case src.node == nil:
		return errNotFound
	case t.fixed(src.path) || t.fixed(dst.path):
		return errBusy
	case !t.mayWrite(src.path) || !t.mayWrite(dst.path):
		return errReadOnly
	case src.parent.mode&0o200 == 0 || dst.parent.mode&0o200 == 0:
		return errDenied
	case sandbox.Within(dst.path, src.path):
		if dst.path == src.path {
			return nil
		}
		return errInvalid
	case dst.node != nil && dst.node.kind == directory:
		return errIsDirectory
	}
	freed := int64(0)
	if dst.node != nil {
		freed = dst.node.size() + int64(len(dst.name))
	}
	// A longer name is the only thing that can cost more than before.
	if err := t.charge(int64(len(dst.name)-len(src.name)) - freed); err != nil {
		return err
	}
	delete(src.parent.kids, src.name)
	dst.parent.kids[dst.name] = src.node
	return nil
}

// chmod sets the permission bits of what path leads to.
func (t *tree) chmod(path string, mode uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(path, true)
	switch {
	case err != nil:
		return err
	case p.node == nil:
		return errNotFound
	case !t.mayWrite(p.path):
		return errReadOnly
	}
	p.node.mode = mode
	return nil
}

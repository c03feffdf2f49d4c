package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"sort"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// This file is the provider's own view of a tree. It never follows a symbolic
// link and never leaves the mount that a root belongs to: a link on the way,
// the last name included, is refused as outside_root, and so is a name that a
// nested mount covers. The whole resolution and the use of what it found
// happen under one lock, so there is no moment in which to swap anything.

// refusal is why the provider's view did not give a file.
type refusal string

func (r refusal) Error() string { return string(r) }

const (
	refusedOutside      refusal = sandbox.ReasonOutsideRoot
	refusedNotFound     refusal = sandbox.ReasonNotFound
	refusedNotRegular   refusal = sandbox.ReasonNotRegular
	refusedNotDirectory refusal = sandbox.ReasonNotDirectory
	refusedTooLarge     refusal = refusal(sandbox.RefusedTooLarge)
	refusedTooMany      refusal = sandbox.ReasonTooManyEntries
)

// territory returns the root that owns path: the deepest mount, or the output
// tree, or "".
func (t *tree) territory(path string) string {
	if m, ok := sandbox.OwningMount(t.mounts, path); ok {
		return m.MountPath
	}
	if sandbox.Within(path, sandbox.OutputPath) {
		return sandbox.OutputPath
	}
	return ""
}

// descend walks to a clean path without following any link. If make is set,
// missing directories are made and charged.
func (t *tree) descend(path string, make bool) (*node, error) {
	at := t.root
	if path == "" {
		return at, nil
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		kid := at.kids[name]
		if kid == nil && make {
			if err := t.charge(nodeBytes + int64(len(name))); err != nil {
				return nil, err
			}
			kid = newDirectory(0o755)
			at.kids[name] = kid
		}
		switch {
		case kid == nil:
			return nil, refusedNotFound
		case kid.kind == symlink:
			return nil, refusedOutside
		case kid.kind != directory:
			return nil, refusedNotDirectory
		}
		at = kid
	}
	return at, nil
}

func splitPath(path string) (parent, name string) {
	cut := strings.LastIndexByte(path, '/')
	return path[:cut], path[cut+1:]
}

// read returns a copy of the regular file at path, which must belong to the
// territory of root.
func (t *tree) read(path, root string, maximum int64) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	owner := t.territory(root)
	if owner == "" || !sandbox.Within(path, root) || path == root || t.territory(path) != owner {
		return nil, refusedOutside
	}
	parent, name := splitPath(path)
	dir, err := t.descend(parent, false)
	if err == refusedNotDirectory { // a file where the path wants a directory: so there is no such file
		err = refusedNotFound
	}
	if err != nil {
		return nil, err
	}
	switch n := dir.kids[name]; {
	case n == nil:
		return nil, refusedNotFound
	case n.kind == symlink:
		return nil, refusedOutside
	case n.kind != regular:
		return nil, refusedNotRegular
	case int64(len(n.data)) > maximum:
		return nil, refusedTooLarge
	default:
		return append([]byte{}, n.data...), nil
	}
}

// put places n at path, replacing a file, making missing parents. It returns
// the node that it replaced, for an undo.
func (t *tree) put(path string, n *node) (replaced *node, err error) {
	parent, name := splitPath(path)
	dir, err := t.descend(parent, true)
	if err != nil {
		return nil, err
	}
	old := dir.kids[name]
	cost := n.size() + int64(len(name))
	if old != nil {
		if why := misplaced(old); why != "" {
			return nil, why
		}
		cost -= old.size() + int64(len(name))
	}
	if err := t.charge(cost); err != nil {
		return nil, err
	}
	dir.kids[name] = n
	return old, nil
}

// misplaced says why n cannot be read or replaced as a regular file, or "".
func misplaced(n *node) refusal {
	switch n.kind {
	case regular:
		return ""
	case symlink:
		return refusedOutside
	}
	return refusedNotRegular
}

// leaf is one entry of a walk: its path below the root, and the node without
// children. data is shared, and safe to read.
type leaf struct {
	path string
	node node
}

// leaves names everything below root that is not a directory, in ascending
// order of path bytes, at most maximum entries for which want holds. It does
// not enter a nested mount: that is another territory.
func (t *tree) leaves(root string, maximum int64, want func(kind) bool) ([]leaf, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	owner := t.territory(root)
	if owner == "" {
		return nil, refusedOutside
	}
	dir, err := t.descend(root, false)
	if err != nil {
		return nil, err
	}
	found := []leaf{}
	var walk func(dir *node, path string) error
	walk = func(dir *node, path string) error {
		for name, kid := range dir.kids {
			if kid.kind == directory {
				if t.territory(path+"/"+name) != owner {
					continue
				}
				if err := walk(kid, path+"/"+name); err != nil {
					return err
				}
				continue
			}
			if !want(kid.kind) {
				continue
			}
			if int64(len(found)) >= maximum {
				return refusedTooMany
			}
			n := *kid
			found = append(found, leaf{(path + "/" + name)[len(root)+1:], n})
		}
		return nil
	}
	if err := walk(dir, root); err != nil {
		return nil, err
	}
	sort.Slice(found, func(i, j int) bool { return found[i].path < found[j].path })
	return found, nil
}

func digestOf(data []byte) sandbox.Digest {
	sum := sha256.Sum256(data)
	return sandbox.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

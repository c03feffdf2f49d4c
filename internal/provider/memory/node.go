package memory

import "sort"

// kind is what a node of the file tree is.
type kind uint8

const (
	regular kind = iota
	directory
	symlink
	fifo
	socket
	device
)

// node is one file of a tree. All fields are guarded by the tree's mutex. data
// only ever grows by append or is replaced whole, so a slice of it that a
// reader was given stays as it was.
type node struct {
	kind   kind
	mode   uint32 // permission bits
	data   []byte
	target string // symlink
	kids   map[string]*node
}

func newDirectory(mode uint32) *node {
	return &node{kind: directory, mode: mode, kids: map[string]*node{}}
}

// names returns the names in a directory in ascending byte order.
func (n *node) names() []string {
	names := make([]string, 0, len(n.kids))
	for name := range n.kids {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// clone copies a node and all below it; no byte is shared.
func (n *node) clone() *node {
	c := &node{kind: n.kind, mode: n.mode, target: n.target}
	if n.data != nil {
		c.data = append([]byte{}, n.data...)
	}
	if n.kids != nil {
		c.kids = make(map[string]*node, len(n.kids))
		for name, kid := range n.kids {
			c.kids[name] = kid.clone()
		}
	}
	return c
}

// erase overwrites every byte below n, spare capacity included, and unlinks
// all, so that not even somebody who kept the node finds anything.
func (n *node) erase() {
	clear(n.data[:cap(n.data)])
	n.data, n.target = nil, ""
	for name, kid := range n.kids {
		kid.erase()
		delete(n.kids, name)
	}
}

// size is what n and all below it count against the disk limit.
func (n *node) size() int64 {
	total := nodeBytes + int64(len(n.data)) + int64(len(n.target))
	for name, kid := range n.kids {
		total += int64(len(name)) + kid.size()
	}
	return total
}

// nodeBytes is what one node costs beside its content, so that a workload that
// makes nothing but empty files meets the disk limit too.
const nodeBytes = 256

// errno is an error of the tree in the words of a real system.
type errno string

func (e errno) Error() string { return string(e) }

const (
	errNotFound     errno = "No such file or directory"
	errNotDirectory errno = "Not a directory"
	errIsDirectory  errno = "Is a directory"
	errExists       errno = "File exists"
	errNotEmpty     errno = "Directory not empty"
	errReadOnly     errno = "Read-only file system"
	errDenied       errno = "Permission denied"
	errBusy         errno = "Device or resource busy"
	errLoop         errno = "Too many levels of symbolic links"
	errNoSpace      errno = "No space left on device"
	errNameTooLong  errno = "File name too long"
	errNoDevice     errno = "No such device or address"
	errInvalid      errno = "Invalid argument"
)

package memory

import "io"

// openMode is how the workload opens a file.
type openMode uint8

const (
	forRead openMode = iota
	forWrite
	forAppend
)

// errBlocks says that the open would wait for a peer: a FIFO has none here.
const errBlocks errno = "would block"

// open opens what path leads to. A file that is not there is made, unless it
// is to be read. Reading gives the file as it was when it was opened.
func (t *tree) open(path string, mode openMode) (io.Reader, io.Writer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.find(path, true)
	if err != nil {
		return nil, nil, err
	}
	if p.node == nil {
		if mode == forRead {
			return nil, nil, errNotFound
		}
		n := &node{mode: 0o644}
		if err := t.insert(p, n); err != nil {
			return nil, nil, err
		}
		return nil, &writeHandle{t, n}, nil
	}
	need := uint32(0o200)
	if mode == forRead {
		need = 0o400
	}
	switch n := p.node; {
	case n.kind == directory && mode == forRead:
		return &readHandle{err: errIsDirectory}, nil, nil
	case n.kind == directory:
		return nil, nil, errIsDirectory
	case n.mode&need == 0:
		return nil, nil, errDenied
	case n.kind == device && mode == forRead:
		return &readHandle{err: io.EOF}, nil, nil
	case n.kind == device:
		return nil, io.Discard, nil
	case n.kind == fifo:
		return nil, nil, errBlocks
	case n.kind == socket:
		return nil, nil, errNoDevice
	case mode == forRead:
		return &readHandle{data: n.data, err: io.EOF}, nil, nil
	case !t.mayWrite(p.path):
		return nil, nil, errReadOnly
	case mode == forWrite:
		if err := t.charge(-int64(len(n.data))); err != nil {
			return nil, nil, err
		}
		n.data = nil
	}
	return nil, &writeHandle{t, p.node}, nil
}

// readHandle is a file open for reading.
type readHandle struct {
	data []byte
	err  error // what follows data
}

func (h *readHandle) Read(b []byte) (int, error) {
	if len(h.data) == 0 {
		return 0, h.err
	}
	n := copy(b, h.data)
	h.data = h.data[n:]
	return n, nil
}

// writeHandle is a file open for writing; it appends. What is written to a
// file that was unlinked still counts against the disk limit, until the
// machine goes.
type writeHandle struct {
	tree *tree
	node *node
}

func (h *writeHandle) Write(b []byte) (int, error) {
	h.tree.mu.Lock()
	defer h.tree.mu.Unlock()
	n := len(b)
	if room := h.tree.limit - h.tree.used; int64(n) > room {
		n = int(max(room, 0))
	}
	h.node.data = append(h.node.data, b[:n]...)
	h.tree.used += int64(n)
	if n < len(b) {
		return n, errNoSpace
	}
	return n, nil
}

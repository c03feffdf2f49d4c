package wire

import (
	"errors"

	"github.com/checkfu/checkfu/sandbox"
)

// Entries writes a listing as item frames, each a DirPage of at most 1,000
// entries and 1 MiB. An empty listing is no frame.
// Errors: those of Encode and Write.
func (w *Writer) Entries(entries []sandbox.DirEntry) error {
	return pages(w, entries, func(part []sandbox.DirEntry) Message { return DirPage{part} })
}

// Leaves writes a project listing as item frames, each a ProjectPage.
func (w *Writer) Leaves(leaves []sandbox.Leaf) error {
	return pages(w, leaves, func(part []sandbox.Leaf) Message { return ProjectPage{part} })
}

// pages cuts list. Names may be long, and longer when escaped, so that a page's
// size is known only once it is encoded: one that is too long is halved.
func pages[T any](w *Writer, list []T, page func([]T) Message) error {
	for n := MaxPageEntries; len(list) > 0; {
		n = min(n, len(list))
		data, err := Encode(page(list[:n]))
		if n > 1 && (len(data) > MaxFrameBytes || errors.Is(err, &Error{Tag: TagPayloadTooLarge})) {
			n /= 2 // and stays there: a neighbour's name is as long
			continue
		}
		if err == nil {
			err = w.Write(Frame{TypeItem, data})
		}
		if err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

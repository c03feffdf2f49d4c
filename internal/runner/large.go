package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"sync/atomic"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/sandbox"
)

// Large has a program in the machine write a file to w that is larger than any that a
// provider reads from outside. What it writes is believed no further than the listing
// goes: by size and digest. w may be written to after it has returned with an error.
type Large func(ctx context.Context, path string, w io.Writer) error

// errOther is the cause when a machine wrote other bytes than the listing named.
var errOther = errors.New("not the bytes that the listing named")

// checked has the machine write the file of a leaf below root to w.
// Errors: those of read and of w; errOther, after which w may have had a part.
func (read Large) checked(ctx context.Context, root string, l sandbox.Leaf, w io.Writer) error {
	to := &exactly{w: w, left: l.Size, sum: sha256.New()}
	err := read(ctx, path.Join(root, l.Path), to)
	if failed := to.failed.Load(); failed != nil { // however the program ended then
		return *failed
	}
	if err == nil && (to.left != 0 || "sha256:"+hex.EncodeToString(to.sum.Sum(nil)) != string(l.Digest)) {
		err = errOther
	}
	return err
}

// exactly passes on as many bytes as there are to be, and digests them.
type exactly struct {
	w      io.Writer
	left   int64
	sum    hash.Hash
	failed atomic.Pointer[error]
}

// Write is io.Writer's.
func (e *exactly) Write(p []byte) (n int, err error) {
	if err = errOther; int64(len(p)) <= e.left {
		n, err = e.w.Write(p)
		e.left -= int64(n)
		e.sum.Write(p[:n])
	}
	if err != nil {
		e.failed.Store(&err)
	}
	return n, err
}

// large copies a leaf that no provider reads from outside to a name in the folder, or
// says why not. A machine that cannot write it keeps nobody from copying the rest: that
// is told once all is done.
func (s *session) large(ctx context.Context, root string, l sandbox.Leaf, to *folder, name string, mode os.FileMode) (string, error) {
	var unread error
	err := to.root.WriteFrom(name, mode, func(w io.Writer) error {
		unread = to.large.checked(ctx, root, l, w)
		return unread
	})
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, errOther):
		return refusedChanged, nil
	case unread != nil && ctx.Err() == nil:
		to.unread = errors.Join(to.unread, fmt.Errorf("%s: %w", text(l.Path), unread))
		return string(sandbox.RefusedTooLarge), nil
	}
	var refused contain.Refusal
	if errors.As(err, &refused) {
		return string(refused), err
	}
	return string(contain.ErrFailed), err
}

package snapshot

import (
	"context"
	"io"
	"os"
	"strconv"

	"github.com/checkfu/checkfu/internal/snapshot/tree"
	"github.com/checkfu/checkfu/sandbox"
)

// Source is what is captured. Nobody writes to it meanwhile: its machine is
// frozen or gone.
type Source struct {
	Form Form
	Path string // an image, or the root of a tree
	// Emptied are directories at the top of a tree of which nothing but
	// themselves is kept.
	Emptied []string
	// Live, if set, is the live checkpoint of the same moment, to be kept beside.
	Live *LiveSource
	// Taken, if set, is called once, when what follows needs the source no more
	// and others may write to it again; not called on an error.
	Taken func()
}

func (s Source) taken() {
	if s.Taken != nil {
		s.Taken()
	}
}

// Capture keeps src under a new id. Of ref the caller fills in everything but
// the id and the time of creation; its expiry is kept unchanged.
//
// Errors: ErrExpired (a deadline that is not in the future); tree.ErrRefused
// and its like; host errors, a full disk among them. Nothing is left of a
// snapshot that was not acknowledged.
func (s *Store) Capture(ctx context.Context, ref sandbox.Snapshot, mounts []sandbox.Mount, src Source) (sandbox.Snapshot, error) {
	const op = "capture"
	ref.CreatedAt = s.now()
	if err := alive(ref); err != nil {
		return sandbox.Snapshot{}, within(op, "", err)
	}
	st, err := s.stage(ctx, op)
	if err != nil {
		return sandbox.Snapshot{}, within(op, "", err)
	}
	ref.SnapshotID = st.id
	err = st.capture(ctx, &Manifest{Snapshot: ref, Mounts: mounts, Form: src.Form}, src)
	err = joined(err, st.close())
	if err != nil {
		return sandbox.Snapshot{}, within(op, string(ref.SnapshotID), err)
	}
	return ref, nil
}

// alive refuses what is past its deadline from the start.
func alive(ref sandbox.Snapshot) error {
	if !ref.CreatedAt.Before(ref.ExpiresAt) {
		return &Error{Kind: ErrExpired, Field: "expires_at", Expected: "after " + string(ref.CreatedAt), Got: string(ref.ExpiresAt)}
	}
	return nil
}

func (st *stage) capture(ctx context.Context, m *Manifest, src Source) error {
	if m.Mounts == nil {
		m.Mounts = []sandbox.Mount{}
	}
	if err := st.takeLive(src.Live); err != nil {
		return err
	}
	to, err := st.content()
	if err != nil {
		return err
	}
	defer to.Close()
	switch src.Form {
	case FormTree:
		m.ContentBytes, m.Chunks, err = takeTree(ctx, src, to)
	case FormImage:
		m.ContentBytes, m.Chunks, err = st.takeImage(ctx, src, to)
	default:
		err = &Error{Kind: ErrUnsupported, Field: "form", Expected: string(FormImage) + " or " + string(FormTree), Got: strconv.Quote(string(src.Form))}
	}
	if err != nil {
		return err
	}
	m.ChunkBytes = chunkBytes(m.ContentBytes)
	if src.Live != nil {
		if m.Live, err = st.describeLive(ctx, src.Live.Identity); err != nil {
			return err
		}
	}
	if err := m.check(); err != nil {
		return err
	}
	return st.publish(to, m)
}

func takeTree(ctx context.Context, src Source, to *os.File) (int64, []Chunk, error) {
	if _, err := tree.Write(ctx, to, src.Path, src.Emptied...); err != nil {
		return 0, nil, err
	}
	src.taken()
	size, err := to.Seek(0, io.SeekEnd)
	if err == nil {
		err = to.Sync() // what is not written out may look like a hole
	}
	if err != nil {
		return 0, nil, err
	}
	chunks, err := pass{from: to, size: size}.run(ctx)
	return size, chunks, err
}

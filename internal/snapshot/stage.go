package snapshot

import (
	"context"
	"errors"
	"os"

	"github.com/checkfu/checkfu/internal/lock"
	"github.com/checkfu/checkfu/sandbox"
)

// stage is a snapshot that is being made.
type stage struct {
	s    *Store
	op   string
	id   sandbox.SnapshotID
	dir  string
	held *os.File // the directory, locked: somebody is at work in it
	// How far it came: whole and in its place, acknowledged.
	renamed, done bool
}

// stage begins a snapshot of a new id.
func (s *Store) stage(ctx context.Context, op string) (*stage, error) {
	// A directory is there for a moment before it is locked; the store's lock
	// keeps a sweep out of that moment.
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	st := &stage{s: s, op: op, id: newID()}
	st.dir = s.path("staging", string(st.id))
	if err := os.Mkdir(st.dir, 0o700); err != nil {
		return nil, err
	}
	if st.held, err = os.Open(st.dir); err == nil {
		if err = lock.Wait(ctx, st.held, lock.Exclusive); err != nil {
			st.held.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(st.dir))
	}
	s.opt.Step(op + ": staged")
	return st, nil
}

// content makes the file for what is captured.
func (st *stage) content() (*os.File, error) {
	return os.OpenFile(st.dir+"/content", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// publish forces everything to the disk and then renames it into place. Without a
// content in hand, that is one which lies on the disk already.
func (st *stage) publish(content *os.File, m *Manifest) error {
	s := st.s
	s.opt.Step(st.op + ": content written")
	body, err := m.encode()
	if err != nil {
		return err
	}
	manifest, err := os.OpenFile(st.dir+"/manifest.json", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = manifest.Write(body)
	if err == nil {
		err = touch(st.held, s.opt.Now())
	}
	if err == nil {
		s.opt.Step(st.op + ": manifest written")
		files := []*os.File{manifest, st.held}
		if content != nil {
			files = append(files, content)
		}
		err = syncAll(files...)
	}
	if err = joined(err, manifest.Close()); err != nil {
		return err
	}
	s.opt.Step(st.op + ": synced")
	to := s.path("snapshots", string(st.id))
	if err := os.Rename(st.dir, to); err != nil {
		return err
	}
	st.renamed = true // from here on others find it
	s.opt.Step(st.op + ": renamed")
	if err := s.syncNames(); err != nil {
		return err
	}
	st.done = true
	s.opt.Step(st.op + ": published")
	return nil
}

// close ends the work, and removes what was not published.
func (st *stage) close() error {
	var err error
	switch {
	case st.done:
	case st.renamed: // somebody may have it open: it goes as it came, in one step
		if _, err = st.s.unpublish(st.id); err == nil {
			err = st.s.discard(st.id)
		}
	default:
		err = os.RemoveAll(st.dir)
	}
	return errors.Join(err, st.held.Close())
}

// syncAll forces files to the disk together, so that they wait for it once.
func syncAll(files ...*os.File) error {
	done := make(chan error, len(files))
	for _, f := range files {
		go func() { done <- f.Sync() }()
	}
	var err error
	for range files {
		err = joined(err, <-done)
	}
	return err
}

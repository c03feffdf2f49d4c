package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/checkfu/checkfu/internal/lock"
)

// stage is a directory below tmp in which one piece of work is made before it
// is published by rename. Its lock says that somebody is at work in it; one
// that nobody has locked was left by a crash and is swept.
type stage struct {
	store *Store
	dir   string
	held  *os.File
	added []v1.Hash         // blobs in dir, by the name of their digest
	note  map[string]string // annotations of the line that publish adds
}

func (s *Store) stage(ctx context.Context) (*stage, error) {
	// A directory exists for a moment before it is locked; store.lock keeps
	// the sweep out of that moment.
	unlock, err := s.lock(ctx, "store.lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir, err := os.MkdirTemp(s.path("tmp"), "work-")
	if err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err == nil {
		if err = lock.Wait(ctx, f, lock.Exclusive); err != nil {
			f.Close()
		}
	}
	if err != nil {
		os.Remove(dir)
		return nil, err
	}
	return &stage{store: s, dir: dir, held: f}, nil
}

// close removes whatever was not published.
func (st *stage) close() error {
	defer st.held.Close()
	return os.RemoveAll(st.dir)
}

// sweep removes work that nobody holds.
func (s *Store) sweep(ctx context.Context) error {
	dead, err := s.dead(ctx)
	if err != nil {
		return err
	}
	for _, f := range dead {
		if rerr := os.RemoveAll(f.Name()); err == nil {
			err = rerr
		}
		f.Close()
	}
	return err
}

// dead locks every abandoned directory below tmp, so that two sweeps do not
// meet, and returns them for removal outside store.lock.
func (s *Store) dead(ctx context.Context) ([]*os.File, error) {
	unlock, err := s.lock(ctx, "store.lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	names, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		return nil, err
	}
	var dead []*os.File
	for _, n := range names {
		f, err := os.Open(s.path("tmp", n.Name()))
		if err != nil {
			continue // finished meanwhile
		}
		if got, _ := lock.Try(f, lock.Exclusive); got {
			dead = append(dead, f)
		} else {
			f.Close()
		}
	}
	return dead, nil
}

// blob copies at most limit bytes of r into the stage and names the file by
// its digest. The file is on disk when blob returns: a blob that has its
// digest for a name is never read back to see whether it is whole.
func (st *stage) blob(ctx context.Context, r io.Reader, limit int64, progress func(int)) (v1.Hash, int64, error) {
	f, err := os.CreateTemp(st.dir, "part-")
	if err != nil {
		return v1.Hash{}, 0, err
	}
	defer f.Close()
	h := sha256.New()
	var size int64
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return v1.Hash{}, 0, err
		}
		n, rerr := r.Read(buf)
		if size += int64(n); size > limit {
			return v1.Hash{}, 0, &Error{Kind: ErrTooLarge, Reason: "blob", Expected: "at most " + strconv.FormatInt(limit, 10) + " bytes"}
		}
		h.Write(buf[:n])
		if _, err := f.Write(buf[:n]); err != nil {
			return v1.Hash{}, 0, err
		}
		if progress != nil {
			progress(n)
		}
		if rerr == io.EOF {
			break
		}
		if rerr != nil {
			return v1.Hash{}, 0, rerr
		}
	}
	if err := f.Sync(); err != nil {
		return v1.Hash{}, 0, err
	}
	digest := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
	if err := os.Rename(f.Name(), filepath.Join(st.dir, digest.Hex)); err != nil {
		return v1.Hash{}, 0, err
	}
	st.added = append(st.added, digest)
	return digest, size, nil
}

// publish moves the staged blobs into the store and adds line to the index.
// The caller holds import.lock. On error the store is as it was.
func (st *stage) publish(ctx context.Context, line v1.Descriptor) (err error) {
	s := st.store
	var moved []string
	defer func() {
		if err != nil {
			for _, p := range moved {
				os.Remove(p)
			}
		}
	}()
	for _, h := range st.added {
		to := s.blobPath(h)
		if _, err := os.Lstat(to); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Rename(filepath.Join(st.dir, h.Hex), to); err != nil {
			return err
		}
		moved = append(moved, to)
	}
	if err := syncDir(s.path("blobs", "sha256")); err != nil {
		return err
	}
	unlock, err := s.lock(ctx, "store.lock")
	if err != nil {
		return err
	}
	defer unlock()
	m, err := s.index()
	if err != nil {
		return err
	}
	// The line goes last: a bare name means the image brought in last.
	kept := m.Manifests[:0]
	for _, d := range m.Manifests {
		if d.Digest != line.Digest || d.Annotations[refAnnotation] != line.Annotations[refAnnotation] {
			kept = append(kept, d)
		}
	}
	maps.Copy(line.Annotations, st.note)
	m.Manifests = append(kept, line)
	return s.writeIndex(m)
}

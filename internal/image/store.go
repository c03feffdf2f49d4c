package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/lock"
)

// Store is one directory of images and unpacked roots.
type Store struct {
	dir string
	opt Options
}

const (
	layoutFile    = "oci-layout"
	layoutContent = `{"imageLayoutVersion":"1.0.0"}`
	indexFile     = "index.json"
	refAnnotation = "org.opencontainers.image.ref.name"
)

// Open makes the store directory if it is not there, and removes what crashed
// processes left half done. The directory is closed to everyone but its owner:
// unpacked trees keep setuid bits, which nothing on the host may run.
//
// Errors: host errors; ErrUnsupported if the directory is something else.
func Open(dir string, opt Options) (*Store, error) {
	s, err := open(dir, opt)
	return s, within("open", "", err)
}

func open(dir string, opt Options) (*Store, error) {
	if opt.MaxBytes <= 0 {
		opt.MaxBytes = DefaultMaxBytes
	}
	if opt.MaxEntries <= 0 {
		opt.MaxEntries = DefaultEntries
	}
	if opt.IDBase > 1<<32-1-MaxIDs {
		return nil, &Error{Kind: ErrUnsupported, Reason: "IDBase leaves no room for the guest's ids"}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: abs, opt: opt}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, err
	}
	names, err := os.ReadDir(abs)
	if err != nil {
		return nil, err
	}
	// Somebody's home directory given by mistake must not be closed or filled.
	if _, err := os.Lstat(s.path(layoutFile)); err != nil && len(names) > 0 && !begun(names) {
		return nil, &Error{Kind: ErrUnsupported, Path: abs, Reason: "not an image store", Expected: "an empty directory or " + layoutFile}
	}
	if err := os.Chmod(abs, 0o700); err != nil {
		return nil, err
	}
	for _, d := range []string{"blobs", "blobs/sha256", "roots", "tmp"} {
		if err := os.Mkdir(s.path(d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	// store.lock is only ever held for moments.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	unlock, err := s.lock(ctx, "store.lock")
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(s.path(layoutFile)); err != nil {
		if err := replace(s.path(layoutFile), []byte(layoutContent)); err != nil {
			unlock()
			return nil, err
		}
	}
	unlock()
	return s, s.sweep(ctx)
}

// begun reports whether names are those of a store that another process is
// just making.
func begun(names []os.DirEntry) bool {
	for _, n := range names {
		switch n.Name() {
		case "blobs", "roots", "tmp", "store.lock", "." + layoutFile:
		default:
			return false
		}
	}
	return true
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func (s *Store) blobPath(h v1.Hash) string { return s.path("blobs", "sha256", h.Hex) }

// lock takes one of the store's two locks: "store.lock" is held for moments,
// around the index; "import.lock" by whoever brings blobs in or takes them out.
// Who needs both takes import.lock first.
func (s *Store) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := lock.Open(ctx, s.path(name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, lock.Exclusive)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

func (s *Store) report(p Progress) {
	if s.opt.Progress != nil {
		s.opt.Progress(p)
	}
}

// index reads index.json; a store without images has none.
func (s *Store) index() (*v1.IndexManifest, error) {
	empty := &v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	b, err := readBounded(s.path(indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, empty); err != nil {
		return nil, &Error{Kind: ErrHostile, Path: s.path(indexFile), Reason: "not an index", Err: err}
	}
	return empty, nil
}

func (s *Store) writeIndex(m *v1.IndexManifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return replace(s.path(indexFile), append(b, '\n'))
}

// replace writes a file so that a crash leaves the old or the new content.
// The caller holds store.lock.
func replace(path string, content []byte) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func readBounded(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readDocument(f, path)
}

// readDocument reads all of r if it is no longer than a document may be.
func readDocument(r io.Reader, what string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxDocumentBytes+1))
	if err == nil && len(b) > MaxDocumentBytes {
		err = &Error{Kind: ErrTooLarge, Entry: what, Reason: "document", Expected: "at most 4 MiB"}
	}
	return b, err
}

// document reads a small blob of the store and checks its digest: a store on
// a failing disk must not give an image that nobody made.
func (s *Store) document(h v1.Hash) ([]byte, error) {
	b, err := readBounded(s.blobPath(h))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Kind: ErrNotFound, Entry: h.String(), Reason: "no such blob", Err: err}
	}
	if err != nil {
		return nil, err
	}
	return b, matches(b, h)
}

func digestOf(b []byte) v1.Hash {
	sum := sha256.Sum256(b)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

func matches(b []byte, want v1.Hash) error {
	if got := digestOf(b); got != want {
		return &Error{Kind: ErrDigestMismatch, Entry: want.String(), Expected: want.String(), Got: got.String()}
	}
	return nil
}

// load reads the image that one line of the index names.
func (s *Store) load(d v1.Descriptor) (*stored, error) {
	b, err := s.document(d.Digest)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(b)
	if err != nil {
		return nil, err
	}
	c, err := s.document(m.Config.Digest)
	if err != nil {
		return nil, err
	}
	one, err := describe(d.Annotations[refAnnotation], d.Digest, int64(len(b)), m, c)
	if err != nil {
		return nil, err
	}
	one.Derivation, err = derivation(d)
	return one, err
}

// platform is the only one that this host runs.
func platform() string { return "linux/" + runtime.GOARCH }

// List returns every image, in the order of their references.
func (s *Store) List(ctx context.Context) ([]Image, error) {
	all, err := s.all(ctx)
	if err != nil {
		return nil, within("list", "", err)
	}
	images := make([]Image, len(all))
	for i, one := range all {
		images[i] = one.Image
	}
	sortByReference(images)
	return images, nil
}

// all loads every image in the order they were brought in.
func (s *Store) all(ctx context.Context) ([]*stored, error) {
	m, err := s.index()
	if err != nil {
		return nil, err
	}
	var all []*stored
	for _, d := range m.Manifests {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		one, err := s.load(d)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

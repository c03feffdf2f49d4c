package snapshot

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/lock"
	"github.com/checkfu/checkfu/sandbox"
)

// storeVersion is the content of the file that names the form of a store.
const storeVersion = "checkfu.snapshots.v1\n"

// Options of a Store. The zero value is usable.
type Options struct {
	// Now is the clock of timestamps and expiry; nil is time.Now.
	Now func() time.Time
	// Step, if set, is called with the name of each step just after it was
	// taken. Crash tests die there.
	Step func(step string)
}

// Store is one directory of snapshots.
type Store struct {
	dir string
	opt Options

	// cannotShare: the filesystem was seen not to share blocks.
	cannotShare atomic.Bool
	syncing     joint         // of the names of snapshots
	still       time.Duration // stillFor, except in a test
}

// Open makes the store's directory if it is not there, closed to everyone but
// its owner, and removes what crashed processes left half done.
// Errors: host errors; ErrUnsupported if the directory is something else, or of
// another version.
func Open(dir string, opt Options) (*Store, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Step == nil {
		opt.Step = func(string) {}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, within("open", "", err)
	}
	s := &Store{dir: abs, opt: opt, still: stillFor}
	// The lock is only ever held for moments.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.make(ctx); err != nil {
		return nil, within("open", "", err)
	}
	return s, within("open", "", s.clean(ctx))
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// make makes what a store consists of. The version comes last and whole: a
// directory without it is one that was begun, if nothing else is in it.
func (s *Store) make(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	have, err := os.ReadFile(s.path("version"))
	if err == nil {
		if string(have) != storeVersion {
			return &Error{Kind: ErrUnsupported, Field: "version", Expected: storeVersion[:len(storeVersion)-1], Got: string(have[:min(len(have), 64)])}
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	names, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, n := range names { // somebody's directory, given by mistake
		switch n.Name() {
		case "lock", "snapshots", "staging", "trash", "version.new":
		default:
			return &Error{Kind: ErrUnsupported, Field: "directory", Expected: "an empty one, or a store of snapshots", Got: n.Name()}
		}
	}
	if err := os.Chmod(s.dir, 0o700); err != nil {
		return err
	}
	for _, d := range []string{"snapshots", "staging", "trash"} {
		if err := os.Mkdir(s.path(d), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := writeSynced(s.path("version.new"), []byte(storeVersion)); err != nil {
		return err
	}
	if err := os.Rename(s.path("version.new"), s.path("version")); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// writeSynced writes a file whose bytes are on the disk when it returns.
func writeSynced(path string, body []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncNames forces to the disk which snapshots there are.
func (s *Store) syncNames() error {
	return s.syncing.do(func() error { return syncDir(s.path("snapshots")) })
}

// syncDir forces the names of a directory to the disk.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// newID returns 32 hex digits that name nothing yet.
func newID() sandbox.SnapshotID {
	var b [16]byte
	rand.Read(b[:]) // never fails: the runtime ends the process instead
	return sandbox.SnapshotID(hex.EncodeToString(b[:]))
}

// validID reports whether newID can have made id; any other id names nothing
// here and never reaches a path.
func validID(id sandbox.SnapshotID) bool {
	if len(id) != 32 {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// now is the store's clock as the contract writes it.
func (s *Store) now() sandbox.Timestamp { return sandbox.At(s.opt.Now()) }

// lock takes the store's own lock.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(s.path("lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock.Wait(ctx, f, lock.Exclusive); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

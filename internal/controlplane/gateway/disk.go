package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// recordSchema names the form of a file of the store.
const recordSchema = "checkfu.model-lease.v1"

// maxRecordBytes bounds one; one of ours is below it by its fields' bounds.
const maxRecordBytes = 1 << 20

// record is one lease on the disk. A lease that has ended has no digest.
type record struct {
	Schema      string            `json:"schema"`
	RunID       string            `json:"run_id"`
	LeaseID     string            `json:"lease_id"`
	LeaseEpoch  int64             `json:"lease_epoch"`
	ExpiresAt   sandbox.Timestamp `json:"expires_at"`
	Restricted  bool              `json:"restricted,omitempty"` // Models is a list, which may be empty
	Models      []string          `json:"models,omitempty"`
	Ceiling     Ceiling           `json:"ceiling,omitzero"`
	TokenDigest string            `json:"token_digest,omitempty"`
	Used        Usage             `json:"used,omitzero"`
}

func recordOf(l Lease, digest string) record {
	return record{
		Schema: recordSchema, RunID: l.RunID, LeaseID: l.LeaseID, LeaseEpoch: l.LeaseEpoch, ExpiresAt: sandbox.At(l.ExpiresAt),
		Restricted: l.Models != nil, Models: slices.Clone(l.Models), Ceiling: l.Ceiling, TokenDigest: digest,
	}
}

// lease is what the record says, but for its digest and counts.
func (r record) lease() Lease {
	end, _ := r.ExpiresAt.Time() // a record is held to it before it is one
	l := Lease{RunID: r.RunID, LeaseID: r.LeaseID, LeaseEpoch: r.LeaseEpoch, ExpiresAt: end, Ceiling: r.Ceiling}
	if r.Restricted {
		l.Models = append([]string{}, r.Models...)
	}
	return l
}

// parseRecord reads one strictly.
// Errors: *canonical.Error, *sandbox.Invalid.
func parseRecord(data []byte) (record, error) {
	var r record
	if err := canonical.Decode(data, &r); err != nil {
		return record{}, err
	}
	if r.Schema != recordSchema {
		return record{}, &sandbox.Invalid{Field: "schema", Expected: recordSchema, Got: r.Schema[:min(len(r.Schema), 100)]}
	}
	if !r.ExpiresAt.Valid() {
		return record{}, &sandbox.Invalid{Field: "expires_at", Expected: "a timestamp", Got: "something else"}
	}
	if r.TokenDigest != "" && !sandbox.Digest(r.TokenDigest).Valid() {
		return record{}, &sandbox.Invalid{Field: "token_digest", Expected: "sha256: and 64 hex digits, or none", Got: "something else"}
	}
	if !r.Restricted && r.Models != nil {
		return record{}, &sandbox.Invalid{Field: "models", Expected: "none where not restricted", Got: strconv.Itoa(len(r.Models))}
	}
	u := r.Used
	if min(u.Requests, u.InputTokens, u.CachedTokens, u.OutputTokens, u.Estimated, u.UpBytes, u.DownBytes) < 0 {
		return record{}, &sandbox.Invalid{Field: "used", Expected: "no negative number", Got: "one"}
	}
	return r, r.lease().validate()
}

// StoreError says which file or directory of a store failed.
type StoreError struct {
	Path string
	Err  error
}

// Error is one line.
func (e *StoreError) Error() string { return "lease store " + e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// ErrHeld says that another process has the store.
var ErrHeld = errors.New("another gateway holds it")

const (
	lockName   = "lock"
	fileSuffix = ".json"
	newName    = "new" // the one file that is being written; disk is held meanwhile
)

// lockDir makes the directory where it is missing and holds it until the file is
// closed.
func lockDir(dir string) (*os.File, error) {
	fail := func(err error) (*os.File, error) { return nil, &StoreError{dir, err} }
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fail(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fail(err)
	}
	// Who could write here could grant itself what it likes.
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fail(errors.New("expected a directory of user " + strconv.Itoa(os.Geteuid()) + " that nobody else writes"))
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fail(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrHeld
		}
		return fail(err)
	}
	return f, nil
}

// fileOf is where a lease lies: ids are no file names.
func fileOf(dir, leaseID string) string {
	sum := sha256.Sum256([]byte(leaseID))
	return filepath.Join(dir, hex.EncodeToString(sum[:16])+fileSuffix)
}

// readAll reads every record.
func readAll(dir string) ([]record, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, &StoreError{dir, err}
	}
	var all []record
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), fileSuffix) {
			continue // the lock; a file that never got its name, which nobody was told of
		}
		path := filepath.Join(dir, e.Name())
		r, err := readFile(path)
		if err == nil && fileOf(dir, r.LeaseID) != path {
			err = errors.New("expected the lease of its name, got " + r.LeaseID)
		}
		if err != nil {
			return nil, &StoreError{path, err}
		}
		if all = append(all, r); len(all) > MaxLeases {
			return nil, &StoreError{dir, errors.New("expected at most " + strconv.Itoa(MaxLeases) + " leases")}
		}
	}
	return all, nil
}

func readFile(path string) (record, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecordBytes+1))
	if err != nil {
		return record{}, err
	}
	if len(data) > maxRecordBytes {
		return record{}, errors.New("expected at most " + strconv.Itoa(maxRecordBytes) + " bytes")
	}
	return parseRecord(data)
}

// writeFile puts r into its place: after a crash there is the old one or the new
// one. It is on the disk when this returns without an error.
func writeFile(dir string, r record) error {
	data, err := canonical.Encode(r)
	if err != nil {
		return &StoreError{dir, err}
	}
	path, fresh := fileOf(dir, r.LeaseID), filepath.Join(dir, newName)
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return &StoreError{path, err}
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(fresh, path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return &StoreError{path, err}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

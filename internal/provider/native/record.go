package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// unbornPrefix begins the name of an instance's directory before its record
// is in place.
const unbornPrefix = ".new-"

// recordSchema names the form of record.json.
const recordSchema = "checkfu.native-instance.v1"

// record is what must be known of an instance to remove it after a crash, and
// what `ps` shows. It holds identities only: no environment, no content.
type record struct {
	Schema     string            `json:"schema"`
	InstanceID string            `json:"instance_id"`
	Driver     string            `json:"driver"`
	OwnerPID   int64             `json:"owner_pid"`
	SessionID  string            `json:"session_id"`
	RunID      string            `json:"run_id"`
	RootImage  string            `json:"root_image"`
	CreatedAt  sandbox.Timestamp `json:"created_at"`
	ExpiresAt  sandbox.Timestamp `json:"expires_at"`
	// Guarded says that a guard belongs to it; omitted where none does.
	Guarded bool `json:"guarded,omitzero"`
	// Linked says that a link and a table of the host's belong to it; likewise.
	Linked bool `json:"linked,omitzero"`
	// Waits says that it is nobody's yet: its machine waits to be claimed, see Warm.
	Waits bool `json:"waits,omitzero"`
}

// place is the directory of one instance.
type place struct{ dir string }

func (p place) lock() string     { return filepath.Join(p.dir, "lock") }
func (p place) record() string   { return filepath.Join(p.dir, "record.json") }
func (p place) skeleton() string { return filepath.Join(p.dir, "skeleton") }
func (p place) root() string     { return filepath.Join(p.dir, "root") }
func (p place) home() string     { return filepath.Join(p.dir, "home") }
func (p place) image() string    { return filepath.Join(p.dir, "home.image") }
func (p place) machine() string  { return filepath.Join(p.dir, "machine") }

func (p place) egress() string    { return filepath.Join(p.dir, "egress") }
func (p place) decisions() string { return filepath.Join(p.dir, "decisions") }
func (p place) requests() string  { return filepath.Join(p.dir, "requests") }

func (p *Provider) instancesDir() string { return filepath.Join(p.opt.Dir, "instances") }

func (p *Provider) place(id sandbox.InstanceID) place {
	return place{filepath.Join(p.instancesDir(), string(id))}
}

// begin makes the instance's directory with its lock held and its record in
// place, in one step that a sweep sees whole or not at all: everything is made
// under a name that no instance has and then renamed.
func (p *Provider) begin(r record) (place, *os.File, error) {
	unborn := place{filepath.Join(p.instancesDir(), unbornPrefix+r.InstanceID)}
	born := p.place(sandbox.InstanceID(r.InstanceID))
	if err := os.Mkdir(unborn.dir, 0o711); err != nil {
		return place{}, nil, err
	}
	p.opt.Step("directory")
	lock, err := writeBeginning(unborn, r)
	if err == nil {
		err = os.Rename(unborn.dir, born.dir)
	}
	if err != nil {
		return place{}, nil, errors.Join(err, os.RemoveAll(unborn.dir))
	}
	return born, lock, nil
}

func writeBeginning(at place, r record) (*os.File, error) {
	// The runtime's processes run as guest root's host id and must pass
	// through; nobody else may.
	if err := errors.Join(os.Chown(at.dir, 0, IDBase), os.Chmod(at.dir, 0o710)); err != nil {
		return nil, err
	}
	body, err := canonical.Encode(r)
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(at.lock(), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = os.NewSyscallError("flock", syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	if err == nil {
		err = os.WriteFile(at.record(), body, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// rewrite puts another record in the place of the one that is there, whole.
func (p place) rewrite(r record) error {
	body, err := canonical.Encode(r)
	if err != nil {
		return err
	}
	next := p.record() + ".next"
	if err := os.WriteFile(next, body, 0o600); err != nil {
		return err
	}
	return os.Rename(next, p.record())
}

// readRecord returns the record at a place. A damaged one is an error that
// names the file; it is the sweep's business to remove it.
func readRecord(at place) (record, error) {
	f, err := at.open(at.record(), os.O_RDONLY)
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return record{}, err
	}
	if len(body) > maxRecord {
		return record{}, fmt.Errorf("%s: larger than %d bytes", at.record(), maxRecord)
	}
	var r record
	if err := canonical.Decode(body, &r); err != nil {
		return record{}, fmt.Errorf("%s: %w", at.record(), err)
	}
	if r.Schema != recordSchema || !validID(sandbox.InstanceID(r.InstanceID)) || !r.ExpiresAt.Valid() || !r.CreatedAt.Valid() {
		return record{}, fmt.Errorf("%s: not a %s record", at.record(), recordSchema)
	}
	if name := strings.TrimPrefix(filepath.Base(at.dir), unbornPrefix); r.InstanceID != name {
		return record{}, fmt.Errorf("%s: the record of %s", at.record(), r.InstanceID)
	}
	return r, nil
}

// maxRecord bounds what is read of a record: its own is below 2 KiB.
const maxRecord = 64 << 10

// open opens a file of the place, if it is one: what else may lie under its
// name is neither followed nor waited for.
func (p place) open(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s: not a regular file", path))
	}
	return f, nil
}

// real reports whether the place is a directory, and no link to one.
func (p place) real() (bool, error) {
	info, err := os.Lstat(p.dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.IsDir(), err
}

// seize takes the lock of an instance whose owner is gone. It fails with
// errOwned while the owner lives: a lock file ends with the process that holds
// it, however it ended, and a process id that was used again fools nobody.
func seize(at place) (*os.File, error) {
	lock, err := at.open(at.lock(), os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errOwned
		}
		return nil, err
	}
	return lock, nil
}

var errOwned = errors.New("its owner lives")

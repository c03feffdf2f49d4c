package journal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/sandbox"
)

// directory holds the transactions of a home.
const directory = "writes"

// recordName is the file of a transaction that is its record.
const recordName = "journal"

// Journal is every transaction of one home.
type Journal struct {
	home  string
	owner contain.Owner
	step  func(string)
	dir   *contain.Root // HOME/writes
}

// Open opens the journal of a mounted home and recovers what an earlier owner
// left in it: see Recover. Whoever has opened it is the only one. owner is given
// to every file and directory that is published; step, if not nil, is called with
// the name of each step just after it was taken.
// Errors: those of Recover; host errors. Ownership: Close it before the home is
// unmounted.
func Open(ctx context.Context, home string, owner contain.Owner, step func(string)) (*Journal, error) {
	if step == nil {
		step = func(string) {}
	}
	path := filepath.Join(home, directory)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	dir, err := contain.Open(path, contain.Options{})
	if err != nil {
		return nil, err
	}
	j := &Journal{home: home, owner: owner, step: step, dir: dir}
	if err := j.recover(ctx); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return j, nil
}

// Close ends the use of the home. Transactions are closed by whoever has them.
func (j *Journal) Close() error { return j.dir.Close() }

// recover settles the transactions of an earlier owner. One that was dispatched
// and not committed is rolled back; one that was committed, or rolled back, is
// cleaned up and nothing of it put back. One that was merely open has changed
// nothing, and nobody is left who could dispatch it here: what it had staged goes.
// A record that says what cannot be is an error, and nothing of it is touched.
func (j *Journal) recover(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Join(j.home, directory))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := j.recoverOne(ctx, e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) recoverOne(ctx context.Context, id string) error {
	text, err := j.dir.ReadFile(ctx, id+"/"+recordName, maxRecord)
	if errors.Is(err, contain.ErrNotFound) {
		// It died while it was begun, or while it was removed: a record is there for
		// as long as anything depends on it.
		return j.dir.RemoveAll(ctx, id)
	}
	if err != nil {
		return err
	}
	r, err := parse(text)
	if err != nil {
		return err
	}
	if r.state != sandbox.JournalDispatched {
		return j.dir.RemoveAll(ctx, id)
	}
	tree, err := contain.Open(filepath.Join(j.home, r.tree), contain.Options{Owner: &j.owner})
	if err != nil {
		return err
	}
	defer tree.Close()
	t, err := j.attach(id, tree, r)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Rollback(); err != nil {
		return err
	}
	return t.Remove(ctx)
}

// Transaction is one batch of files on its way into one mount.
type Transaction struct {
	j      *Journal
	id     string
	tree   *contain.Root // the mount; the caller's
	bodies *contain.Root
	file   *os.File // the record
	record record
}

// Begin opens a transaction over paths relative to a tree, which is root and lies
// at tree below the home. 1 to 1,024 paths, none of which is twice among them.
// Nothing in the tree is touched, or looked at.
// Ownership: root stays the caller's, the transaction is to be closed; until then
// root must be open.
func (j *Journal) Begin(ctx context.Context, tree string, root *contain.Root, paths []string) (*Transaction, error) {
	r := record{state: sandbox.JournalOpen, tree: tree, files: make([]file, len(paths))}
	for n, path := range paths {
		r.files[n].path = path
	}
	if _, err := parse(r.encode()); err != nil {
		return nil, err
	}
	var b [16]byte
	rand.Read(b[:]) // never fails: the runtime ends the process instead
	id := hex.EncodeToString(b[:])
	if err := j.dir.Mkdir(id, 0o700); err != nil {
		return nil, err
	}
	// It comes whole or not at all: a part of a record would speak of nothing that
	// a recovery could believe.
	err := j.dir.WriteFile(ctx, id+"/"+recordName, r.encode(), 0o600)
	var t *Transaction
	if err == nil {
		t, err = j.attach(id, root, r)
	}
	if err != nil {
		return nil, errors.Join(err, j.dir.RemoveAll(context.WithoutCancel(ctx), id))
	}
	j.step("write: open")
	return t, nil
}

func (j *Journal) attach(id string, tree *contain.Root, r record) (*Transaction, error) {
	dir := filepath.Join(j.home, directory, id)
	bodies, err := contain.Open(dir, contain.Options{Owner: &j.owner})
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, recordName), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(err, bodies.Close())
	}
	return &Transaction{j: j, id: id, tree: tree, bodies: bodies, file: f, record: r}, nil
}

// Close gives back what the transaction has open; what is on disk stays. It may
// be called again.
func (t *Transaction) Close() error {
	err := t.file.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, t.bodies.Close())
}

// State is what the record says.
func (t *Transaction) State() sandbox.JournalState { return t.record.state }

// Stage writes the body of target n of an open transaction, whole or not at all;
// staging it again replaces it.
func (t *Transaction) Stage(ctx context.Context, n int, content []byte, executable bool) error {
	mode := os.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	if err := t.bodies.WriteFile(ctx, strconv.Itoa(n), content, mode); err != nil {
		return err
	}
	t.j.step("write: staged")
	return nil
}

// Remove removes the transaction, which is closed by it: open, or settled with
// its pause over. It can be called again after an error.
func (t *Transaction) Remove(ctx context.Context) error {
	if err := t.Close(); err != nil {
		return err
	}
	if err := t.j.dir.RemoveAll(ctx, t.id); err != nil {
		return err
	}
	t.j.step("write: removed")
	return nil
}

// put changes a part of the record in place.
func (t *Transaction) put(at int, text string) error {
	_, err := io.NewOffsetWriter(t.file, int64(at)).Write([]byte(text))
	return err
}

// set changes the state, on disk first.
func (t *Transaction) set(s sandbox.JournalState) error {
	if err := t.put(stateAt, stateText(s)); err != nil {
		return err
	}
	t.record.state = s
	t.j.step("write: " + string(s))
	return nil
}

package keeper

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// RecordSchema names the form of Record.
const RecordSchema = "checkfu.session.v1"

// State is where a session is.
type State string

// The states. The last two are in no record: a keeper that is gone writes nothing,
// and of one whose record cannot be read it is known only that it lives.
const (
	StateStarting State = "starting"
	StateActive   State = "active"  // a keeper has its machine
	StatePaused   State = "paused"  // a snapshot, and no keeper, process or memory
	StateLost     State = "lost"    // its keeper is gone without pausing it
	StateDamaged  State = "damaged" // its keeper lives, and its record cannot be read
)

// Record is what the disk knows of a session.
type Record struct {
	Schema    string `json:"schema"`
	SessionID string `json:"session_id"`
	Provider  string `json:"provider"`
	State     State  `json:"state"`
	// PID is the keeper's, StartTime when it began, in clock ticks since boot:
	// together they name one process.
	PID       int64             `json:"pid"`
	StartTime int64             `json:"start_time"`
	LeaseID   string            `json:"lease_id"` // of epoch 1
	Socket    string            `json:"socket"`
	CreatedAt sandbox.Timestamp `json:"created_at"`
	ExpiresAt sandbox.Timestamp `json:"expires_at"`
	Model     string            `json:"model,omitzero"` // control of the gateway of its model route
	// Registries is the file that says where its packages come from, an absolute path;
	// "" is the state directory's own. Its machines are made by that one and no other.
	Registries string `json:"registries,omitzero"`
	// Instance is the machine, once there is one; of a paused session the last one.
	Instance *sandbox.Instance `json:"instance,omitzero"`
	// KeepMillis is how long a snapshot lives that a pause of this session makes,
	// where nobody says otherwise. 0 is a session that keeps nothing.
	KeepMillis int64 `json:"keep_ms,omitzero"`
	// Live is whether a pause can keep the processes in its machine too.
	Live bool `json:"live,omitzero"`
	// Snapshot is what was kept last and acknowledged: all that a paused session
	// is, and where an active one falls back to when its keeper is killed.
	Snapshot *sandbox.Snapshot `json:"snapshot,omitzero"`
	// Leaving is the expiry of a snapshot that a pause of an active session has taken,
	// and then could not remove the machine, which does nothing any more. A pause again
	// goes on with the removal, and has this expiry.
	Leaving sandbox.Timestamp `json:"leaving,omitzero"`
}

// MaxKeep bounds how long a snapshot of a session may be kept without being used.
const MaxKeep = 30 * 24 * time.Hour

// Keeps is whether a session outlives its keeper, when that ends in order.
func (r Record) Keeps() bool { return r.KeepMillis > 0 }

// KeepUntil is when a snapshot ends that is made now.
func (r Record) KeepUntil(now time.Time) sandbox.Timestamp {
	return sandbox.At(now.Add(time.Duration(r.KeepMillis) * time.Millisecond))
}

// PauseUntil is the expiry that a pause has where nobody says another.
func (r Record) PauseUntil(now time.Time) sandbox.Timestamp {
	if r.Leaving != "" {
		return r.Leaving
	}
	return r.KeepUntil(now)
}

// CheckID holds an id of a session to its form, which no path can misuse.
// Errors: *sandbox.Invalid.
func CheckID(id string) error {
	ok := len(id) >= 1 && len(id) <= 40
	for i := range len(id) {
		c := id[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (alnum || i > 0 && (c == '-' || c == '_'))
	}
	if !ok {
		return &sandbox.Invalid{Field: "session_id", Expected: "1 to 40 letters, digits, - or _, the first a letter or digit", Got: id[:min(len(id), 100)]}
	}
	return nil
}

// NewID mints the id of a session.
func NewID() string { return mint("ses_") }

func mint(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// place is the directory of one session.
type place struct{ dir string }

func sessionsDir(dir string) string     { return filepath.Join(dir, "sessions") }
func placeOf(dir, id string) place      { return place{filepath.Join(sessionsDir(dir), id)} }
func (p place) file(name string) string { return filepath.Join(p.dir, name) }

// LogPath is where a session keeps what no caller is told.
func LogPath(dir, id string) string { return placeOf(dir, id).file(logName) }

const (
	lockName   = "lock"
	recordName = "record.json"
	tokenName  = "token"
	socketName = "s"
	logName    = "log"
)

// maxRecord bounds what is read of a file here. A machine of 64 mounts with long
// names is below it.
const maxRecord = 1 << 20

func (p place) read(name string) ([]byte, error) {
	f, err := os.OpenFile(p.file(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err == nil && len(body) > maxRecord {
		err = fmt.Errorf("%s: larger than %d bytes", p.file(name), maxRecord)
	}
	return body, err
}

// replace writes a file so that a reader sees the old one or the new one, also
// after a crash of the host.
func (p place) replace(name string, body []byte) error {
	f, err := os.CreateTemp(p.dir, "."+name+"-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), p.file(name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(p.dir)
}

// syncDir forces the names of a directory to the disk.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (p place) record() (Record, error) {
	body, err := p.read(recordName)
	if err != nil {
		return Record{}, err
	}
	r, err := parseRecord(body)
	if err == nil && r.SessionID != filepath.Base(p.dir) {
		err = fmt.Errorf("the record of %s", r.SessionID)
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", p.file(recordName), err)
	}
	return r, nil
}

func parseRecord(body []byte) (r Record, err error) {
	if err := canonical.Decode(body, &r); err != nil {
		return Record{}, err
	}
	known := r.State == StateStarting || r.State == StateActive || r.State == StatePaused
	ok := r.Schema == RecordSchema && CheckID(r.SessionID) == nil && known &&
		r.PID > 0 && r.CreatedAt.Valid() && r.ExpiresAt.Valid() && (r.State == StateStarting || r.Instance != nil) &&
		r.KeepMillis >= 0 && r.KeepMillis <= MaxKeep.Milliseconds() && (r.State != StatePaused || r.Keeps() && r.Snapshot != nil) &&
		(r.Registries == "" || r.Registries[0] == '/') && (!r.Live || r.Keeps()) && (r.Snapshot == nil || r.Snapshot.Validate() == nil && r.Instance != nil) &&
		(r.Leaving == "" || r.Leaving.Valid() && r.State == StateActive)
	if !ok {
		return Record{}, fmt.Errorf("not a %s record", RecordSchema)
	}
	return r, nil
}

func (p place) write(r Record) error {
	body, err := canonical.Encode(r)
	if err != nil {
		return err
	}
	return p.replace(recordName, body)
}

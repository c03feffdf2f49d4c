package gateway

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// Lease is what a run's token stands for.
type Lease struct {
	RunID      string
	LeaseID    string
	LeaseEpoch int64 // at least 1; of one lease only the newest holds
	ExpiresAt  time.Time
	// Models are those that the run may name; nil is all that the upstream has.
	Models []string
	// Ceiling is how much the run may use.
	Ceiling Ceiling
}

// Ceiling bounds what a run uses; a field that is zero bounds nothing. A request
// is refused once one of them is reached; the one that reaches it runs to its end.
type Ceiling struct {
	Requests     int64
	InputTokens  int64
	OutputTokens int64
	AtOnce       int64 // requests that run at the same time
}

// Leases is where leases are looked up. It is called before each request and
// every 5 seconds while one runs, from many goroutines.
type Leases interface {
	// Lookup finds the live lease of a token, by route.TokenDigest. The caller
	// checks ExpiresAt itself.
	// Errors: ErrNoLease where the digest is nobody's, or its lease is over or
	// belongs to a newer epoch. Any other error is a store that fails, and no
	// request passes.
	Lookup(tokenDigest string) (Lease, error)
}

// ErrNoLease says that a token stands for nothing (any more).
var ErrNoLease = errors.New("gateway: no live lease")

// FenceError refuses a lease that an equal or a newer epoch of it has overtaken.
type FenceError struct {
	LeaseID      string
	Epoch, Newer int64
}

// Error is one line.
func (e *FenceError) Error() string {
	return "lease " + e.LeaseID + ": expected an epoch above " + strconv.FormatInt(e.Newer, 10) + ", got " + strconv.FormatInt(e.Epoch, 10)
}

// Memory is the store of one machine: leases in memory, by the digests of their
// tokens. With the process they are gone, and every token is good for nothing.
type Memory struct {
	mu     sync.Mutex
	leases map[string]Lease // by the digest of the token
	epochs map[string]int64 // the newest of each lease, kept when it is revoked
}

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{leases: map[string]Lease{}, epochs: map[string]int64{}}
}

// Grant stores a lease and makes its token, which is answered once and kept
// nowhere. Tokens of its older epochs are good for nothing from now on.
// Errors: *sandbox.Invalid for a lease without an id or a time; *FenceError.
func (m *Memory) Grant(l Lease) (token string, err error) {
	for _, f := range []struct{ field, value string }{{"run_id", l.RunID}, {"lease_id", l.LeaseID}} {
		if f.value == "" || len(f.value) > MaxModelBytes {
			return "", &sandbox.Invalid{Field: f.field, Expected: "an identity", Got: strconv.Itoa(len(f.value)) + " bytes"}
		}
	}
	if l.LeaseEpoch < 1 || l.ExpiresAt.IsZero() {
		return "", &sandbox.Invalid{Field: "lease_epoch, expires_at", Expected: "an epoch of at least 1, and a time", Got: strconv.FormatInt(l.LeaseEpoch, 10)}
	}
	l.Models = slices.Clone(l.Models)
	m.mu.Lock()
	defer m.mu.Unlock()
	if newest := m.epochs[l.LeaseID]; l.LeaseEpoch <= newest {
		return "", &FenceError{l.LeaseID, l.LeaseEpoch, newest}
	}
	m.drop(l.LeaseID)
	m.epochs[l.LeaseID] = l.LeaseEpoch
	token = route.NewToken()
	m.leases[route.TokenDigest(token)] = l
	return token, nil
}

// Revoke ends a lease; its running requests end within 5 seconds. Its epoch
// stays, so that no older one can be granted.
func (m *Memory) Revoke(leaseID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(leaseID)
}

func (m *Memory) drop(leaseID string) {
	for digest, l := range m.leases {
		if l.LeaseID == leaseID {
			delete(m.leases, digest)
		}
	}
}

// Lookup is Leases.Lookup. A map may tell by its time how digests begin, but
// nobody chooses the digest of a token.
func (m *Memory) Lookup(tokenDigest string) (Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.leases[tokenDigest]
	if !ok || l.LeaseEpoch != m.epochs[l.LeaseID] {
		return Lease{}, ErrNoLease
	}
	return l, nil
}

package gateway

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// Bounds of a Store.
const (
	MaxLeases = 1 << 16 // that it holds at once, those that are over among them
	// That one is kept after its expiry: its counts, and the epoch that fences it. Not
	// after an end before that: whoever lost it may come with an older epoch as long
	// as that one's terms last, and its run may go on by another lease.
	keepAfter = 24 * time.Hour
	pruneEach = time.Minute // at most so often are the old ones looked for
)

// Store is the leases and counts of one machine: a file for each lease, in a
// directory that one process holds. A change is on the disk before it is answered,
// whole or not at all, so leases, epochs and counts outlive the process, however
// it ends. Of a token only the digest is there.
//
// Errors: *StoreError, where the disk fails.
// Concurrency: every method may be called at once; changes wait for each other's
// way to the disk, and look-ups for nothing.
type Store struct {
	dir   string
	lock  *os.File
	clock Clock

	disk   sync.Mutex // held over every way to the disk; leases come and go under it alone
	pruned time.Time  // under disk

	mu     sync.RWMutex // guards the maps and what they lead to
	leases map[string]*held
	tokens map[string]*held   // by digest
	runs   map[string][]*held // by run, in which a lease stays
}

// held is one lease in memory. dirty says that its file is behind.
type held struct {
	record
	dirty bool
}

// Granted is a lease in a list of them.
type Granted struct {
	Lease
	Live bool // not ended, not overtaken, not over
	Used Usage
}

// OpenStore opens a directory, which is made where it is missing; clock nil is
// System. The caller closes the store.
// Errors: *StoreError: of a directory that another process holds or that others
// can write, of a file that is none of a store's. Nothing is dropped to go on
// without it: it may be what fences a lease.
func OpenStore(dir string, clock Clock) (*Store, error) {
	if clock == nil {
		clock = System
	}
	s := &Store{dir: dir, clock: clock, leases: map[string]*held{}, tokens: map[string]*held{}, runs: map[string][]*held{}}
	var err error
	if s.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	records, err := readAll(dir)
	if err != nil {
		s.lock.Close()
		return nil, err
	}
	for _, r := range records {
		s.put(r)
	}
	return s, nil
}

// Close lets the directory go. No method is called after it.
func (s *Store) Close() error { return s.lock.Close() }

// put makes r what is known of its lease, but for what was counted meanwhile. It
// needs mu, or nobody else.
func (s *Store) put(r record) {
	h := s.leases[r.LeaseID]
	fresh := held{record: r}
	if h == nil {
		h = &held{}
		s.leases[r.LeaseID] = h
		s.runs[r.RunID] = append(s.runs[r.RunID], h)
	} else {
		delete(s.tokens, h.TokenDigest)
		fresh.Used, fresh.dirty = h.Used, h.Used != r.Used
	}
	*h = fresh
	if r.TokenDigest != "" {
		s.tokens[r.TokenDigest] = h
	}
}

// Grant stores a lease and makes its token, which is answered once and kept
// nowhere. Tokens of its older epochs are good for nothing from now on.
// Errors: *sandbox.Invalid for a lease that is none, or that was another run's;
// *FenceError; *StoreError.
func (s *Store) Grant(l Lease) (token string, err error) {
	if err := l.validate(); err != nil {
		return "", err
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	s.prune()
	s.mu.RLock()
	var old record
	h, n := s.leases[l.LeaseID], len(s.leases)
	if h != nil {
		old = h.record
	}
	s.mu.RUnlock()
	token = route.NewToken()
	r := recordOf(l, route.TokenDigest(token))
	switch {
	case h == nil && n >= MaxLeases:
		return "", &StoreError{s.dir, errors.New("expected at most " + strconv.Itoa(MaxLeases) + " leases")}
	case h == nil:
	case l.LeaseEpoch <= old.LeaseEpoch:
		return "", &FenceError{l.LeaseID, l.LeaseEpoch, old.LeaseEpoch + 1}
	case l.RunID != old.RunID:
		return "", &sandbox.Invalid{Field: "run_id", Expected: "the run that the lease was made for", Got: l.RunID}
	default:
		r.Used = old.Used
	}
	if err := writeFile(s.dir, r); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(r)
	return token, nil
}

func (l Lease) validate() error {
	for _, f := range []struct{ field, value string }{{"run_id", l.RunID}, {"lease_id", l.LeaseID}} {
		if err := sandbox.CheckInstanceID(f.field, sandbox.InstanceID(f.value)); err != nil {
			return err
		}
	}
	switch {
	case l.LeaseEpoch < 1:
		return &sandbox.Invalid{Field: "lease_epoch", Expected: "at least 1", Got: strconv.FormatInt(l.LeaseEpoch, 10)}
	case !sandbox.At(l.ExpiresAt).Valid():
		return &sandbox.Invalid{Field: "expires_at", Expected: "a time", Got: l.ExpiresAt.String()}
	case len(l.Models) > MaxModels:
		return &sandbox.Invalid{Field: "models", Expected: "at most " + strconv.Itoa(MaxModels), Got: strconv.Itoa(len(l.Models))}
	}
	for i, m := range l.Models {
		if m == "" || len(m) > MaxModelBytes || !route.HeaderValue(m) {
			return &sandbox.Invalid{Field: "models[" + strconv.Itoa(i) + "]", Expected: "the name of a model", Got: strings.ToValidUTF8(m[:min(len(m), 100)], "?")}
		}
	}
	c := l.Ceiling
	if min(c.Requests, c.InputTokens, c.OutputTokens, c.AtOnce) < 0 {
		return &sandbox.Invalid{Field: "ceiling", Expected: "no negative number", Got: "one"}
	}
	return nil
}

// Revoke ends an epoch of a lease, or does nothing where it has ended. The epoch
// stays, so that no older one can be granted.
// Errors: ErrNoLease for an id or an epoch that is unknown; *FenceError where a
// newer epoch holds the lease, which goes on: who lost it does not end it;
// *StoreError, after which the lease is over as long as this process lives.
func (s *Store) Revoke(leaseID string, epoch int64) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	h := s.leases[leaseID]
	if h == nil || epoch > h.LeaseEpoch {
		s.mu.Unlock()
		return ErrNoLease
	}
	if newest := h.LeaseEpoch; epoch < newest {
		s.mu.Unlock()
		return &FenceError{leaseID, epoch, newest}
	}
	if h.TokenDigest != "" {
		delete(s.tokens, h.TokenDigest)
		h.TokenDigest, h.dirty = "", true
	}
	s.mu.Unlock()
	return s.flush(h)
}

// flush writes what the disk is behind of. It needs disk.
func (s *Store) flush(h *held) error {
	s.mu.Lock()
	r, dirty := h.record, h.dirty
	h.dirty = false
	s.mu.Unlock()
	if !dirty {
		return nil
	}
	err := writeFile(s.dir, r)
	if err != nil {
		s.mu.Lock()
		h.dirty = true
		s.mu.Unlock()
	}
	return err
}

// Lookup is Leases.Lookup. A map may tell by its time how digests begin, but
// nobody chooses the digest of a token.
func (s *Store) Lookup(tokenDigest string) (Lease, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if h := s.tokens[tokenDigest]; h != nil && tokenDigest != "" {
		return h.lease(), nil
	}
	return Lease{}, ErrNoLease
}

// Used is Counts.Used: the sum over the run's leases.
func (s *Store) Used(runID string) (Usage, error) {
	sum, behind := s.sum(runID)
	if len(behind) == 0 {
		return sum, nil
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	var failures []error
	for _, h := range behind {
		failures = append(failures, s.flush(h))
	}
	return sum, errors.Join(failures...)
}

// Known is Counts.Known.
func (s *Store) Known(runID string) Usage {
	sum, _ := s.sum(runID)
	return sum
}

// sum adds up a run's leases, and says of which the disk is behind.
func (s *Store) sum(runID string) (sum Usage, behind []*held) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.runs[runID] {
		sum.add(h.Used)
		if h.dirty {
			behind = append(behind, h)
		}
	}
	return sum, behind
}

// Add is Counts.Add. Those that wait for the disk at the same time go there
// together.
func (s *Store) Add(leaseID string, u Usage) error {
	s.mu.Lock()
	h := s.leases[leaseID]
	if h != nil {
		h.Used.add(u)
		h.dirty = true
	}
	s.mu.Unlock()
	if h == nil {
		return ErrNoLease
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.flush(h)
}

// find is a lease by its id, ended or not.
// Errors: ErrNoLease.
func (s *Store) find(leaseID string) (Lease, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if h := s.leases[leaseID]; h != nil {
		return h.lease(), nil
	}
	return Lease{}, ErrNoLease
}

// List is every lease that is kept, by run and lease.
func (s *Store) List() []Granted {
	now := s.clock.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := []Granted{}
	for _, h := range s.leases {
		l := h.lease()
		all = append(all, Granted{Lease: l, Live: h.TokenDigest != "" && now.Before(l.ExpiresAt), Used: h.Used})
	}
	slices.SortFunc(all, func(a, b Granted) int {
		return strings.Compare(a.RunID+"\x00"+a.LeaseID, b.RunID+"\x00"+b.LeaseID)
	})
	return all
}

// prune removes what expired long ago. A file that cannot be removed stays, and
// is tried again. It needs disk.
func (s *Store) prune() {
	now := s.clock.Now()
	if now.Sub(s.pruned) < pruneEach {
		return
	}
	s.pruned = now
	s.mu.RLock()
	var old []*held
	for _, h := range s.leases {
		if now.Sub(h.lease().ExpiresAt) > keepAfter {
			old = append(old, h)
		}
	}
	s.mu.RUnlock()
	for _, h := range old {
		if err := os.Remove(fileOf(s.dir, h.LeaseID)); err != nil && !errors.Is(err, os.ErrNotExist) {
			continue
		}
		s.mu.Lock()
		delete(s.leases, h.LeaseID)
		delete(s.tokens, h.TokenDigest)
		s.runs[h.RunID] = slices.DeleteFunc(s.runs[h.RunID], func(other *held) bool { return other == h })
		if len(s.runs[h.RunID]) == 0 {
			delete(s.runs, h.RunID)
		}
		s.mu.Unlock()
	}
}

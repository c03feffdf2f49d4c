package gateway

import (
	"errors"
	"strconv"
	"time"
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
	Requests     int64 `json:"requests,omitempty"`
	InputTokens  int64 `json:"input_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens,omitempty"`
	AtOnce       int64 `json:"at_once,omitempty"` // requests that run at the same time
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

// Counts keeps what runs have used. It is called before and after each request,
// from many goroutines.
type Counts interface {
	// Used is what a run has used by requests that ended. An error means that it
	// is not known or not kept, and no request of the run passes. It may wait for
	// the disk.
	Used(runID string) (Usage, error)
	// Known is the same by memory alone: it waits for no disk, and does not tell
	// whether what it says is kept.
	Known(runID string) Usage
	// Add counts a request of a lease's run. What could not be kept is known
	// nevertheless, and Used tries again.
	Add(leaseID string, u Usage) error
}

// ErrNoLease says that a token, or the id of a lease, stands for nothing (any
// more).
var ErrNoLease = errors.New("gateway: no live lease")

// FenceError refuses who comes with an epoch that a newer one has overtaken.
type FenceError struct {
	LeaseID      string
	Epoch, Least int64
}

// Error is one line.
func (e *FenceError) Error() string {
	return "lease " + e.LeaseID + ": expected an epoch of at least " + strconv.FormatInt(e.Least, 10) + ", got " + strconv.FormatInt(e.Epoch, 10)
}

package matrix

import (
	"context"
	"io"
	"net/netip"
	"os"

	"github.com/checkfu/checkfu/sandbox"
)

// Provider is one that ships, for the cases that need a real machine: the lab's
// workload is a namespace, and what a provider gives to a program it cannot show.
type Provider struct {
	Name   string         // as a person types it
	Target sandbox.Target // the exact revision
	// Lacks says why no machine can be had here; "" where one can. The cases are
	// then skipped by that reason.
	Lacks string
	// Begin begins a Run: the Runner selects, provisions and activates, and opens
	// the harness (HarnessPath) as its command. What becomes of that is seen on the
	// streams of the harness, and its error is End's.
	// Errors: of what comes before; then nothing is left.
	Begin func(context.Context, RunRequest) (RealRun, error)
}

// RunRequest is what a real Run is to be.
type RunRequest struct {
	Destinations []sandbox.Destination // its allowlist
	Environment  map[string]string     // of the command, above what the provider sets; nil but for a mutant
	Resolver     netip.AddrPort        // whom its guard asks
	Gateway      string                // where its relay leads, as in relay.Config
	// Lease leases the model route of the Run, and makes its token.
	Lease        func(RunRecord) (token string, err error)
	Guard, Relay Start
}

// Start starts a guard or a relay where the lab wants it, and returns once it
// listens. The caller closes listener and log afterwards.
type Start func(ctx context.Context, config []byte, listener, log *os.File) (Process, error)

// Process is a guard or a relay that runs.
type Process interface {
	PID() int
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Stop ends it and returns when it has ended. It may be called again.
	Stop(context.Context) error
	// Err is how it ended, once Done: nil where it ended as it was told to.
	Err() error
}

// RealRun is a Run under way. Reading and writing are the streams of its harness,
// and it ends with them.
type RealRun interface {
	io.ReadWriter
	// Execute runs a command to completion beside the harness and returns what it
	// printed.
	Execute(ctx context.Context, instance sandbox.InstanceID, command ...string) ([]byte, error)
	// End lets the harness end, and the Run with it: collected, released, destroyed.
	// Errors: whatever of that did not come about.
	End(context.Context) error
}

// RunRecord names a Run and its lease, as a receipt names it.
type RunRecord struct {
	RunID      string `json:"run_id"`
	LeaseID    string `json:"lease_id"`
	LeaseEpoch int64  `json:"lease_epoch"`
}

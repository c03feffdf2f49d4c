// Package probe is the engine of the conformance suite: what a probe is, how
// it reaches the target, and how its outcome becomes a row.
//
// A probe drives the target through a [sandbox.Provider] of the engine's own.
// Every call through it is bounded, written into the transcript, registered if
// it allocates, and every answer is held to the standing checks: the same
// comparisons that the Runner makes, but all of them reported. What a probe
// allocated is torn down when it ends, and nothing else ever is.
//
// Trusts: the probes, the clock. Does not trust: one value, error or silence
// of the target.
// Errors: a run has no error of its own; what went wrong is in the report.
// Concurrency: a run drives its target from one probe at a time; a probe may
// use several goroutines. Several runs may go on at once against targets of
// their own.
// Source: contract "Conformance".
package probe

import (
	"context"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// Probe is one case or probe. ID is unique over all suites. Run must not keep
// t after it returned.
type Probe struct {
	ID       string
	Suite    report.Suite
	Title    string
	Requires []report.Token
	Source   string // document and heading
	Clause   string
	Level    report.Level // "" is MUST
	Once     bool         // too costly for a second pass
	Run      func(t *T)
}

// Clock is the time that the target lives by. One that has a method
// Advance(time.Duration) is advanced where a probe has to wait.
type Clock = sandboxruntime.Clock

// Target is what is tested.
type Target struct {
	Name     string // as a person named it
	Provider sandbox.Provider
	Remote   bool // reached over a wire
	// Wire is the way there by hand. nil: the wire suite is skipped.
	Wire *Wire
	// ThroughRunner says that Provider is the Runner's own runtime in front of
	// the provider: an answer that it refuses is a failure of the provider.
	ThroughRunner bool
	Image         string // NAME@sha256:…, base image and root of every machine
	Withhold      []report.Token
	Clock         Clock   // nil is the machine's
	Network       Network // nil: the egress cases cannot be judged
	// Census names everything that the provider has on its host: instances,
	// snapshots, processes, mounts. nil: there is none.
	Census func(ctx context.Context) ([]string, error)
	// Restart ends the provider as a crash would and opens it again on the same
	// state. nil: it cannot be restarted from here.
	Restart func(ctx context.Context) (sandbox.Provider, error)
}

// Network is the lab of the egress cases: destinations that answer, outside of
// every sandbox.
type Network interface {
	// Listed is what an allowlist names; Unlisted is what none names. Both
	// answer to whoever can reach them.
	Listed() sandbox.Destination
	Unlisted() sandbox.Destination
	// Alive is the live control: it connects to d from outside of the sandbox
	// and returns an error if nothing answers.
	Alive(ctx context.Context, d sandbox.Destination) error
	// Connect is a shell script that ends with status 0 exactly if it reached
	// d, within 5 seconds.
	Connect(d sandbox.Destination) string
	// Accepted returns how many connections d has taken since the lab began,
	// or -1 where nobody counts.
	Accepted(d sandbox.Destination) int64
}

// Step is one probe in one pass.
type Step struct {
	ID           string
	Pass, Passes int // from 1
	Done, Total  int // steps of the whole run
}

// Options are how it is tested. The zero value runs every probe once through
// two passes.
type Options struct {
	Suites []report.Suite    // what was asked for; for the report
	Only   func(string) bool // nil runs all; ids that it refuses are filtered
	Filter []string          // what Only was made from; for the report
	Seed   string            // "" draws one
	Passes int               // 0 is 2: the second in another order under another Session
	// Patience bounds every call, beyond what the call itself may take; 0 is
	// 60 s. A rollback has the contract's 30 s. Both are measured by Watch,
	// which is the machine's clock unless a test has one of its own.
	Patience time.Duration
	Watch    Clock
	// Linger is how long what is being torn down may still show in the census;
	// 0 is 5 s.
	Linger time.Duration
	Budget time.Duration // of the whole run by the machine's clock; 0 is none
	// StreamBytes is how much the process suite moves; 0 is 1 GiB.
	StreamBytes int64
	Transcript  *report.Transcript // nil keeps none
	Started     func(Step)         // called before each probe of each pass; nil for none
	Progress    func(report.Row)   // called after it
	// Disabled switches checks off, by the id of a probe or "standing/check".
	// It exists to show that each check is needed; no command sets it.
	Disabled map[string]bool
}

// Package sandboxtest is for the tests of whoever works with providers:
// providers of which single members are replaced, and saboteurs, each wrong in
// exactly one way.
//
// A saboteur names the check of the conformance suite that must kill it. So
// the list is the measure of the suite: a fault that no check sees, or a check
// that sees no fault, shows in the matrix.
//
// Trusts: the provider that it wraps to be right in all the rest.
// Concurrency: a wrapped provider may be used as the one inside.
// Source: contract, the whole document.
package sandboxtest

import (
	"net/http"
	"slices"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// Saboteur is a provider that is wrong in one way.
type Saboteur struct {
	ID    string // a letter for the group and a number: "I16"
	Fault string // what is wrong, in a few words
	// Kills is the row that must fail because of it, or "row/check" where one
	// of several checks must.
	Kills string
	// Suite is the suite that must be run to kill it. "" is the suite of the
	// row, and the nine cases for a standing row.
	Suite report.Suite
	// Wrap makes the saboteur out of a right provider. It calls env.Fire
	// whenever it does what is wrong.
	Wrap func(p sandbox.Provider, env *Env) sandbox.Provider
	// Restarted is what is there after a crash and a restart; nil is the
	// wrapped provider, with all that it holds.
	Restarted func(p sandbox.Provider, env *Env) sandbox.Provider
	// Serve makes the saboteur out of a right server of the wire, in front of the
	// right provider or of what Wrap made of it. It calls env.Fire likewise.
	Serve func(h http.Handler, env *Env) http.Handler
	// Remote says that the fault is one only of what was reached over a wire.
	Remote bool
	// Withhold is what the target hides, where the fault lies in that.
	Withhold []report.Token
}

// Env is what a saboteur may use besides the provider that it wraps.
type Env struct {
	// Fire notes that the fault was committed. It may be called by many
	// goroutines.
	Fire func()
	// Hang does not return before the test is over, whatever ctx says, and
	// lets whoever waits for it see its time pass.
	Hang func()
	// Now is the provider's time.
	Now func() time.Time
}

// Pending is a saboteur that cannot exist yet, because what it would be wrong
// in does not.
type Pending struct {
	ID     string
	Fault  string
	Reason string
}

// Saboteurs returns all of them, group by group.
func Saboteurs() []Saboteur {
	return slices.Concat(envelopeFaults(), identityFaults(), handoffFaults(), stateFaults(), commandFaults(), fileFaults(),
		activeWriteFaults(), snapshotFaults(), lostFaults(), cleanupFaults(), processFaults(), networkFaults(), cheats(), timeFaults(), neighbourFaults(), wireFaults(), wireLiveFaults())
}

// PendingSaboteurs returns those that wait for their member.
func PendingSaboteurs() []Pending {
	return slices.Concat(pendingFiles(), pendingActiveWrites(), pendingNetwork())
}

// Benign returns providers that look odd and are right: every suite must stay
// green with each.
func Benign() []Saboteur { return benign() }

// Baselines returns providers that do not even try: none may ever be called
// conformant.
func Baselines() []Saboteur { return baselines() }

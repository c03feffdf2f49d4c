package sandboxruntime

import (
	"context"
	"errors"
	"strconv"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// Adapter is one provider that this Runner can reach.
type Adapter struct {
	Provider sandbox.Provider
	// Remote says that the provider was reached over a wire. What it claims as
	// runner_enforced then counts as provider_attested at most, also when it
	// is our own code at the other end; and an error of it that says which rule
	// of the wire was broken (sandbox.Violation) is ProtocolInvalid.
	//
	// A provider that says so itself (sandbox.Remote) is remote whatever stands
	// here. A wrapper around one hides that, unless it has the method too.
	// Source: concept "The enforcement statement"; docs/divergences.md, row 15.
	Remote bool
	// Certificates are what receipts certify that package evidence verified,
	// without which no provider has security_boundary.
	// Source: grading "The grading rule".
	Certificates []grade.Certificate
	// Ceiling is the most that an operator admits of this provider, as a valid
	// envelope for the same target; nil sets none.
	// Source: grading "The enforcement ceiling gap".
	Ceiling *sandbox.Capabilities
}

// Wanted is what one attempt needs: the execution target and what is checked
// against that target's envelope.
// Source: concept "Where a provider sits", Selection.
type Wanted struct {
	Target    sandbox.Target
	Profile   sandbox.Profile
	Platform  sandbox.Platform
	RootImage string
	Mounts    []sandbox.Mount
}

// Selector picks one adapter out of those that a Runner has.
type Selector struct {
	Adapters []Adapter
	// Clock is nil for System.
	Clock Clock
	// Report is told what nobody is left to be told: a compensation that
	// failed after its caller had gone. nil drops it. It may be called by many
	// goroutines at once.
	Report func(error)
}

// Select picks the adapter for want among adapters by the machine's clock.
// See [Selector.Select].
func Select(ctx context.Context, adapters []Adapter, want Wanted) (*Runtime, error) {
	return Selector{Adapters: adapters}.Select(ctx, want)
}

// Select picks exactly one adapter whose tuple is want.Target and checks every
// requirement of want against its envelope, before any provider work.
//
// Blocks: while the adapters answer capabilities, each asked once and at the
// same time, at most 30 s.
// Errors: AdapterUnavailable, also for one of which the operator's ceiling
// leaves nothing; AdapterAmbiguous; ProtocolInvalid for an envelope that breaks its own rules; CapabilityUnavailable for the first
// unmet requirement in the order of sandbox.Requirements. None falls back.
// Source: concept "Where a provider sits", Selection.
func (s Selector) Select(ctx context.Context, want Wanted) (*Runtime, error) {
	r, err := s.Attach(ctx, want.Target)
	if err != nil {
		return nil, err
	}
	if err := unmet(OpSelect, r.capabilities, want, false); err != nil {
		return nil, err
	}
	return r, nil
}

// Attach picks the adapter by its tuple alone. It is for reconcilers, which
// sweep and tear down without a profile at hand; Provision and Resume check
// their own request against the envelope however the runtime was made.
// Errors: as Select, without CapabilityUnavailable.
func (s Selector) Attach(ctx context.Context, target sandbox.Target) (*Runtime, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := target.Validate(); err != nil {
		return nil, refused(OpSelect, err)
	}
	clock := s.Clock
	if clock == nil {
		clock = System
	}
	claims := make([]claim, len(s.Adapters))
	answered := make(chan struct{})
	for i, a := range s.Adapters {
		go func() {
			claims[i] = ask(ctx, clock, a)
			answered <- struct{}{}
		}()
	}
	for range claims { // each is bounded by ask
		<-answered
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var chosen *claim
	var silent []error
	matches := 0
	for i := range claims {
		switch c := &claims[i]; {
		case c.err != nil:
			// One provider that is down must not stop another's Runs.
			silent = append(silent, c.err)
		case c.envelope.Target() == target:
			chosen = c
			matches++
		}
	}
	if matches != 1 {
		e := &Error{Kind: AdapterUnavailable, Operation: OpSelect, Field: "target", Expected: spell(target),
			Got: strconv.Itoa(matches) + " adapters", Err: errors.Join(silent...)}
		if matches > 1 {
			e.Kind, e.Err = AdapterAmbiguous, nil
		}
		return nil, e
	}
	if err := chosen.envelope.Validate(); err != nil {
		return nil, rejected(sandbox.OpCapabilities, err)
	}
	return newRuntime(s.Report, *chosen)
}

// claim is what one adapter says of itself.
type claim struct {
	provider sandbox.Provider
	link     link
	envelope sandbox.Capabilities
	optional sandbox.Optional
	err      error

	certificates []grade.Certificate
	ceiling      *sandbox.Capabilities
}

func ask(ctx context.Context, clock Clock, a Adapter) claim {
	if a.Provider == nil {
		return claim{err: &Defect{sandbox.OpCapabilities, errors.New("an adapter without a provider")}}
	}
	c, _, err := do(ctx, link{Clock: clock}, call[claim]{op: sandbox.OpCapabilities, limit: patience, run: func(ctx context.Context) (claim, error) {
		c := claim{provider: a.Provider, link: link{clock, a.remote()}, certificates: a.Certificates, ceiling: a.Ceiling}
		envelope, err := a.Provider.Capabilities(ctx)
		if c.err = err; err == nil {
			c.envelope, c.optional = clone(envelope), a.Provider.Optional()
		}
		return c, nil
	}})
	if err == nil {
		err = authored(ctx, c.link, sandbox.OpCapabilities, c.err)
	}
	c.err = err
	return c
}

// remote takes a provider at its word only where it says that there is a wire:
// whoever forgot to set Remote must not make a stranger one of the Runner's own.
func (a Adapter) remote() bool {
	far, ok := a.Provider.(sandbox.Remote)
	return a.Remote || ok && far.Remote()
}

func spell(t sandbox.Target) string {
	return t.Provider + " " + t.ProviderRevision + " " + t.MaterializationRevision + " " + string(t.Placement)
}

package sandboxruntime

import (
	"errors"
	"slices"
	"sync"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// Runtime drives one selected provider. See the package comment for what its
// methods have in common.
//
// An instance belongs to the Runtime that provisioned, resumed or adopted it:
// only that one knows what was asked for, so only that one can disbelieve the
// answers. A Runner keeps one Runtime for each provider, or adopts.
// Source: contract, the whole document.
type Runtime struct {
	provider sandbox.Provider
	optional sandbox.Optional // as read once, at selection
	link     link
	told     func(error)

	advertised   sandbox.Capabilities // as the provider said it
	capabilities sandbox.Capabilities // as admitted
	narrowings   []grade.Narrowing

	mu        sync.RWMutex // guards instances
	instances map[sandbox.InstanceID]*instance
}

// newRuntime admits what c claims.
// Errors: AdapterUnavailable, where the operator's ceiling leaves nothing of it.
// Source: grading "The grading rule"; "The enforcement ceiling gap".
func newRuntime(told func(error), c claim) (*Runtime, error) {
	r := &Runtime{
		provider: c.provider, optional: c.optional, link: c.link, told: told,
		advertised: c.envelope.WithDefaults(), instances: map[sandbox.InstanceID]*instance{},
	}
	standing := grade.Standing{Remote: c.link.remote, Certificates: c.certificates, Ceiling: c.ceiling}
	var err error
	if r.capabilities, r.narrowings, err = grade.Admit(r.advertised, standing); err != nil {
		e := &Error{Kind: AdapterUnavailable, Operation: OpSelect, Field: "ceiling", Err: err}
		if nothing, ok := errors.AsType[*grade.Nothing](err); ok {
			e.Field, e.Expected, e.Got = nothing.Field, excerpt(nothing.Ceiling), excerpt(nothing.Claimed)
		}
		return nil, e
	}
	return r, nil
}

// Capabilities returns the envelope as it was admitted: decoded once, defaults
// filled in, claims narrowed. The caller must not change its slices.
func (r *Runtime) Capabilities() sandbox.Capabilities { return r.capabilities }

// Narrowings returns what Capabilities holds less of than the provider
// claimed. Each belongs in the Run's record.
func (r *Runtime) Narrowings() []grade.Narrowing { return slices.Clone(r.narrowings) }

// report tells the owner of the Runner what no caller is left to hear.
func (r *Runtime) report(err error) {
	if err != nil && err != errNoCompensation && r.told != nil {
		r.told(err)
	}
}

// clone keeps a provider from changing its envelope after it was admitted.
func clone(c sandbox.Capabilities) sandbox.Capabilities {
	c.Tiers = slices.Clone(c.Tiers)
	c.Platforms = slices.Clone(c.Platforms)
	c.FixedBaseImages = slices.Clone(c.FixedBaseImages)
	c.PackageManagers = slices.Clone(c.PackageManagers)
	c.NetworkModes = slices.Clone(c.NetworkModes)
	c.RetentionModes = slices.Clone(c.RetentionModes)
	return c
}

// cloneRequest keeps what the runtime compares with out of the provider's
// reach, which is handed slices of its own.
func cloneRequest(r sandbox.ProvisionRequest) sandbox.ProvisionRequest {
	r.Mounts = slices.Clone(r.Mounts)
	r.Profile.Packages = slices.Clone(r.Profile.Packages)
	r.Profile.NetworkPolicy.Destinations = slices.Clone(r.Profile.NetworkPolicy.Destinations)
	return r
}

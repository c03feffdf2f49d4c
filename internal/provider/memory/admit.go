package memory

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

func invalid(op sandbox.Operation, cause error) error {
	return sandbox.Failed(op, sandbox.ReasonInvalidRequest, cause)
}

// admit checks a request against the envelope, in the order in which selection
// does. The Runner has done so already; a provider that relies on it is the
// one that a second Runner would break.
func (p *Provider) admit(op sandbox.Operation, r sandbox.ProvisionRequest) error {
	if err := r.Validate(); err != nil {
		if inv := (*sandbox.Invalid)(nil); errors.As(err, &inv) && strings.HasPrefix(inv.Field, "mounts") {
			return sandbox.Unavailable(op, sandbox.RequireMounts, inv.Field+": "+inv.Got, inv.Expected)
		}
		return invalid(op, err)
	}
	if r.Target != p.caps.Target() {
		return sandbox.Conflict(op, describe(p.caps.Target()), describe(r.Target))
	}
	lacks := func(requirement sandbox.Requirement, wanted string) error {
		return sandbox.Unavailable(op, requirement, wanted, "")
	}
	profile := r.Profile
	switch {
	case !slices.Contains(p.caps.Tiers, profile.Tier):
		return lacks(sandbox.RequireTier, string(profile.Tier))
	case !slices.Contains(p.caps.Platforms, r.Platform):
		return lacks(sandbox.RequirePlatform, r.Platform.OS+"/"+r.Platform.Architecture)
	case len(profile.Packages) > 0 && !slices.Contains(p.caps.PackageManagers, profile.Packages[0].Manager):
		return lacks(sandbox.RequirePackages, string(profile.Packages[0].Manager))
	}
	if short := grade.Network(p.caps, profile.NetworkPolicy); short != nil {
		return sandbox.Unavailable(op, sandbox.RequireNetworkPolicy, short.Wanted, short.Offered)
	}
	switch {
	case !slices.Contains(p.caps.RetentionModes, profile.RetentionMode):
		return lacks(sandbox.RequireRetention, string(profile.RetentionMode))
	}
	if axis := profile.ResourceLimits.Within(p.caps.MinimumResources, p.caps.MaximumResources); axis != "" {
		return lacks(sandbox.RequireResources, axis)
	}
	if int64(len(r.Mounts)) > p.caps.MaxMounts {
		return sandbox.Unavailable(op, sandbox.RequireMounts, strconv.Itoa(len(r.Mounts)), strconv.FormatInt(p.caps.MaxMounts, 10))
	}
	return p.checkDeadline(op, r.ExpiresAt)
}

// checkDeadline refuses a deadline that has passed.
func (p *Provider) checkDeadline(op sandbox.Operation, t sandbox.Timestamp) error {
	if p.now().Before(t) {
		return nil
	}
	return sandbox.Conflict(op, "before expires_at "+string(t), sandbox.ActualExpired)
}

func describe(t sandbox.Target) string {
	return t.Provider + " " + t.ProviderRevision + " " + t.MaterializationRevision + " " + string(t.Placement)
}

// copyRequest makes r independent of its caller.
func copyRequest(r sandbox.ProvisionRequest) sandbox.ProvisionRequest {
	r.Mounts = slices.Clone(r.Mounts)
	r.Profile = copyProfile(r.Profile)
	return r
}

func copyProfile(p sandbox.Profile) sandbox.Profile {
	p.Packages = slices.Clone(p.Packages)
	p.NetworkPolicy.Destinations = slices.Clone(p.NetworkPolicy.Destinations)
	return p
}

func copyInstance(i sandbox.Instance) sandbox.Instance {
	i.Mounts = slices.Clone(i.Mounts)
	i.Profile = copyProfile(i.Profile)
	return i
}

package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/checkfu/checkfu/sandbox"
)

// admit holds a request to the envelope, in the order in which selection does.
// The Runner has done so; another Runner may not have.
func admit(op sandbox.Operation, r sandbox.ProvisionRequest) error {
	if err := r.Validate(); err != nil {
		if wrong := (*sandbox.Invalid)(nil); errors.As(err, &wrong) && strings.HasPrefix(wrong.Field, "mounts") {
			return sandbox.Unavailable(op, sandbox.RequireMounts, wrong.Field+": "+wrong.Got, wrong.Expected)
		}
		return invalid(op, err)
	}
	c, profile := envelope(), r.Profile
	if r.Target != c.Target() {
		return sandbox.Conflict(op, describe(c.Target()), describe(r.Target))
	}
	outside := profile.ResourceLimits.Within(c.MinimumResources, c.MaximumResources)
	for _, need := range []struct {
		requirement sandbox.Requirement
		lacks       bool
		wanted      string
	}{
		{sandbox.RequireTier, !slices.Contains(c.Tiers, profile.Tier), string(profile.Tier)},
		{sandbox.RequirePlatform, !slices.Contains(c.Platforms, r.Platform), r.Platform.OS + "/" + r.Platform.Architecture},
		{sandbox.RequireBaseImage, profile.BaseImage != image || r.RootImage != image, profile.BaseImage},
		{sandbox.RequirePackages, len(profile.Packages) > 0, "packages"},
		{sandbox.RequireNetworkPolicy, !slices.Contains(c.NetworkModes, profile.NetworkPolicy.Mode), string(profile.NetworkPolicy.Mode)},
		{sandbox.RequireRetention, !slices.Contains(c.RetentionModes, profile.RetentionMode), string(profile.RetentionMode)},
		{sandbox.RequireResources, outside != "", outside},
		{sandbox.RequireMounts, int64(len(r.Mounts)) > c.MaxMounts, strconv.Itoa(len(r.Mounts)) + " mounts"},
	} {
		if need.lacks {
			return sandbox.Unavailable(op, need.requirement, need.wanted, "")
		}
	}
	return inTime(op, r.ExpiresAt)
}

func describe(t sandbox.Target) string {
	return t.Provider + " " + t.ProviderRevision + " " + t.MaterializationRevision + " " + string(t.Placement)
}

// inTime refuses a deadline that has passed.
func inTime(op sandbox.Operation, t sandbox.Timestamp) error {
	if now().Before(t) {
		return nil
	}
	return sandbox.Conflict(op, "before expires_at "+string(t), sandbox.ActualExpired)
}

func invalid(op sandbox.Operation, err error) error {
	return sandbox.Failed(op, sandbox.ReasonInvalidRequest, err)
}

// fault says in the words of the contract what went wrong with path, or with no
// file.
func fault(op sandbox.Operation, path string, err error) error {
	var why refusal
	switch {
	case errors.Is(err, errLost):
		return sandbox.Failed(op, sandbox.ReasonInstanceLost, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return sandbox.Unavailable(op, sandbox.RequireResources, path, "disk_bytes")
	case errors.As(err, &why):
		return sandbox.FailedAt(op, path, string(why), nil)
	}
	return sandbox.FailedAt(op, path, sandbox.ReasonProviderError, err)
}

package sandboxruntime

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// unmet returns a CapabilityUnavailable for the first requirement that want
// has and c does not meet, in the order of sandbox.Requirements. The closed
// set's other members (snapshot_clone, physically_contained_file_read,
// active_mount_write) are needed by single calls and refused there.
// valid says that want's own form has been found good already.
// Source: contract "Errors"; concept "The capability envelope".
func unmet(op sandbox.Operation, c sandbox.Capabilities, want Wanted, valid bool) error {
	miss := func(r sandbox.Requirement, wanted, offered string) error {
		return sandbox.Unavailable(op, r, excerpt(wanted), excerpt(offered))
	}
	p := want.Profile
	if !slices.Contains(c.Tiers, p.Tier) {
		return miss(sandbox.RequireTier, string(p.Tier), list(c.Tiers))
	}
	if !slices.Contains(c.Platforms, want.Platform) {
		return miss(sandbox.RequirePlatform, platform(want.Platform), platforms(c.Platforms))
	}
	if c.ImageMode == sandbox.ImageFixed {
		for _, image := range []string{p.BaseImage, want.RootImage} {
			if !slices.Contains(c.FixedBaseImages, image) {
				return miss(sandbox.RequireBaseImage, image, strings.Join(c.FixedBaseImages, " "))
			}
		}
	}
	if sandbox.ImageDigest(want.RootImage) == "" {
		return miss(sandbox.RequireBaseImage, "NAME@sha256:DIGEST", want.RootImage)
	}
	for _, pkg := range p.Packages {
		if !slices.Contains(c.PackageManagers, pkg.Manager) {
			return miss(sandbox.RequirePackages, string(pkg.Manager), list(c.PackageManagers))
		}
	}
	var shape error
	if !valid {
		shape = p.NetworkPolicy.Validate()
	}
	if err := unmetNetwork(op, c, p.NetworkPolicy, shape); err != nil {
		return err
	}
	if !slices.Contains(c.RetentionModes, p.RetentionMode) {
		return miss(sandbox.RequireRetention, string(p.RetentionMode), list(c.RetentionModes))
	}
	if p.RetentionMode == sandbox.RetentionDurable && !c.Snapshots {
		return miss(sandbox.RequireSnapshots, string(p.RetentionMode), "snapshots: false")
	}
	if axis := p.ResourceLimits.Within(c.MinimumResources, c.MaximumResources); axis != "" {
		have, low, high := on(p.ResourceLimits, axis), on(c.MinimumResources, axis), on(c.MaximumResources, axis)
		return miss(sandbox.RequireResources, fmt.Sprintf("%s %d", axis, have), fmt.Sprintf("%s %d to %d", axis, low, high))
	}
	if !valid {
		if err := sandbox.ValidateMounts(want.Mounts); err != nil {
			return miss(sandbox.RequireMounts, "a mount plan that is free of conflicts", err.Error())
		}
	}
	if int64(len(want.Mounts)) > c.MaxMounts {
		return miss(sandbox.RequireMounts, strconv.Itoa(len(want.Mounts))+" mounts", "max_mounts "+strconv.FormatInt(c.MaxMounts, 10))
	}
	// What is left of the profile is form, not capability.
	if !valid {
		if err := p.Validate(); err != nil {
			return refused(op, err)
		}
	}
	return nil
}

// unmetNetwork checks a policy's own shape, of which the caller brings the
// verdict, and then what the envelope serves of it. The error names the requested
// policy and the advertised grade.
// Source: grading "The grading rule"; contract "Errors", network_policy.
func unmetNetwork(op sandbox.Operation, c sandbox.Capabilities, p sandbox.NetworkPolicy, shape error) error {
	if shape != nil {
		return sandbox.Unavailable(op, sandbox.RequireNetworkPolicy, excerpt(grade.Policy(p)), excerpt(shape.Error()))
	}
	short := grade.Network(c, p)
	if short == nil {
		return nil
	}
	return sandbox.Unavailable(op, sandbox.RequireNetworkPolicy, excerpt(short.Wanted), excerpt(short.Offered))
}

func list[T ~string](set []T) string {
	names := make([]string, len(set))
	for i, v := range set {
		names[i] = string(v)
	}
	return strings.Join(names, " ")
}

func platform(p sandbox.Platform) string { return p.OS + "/" + p.Architecture }

func platforms(set []sandbox.Platform) string {
	names := make([]string, len(set))
	for i, p := range set {
		names[i] = platform(p)
	}
	return strings.Join(names, " ")
}

// on returns the value of one axis by its JSON name.
func on(r sandbox.Resources, axis string) int64 {
	switch axis {
	case "cpu_millis":
		return r.CPUMillis
	case "memory_bytes":
		return r.MemoryBytes
	case "disk_bytes":
		return r.DiskBytes
	case "max_processes":
		return r.MaxProcesses
	}
	return r.MaxDurationSeconds
}

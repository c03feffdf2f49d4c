package sandboxtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// Reduce is p behind a narrower envelope: change takes capabilities away, and
// what the envelope no longer offers is refused as the contract says or is no
// longer there. change must leave the provider's tuple as it is and the
// envelope valid; it may be called often and by many goroutines.
//
// Blocks: Optional asks p for its envelope first.
// Ownership and concurrency: as of p.
// Source: contract "Optional capabilities: absent versus wrong".
func Reduce(p sandbox.Provider, change func(*sandbox.Capabilities)) sandbox.Provider {
	envelope := func(ctx context.Context) (sandbox.Capabilities, error) {
		c, err := p.Capabilities(ctx)
		if err != nil {
			return c, err
		}
		// change may edit the lists in place, which may be p's own.
		c.Tiers, c.Platforms, c.FixedBaseImages = slices.Clone(c.Tiers), slices.Clone(c.Platforms), slices.Clone(c.FixedBaseImages)
		c.PackageManagers, c.NetworkModes, c.RetentionModes = slices.Clone(c.PackageManagers), slices.Clone(c.NetworkModes), slices.Clone(c.RetentionModes)
		change(&c)
		return c, nil
	}
	none := sandbox.Handoff[sandbox.Instance]{}
	return Override{
		Provider:         p,
		CapabilitiesFunc: envelope,
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			c, err := envelope(ctx)
			if err == nil {
				err = unmet(sandbox.OpProvision, c, q)
			}
			if err != nil {
				return none, err
			}
			return p.Provision(ctx, q)
		},
		WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			c, err := envelope(ctx)
			if err != nil {
				return err
			}
			if w.Symlink != "" && !c.SymlinkStaging {
				return sandbox.Failed(sandbox.OpWriteFile, sandbox.ReasonInvalidRequest, &sandbox.Invalid{Field: "symlink", Expected: "none without symlink_staging", Got: w.Symlink})
			}
			return p.WriteFile(ctx, id, w)
		},
		CloneSnapshotFunc: func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			c, err := envelope(ctx)
			switch {
			case err != nil:
			case !c.Snapshots:
				err = sandbox.Unavailable(sandbox.OpCloneSnapshot, sandbox.RequireSnapshots, "snapshots: true", "snapshots: false")
			case !c.SnapshotClone:
				err = sandbox.Unavailable(sandbox.OpCloneSnapshot, sandbox.RequireSnapshotClone, "snapshot_clone: true", "snapshot_clone: false")
			default:
				return p.CloneSnapshot(ctx, q)
			}
			return sandbox.Handoff[sandbox.Snapshot]{}, err
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			c, err := envelope(ctx)
			if err == nil && !c.Snapshots {
				err = sandbox.Unavailable(sandbox.OpResume, sandbox.RequireSnapshots, "snapshots: true", "snapshots: false")
			}
			if err == nil {
				err = unmet(sandbox.OpResume, c, q.Request)
			}
			if err != nil {
				return none, err
			}
			return p.Resume(ctx, q)
		},
		Members: func(o *sandbox.Optional) {
			c, err := envelope(context.Background())
			if err != nil || !c.ListDir {
				o.ListDir = nil
			}
			if err != nil || !c.ActiveMountWrite {
				o.ActiveWrite = nil
			}
			if open := o.OpenProcess; open != nil && err == nil {
				o.OpenProcess = OpenProcessFunc(func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
					live, err := open.OpenProcess(ctx, id, processID, q)
					if err != nil {
						return nil, err
					}
					e := live.Evidence()
					e.Enforcement = c.Enforcement
					return stating{live, e}, nil
				})
			}
		},
	}
}

// unmet refuses a well-formed request for the first thing that c does not
// offer, in the order of sandbox.Requirements.
func unmet(op sandbox.Operation, c sandbox.Capabilities, q sandbox.ProvisionRequest) error {
	if q.Validate() != nil {
		return nil // for the provider inside to say
	}
	c = c.WithDefaults()
	lacks := func(r sandbox.Requirement, wanted, offered any) error {
		return sandbox.Unavailable(op, r, fmt.Sprint(wanted), fmt.Sprint(offered))
	}
	f := q.Profile
	switch {
	case !slices.Contains(c.Tiers, f.Tier):
		return lacks(sandbox.RequireTier, f.Tier, c.Tiers)
	case !slices.Contains(c.Platforms, q.Platform):
		return lacks(sandbox.RequirePlatform, q.Platform, c.Platforms)
	case c.ImageMode == sandbox.ImageFixed && !slices.Contains(c.FixedBaseImages, f.BaseImage):
		return lacks(sandbox.RequireBaseImage, f.BaseImage, c.FixedBaseImages)
	case slices.ContainsFunc(f.Packages, func(p sandbox.Package) bool { return !slices.Contains(c.PackageManagers, p.Manager) }):
		return lacks(sandbox.RequirePackages, f.Packages[0].Manager, c.PackageManagers)
	}
	if short := grade.Network(c, f.NetworkPolicy); short != nil {
		return lacks(sandbox.RequireNetworkPolicy, short.Wanted, short.Offered)
	}
	switch {
	case !slices.Contains(c.RetentionModes, f.RetentionMode):
		return lacks(sandbox.RequireRetention, f.RetentionMode, c.RetentionModes)
	}
	if axis := f.ResourceLimits.Within(c.MinimumResources, c.MaximumResources); axis != "" {
		return lacks(sandbox.RequireResources, axis, "")
	}
	if int64(len(q.Mounts)) > c.MaxMounts {
		return lacks(sandbox.RequireMounts, len(q.Mounts), c.MaxMounts)
	}
	return nil
}

// ClosedReads is p without trusted reads: readFile fails closed on
// physically_contained_file_read and readFiles is absent.
// Source: contract "Paths, mounts, and what the Runner admits first".
func ClosedReads(p sandbox.Provider) sandbox.Provider {
	return Override{
		Provider: p,
		ReadFileFunc: func(context.Context, sandbox.InstanceID, sandbox.FileRead) ([]byte, error) {
			return nil, sandbox.Unavailable(sandbox.OpReadFile, sandbox.RequireContainedRead, "physically contained reads", "none")
		},
		Members: func(o *sandbox.Optional) { o.ReadFiles = nil },
	}
}

// DayOne is p as the concept's day-one tier: zero retention, no snapshots, no
// network, and no optional member. It skips four of the nine cases.
// Source: concept "The day-one tier".
func DayOne(p sandbox.Provider) sandbox.Provider {
	return Reduce(Override{Provider: p, Members: func(o *sandbox.Optional) { *o = sandbox.Optional{} }}, dayOne)
}

func dayOne(c *sandbox.Capabilities) {
	c.RetentionModes = []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR}
	c.NetworkModes = []sandbox.NetworkMode{sandbox.NetworkNone}
	c.EgressCertification = sandbox.EgressUnsupported
	c.SnapshotCustody = sandbox.CustodyRunner
	c.Snapshots, c.SnapshotClone, c.ActiveMountWrite, c.ListDir = false, false, false, false
}

// Minimum is p as the contract's minimum provider: the day-one tier without
// mounts and with readFile failing closed. It skips six of the nine cases.
// Source: contract "A minimum provider".
func Minimum(p sandbox.Provider) sandbox.Provider {
	return Reduce(ClosedReads(DayOne(p)), func(c *sandbox.Capabilities) {
		c.MaxMounts = 0
		c.PackageManagers = []sandbox.PackageManager{}
		c.Enforcement = grade.Cap(c.Enforcement, sandbox.ProviderAttested)
	})
}

// DockerPosture is p without an egress guard: everything but the allowlist. It
// skips one of the nine cases.
// Source: grading "The current posture", row Docker.
func DockerPosture(p sandbox.Provider) sandbox.Provider {
	return Reduce(p, func(c *sandbox.Capabilities) {
		c.NetworkModes = slices.DeleteFunc(c.NetworkModes, func(m sandbox.NetworkMode) bool { return m == sandbox.NetworkAllowlist })
		c.EgressCertification = sandbox.EgressUnsupported
	})
}

package sandboxtest

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// envelopeFaults claim what is not so.
func envelopeFaults() []Saboteur {
	form := func(id, fault string, change func(c *sandbox.Capabilities)) Saboteur {
		return Saboteur{ID: id, Fault: fault, Kills: "envelope.valid/form", Wrap: claiming(change)}
	}
	provider := func(c *sandbox.Capabilities) { c.SnapshotCustody = sandbox.CustodyProvider }
	bare := func(c *sandbox.Capabilities) {
		c.Snapshots, c.SnapshotClone, c.SnapshotCustody = false, false, sandbox.CustodyRunner
		c.RetentionModes = []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR}
	}
	return []Saboteur{
		form("E1", "durable without snapshots", func(c *sandbox.Capabilities) {
			bare(c)
			c.RetentionModes = append(c.RetentionModes, sandbox.RetentionDurable)
		}),
		form("E2", "fixed images, and none of them", func(c *sandbox.Capabilities) { c.ImageMode, c.FixedBaseImages = sandbox.ImageFixed, nil }),
		form("E3", "images of profiles, and a list of fixed ones", func(c *sandbox.Capabilities) { c.ImageMode, c.FixedBaseImages = sandbox.ImageProfile, images("e3") }),
		form("E4", "custody of snapshots that cannot be taken", func(c *sandbox.Capabilities) { bare(c); provider(c) }),
		form("E5", "clones without snapshots", func(c *sandbox.Capabilities) { bare(c); c.SnapshotClone = true }),
		{ID: "E6", Fault: "a third party says that the Runner enforces", Kills: "envelope.ceiling/enforcement.sandbox_isolation", Remote: true,
			Wrap: claiming(func(c *sandbox.Capabilities) { c.Enforcement.SandboxIsolation = sandbox.RunnerEnforced })},
		{ID: "E7", Fault: "another envelope at the second call", Kills: "envelope.unchanging/same-bytes", Wrap: claimingLater(func(c *sandbox.Capabilities) { c.MaxMounts-- })},
		form("E8", "a tier twice", func(c *sandbox.Capabilities) { c.Tiers = append(c.Tiers, c.Tiers...) }),
		form("E8b", "no network mode at all", func(c *sandbox.Capabilities) { c.NetworkModes = []sandbox.NetworkMode{} }),
		{ID: "E9", Fault: "list_dir claimed, no such member", Kills: "envelope.members/list_dir", Wrap: lacking(func(o *sandbox.Optional) { o.ListDir = nil })},
		{ID: "E9b", Fault: "active_mount_write claimed, no such member", Kills: "envelope.members/active_mount_write", Wrap: lacking(func(o *sandbox.Optional) { o.ActiveWrite = nil })},
		form("E10", "a minimum over the maximum", func(c *sandbox.Capabilities) { c.MinimumResources.DiskBytes = c.MaximumResources.DiskBytes + 1 }),
		form("E11", "eight axes of nine", func(c *sandbox.Capabilities) { c.Enforcement.MountsSealed = "" }),
		{ID: "E12", Fault: "attests its own security boundary", Kills: "envelope.ceiling/egress_certification",
			Wrap: claiming(func(c *sandbox.Capabilities) { c.EgressCertification = sandbox.EgressSecurityBoundary })},

		{ID: "E13", Fault: "snapshots claimed, capture always fails", Kills: "envelope.capture-served/capture", Wrap: capturing(func(sandbox.ProvisionRequest) bool { return false })},
		{ID: "E14", Fault: "clones claimed, cloning always fails", Kills: "envelope.clone-served/clone", Wrap: cloning(func(sandbox.ProvisionRequest) bool { return false })},
		{ID: "E16", Fault: "claims one architecture, runs another", Kills: "envelope.platform-served/architecture", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return disguised(p, env, func(q *sandbox.ProvisionRequest) bool {
				q.Platform.Architecture = map[string]string{"amd64": "arm64", "arm64": "amd64"}[q.Platform.Architecture]
				return true
			})
		}},
		{ID: "E17", Fault: "claims pip, cannot install", Kills: "envelope.packages-served/served",
			Wrap: claiming(func(c *sandbox.Capabilities) { c.PackageManagers = []sandbox.PackageManager{sandbox.ManagerPip} })},
		{ID: "E18", Fault: "claims all mounts, drops the ninth silently", Kills: "envelope.mounts-served/visible", Wrap: droppingMounts},

		{ID: "E19", Fault: "captures small mount plans only", Kills: "envelope.capture-served/capture", Wrap: capturing(func(q sandbox.ProvisionRequest) bool { return len(q.Mounts) < 6 })},
		{ID: "E20", Fault: "clones small mount plans only", Kills: "envelope.clone-served/clone", Wrap: cloning(func(q sandbox.ProvisionRequest) bool { return len(q.Mounts) < 5 })},
		{ID: "E21", Fault: "claims a minimum that it refuses", Kills: "envelope.resources-served/minimum",
			Wrap: refusing(sandbox.RequireResources, func(q *sandbox.ProvisionRequest) bool { return q.Profile.ResourceLimits.MemoryBytes < 1<<20 })},
		{ID: "E22", Fault: "claims a maximum that it refuses", Kills: "envelope.resources-served/maximum",
			Wrap: refusing(sandbox.RequireResources, func(q *sandbox.ProvisionRequest) bool { return q.Profile.ResourceLimits.MemoryBytes > 1<<40 })},
		{ID: "E23", Fault: "claims a fixed image that it does not have", Kills: "envelope.images-served/served", Wrap: missingImage},
		{ID: "E24", Fault: "claims a tier that it does not have", Kills: "envelope.choices-served/tier",
			Wrap: claiming(func(c *sandbox.Capabilities) { c.Tiers = []sandbox.Tier{sandbox.TierContainer, sandbox.TierMicroVM} })},
		{ID: "E25", Fault: "claims unrestricted egress and refuses it", Kills: "envelope.choices-served/network", Suite: report.Contract,
			Wrap: refusing(sandbox.RequireNetworkPolicy, func(q *sandbox.ProvisionRequest) bool {
				return q.Profile.NetworkPolicy.Mode == sandbox.NetworkUnrestricted
			})},
	}
}

func images(name string) []string {
	return []string{"registry.invalid/" + name + "@sha256:" + strings.Repeat("ab", 32), "registry.invalid/" + name + "@sha256:" + strings.Repeat("cd", 32)}
}

// claiming changes the envelope.
func claiming(change func(c *sandbox.Capabilities)) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) {
			c, err := p.Capabilities(ctx)
			change(&c)
			env.Fire()
			return c, err
		}}
	}
}

// claimingLater changes the envelope from the second call on.
func claimingLater(change func(c *sandbox.Capabilities)) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var mu sync.Mutex
		asked := false
		return Override{Provider: p, CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) {
			mu.Lock()
			defer mu.Unlock()
			c, err := p.Capabilities(ctx)
			if asked {
				change(&c)
				env.Fire()
			}
			asked = true
			return c, err
		}}
	}
}

// lacking takes an optional member away.
func lacking(change func(o *sandbox.Optional)) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, Members: func(o *sandbox.Optional) { env.Fire(); change(o) }}
	}
}

// refusing refuses requests that the envelope admits.
func refusing(requirement sandbox.Requirement, which func(q *sandbox.ProvisionRequest) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			if which(&q) {
				env.Fire()
				return sandbox.Handoff[sandbox.Instance]{}, sandbox.Unavailable(sandbox.OpProvision, requirement, "", "")
			}
			return p.Provision(ctx, q)
		}}
	}
}

// missingImage claims two fixed images and has the first.
func missingImage(p sandbox.Provider, env *Env) sandbox.Provider {
	fixed := images("fixed")
	refuse := refusing(sandbox.RequireBaseImage, func(q *sandbox.ProvisionRequest) bool { return q.Profile.BaseImage == fixed[1] })(p, env)
	return claiming(func(c *sandbox.Capabilities) { c.ImageMode, c.FixedBaseImages = sandbox.ImageFixed, fixed })(refuse, &Env{Fire: func() {}})
}

// capturing fails to capture the instances of some requests.
func capturing(can func(q sandbox.ProvisionRequest) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		o, requests := remembering(p)
		o.SnapshotFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			if request, ours := requests.get(id); ours && !can(request) {
				env.Fire()
				return sandbox.Handoff[sandbox.Snapshot]{}, sandbox.Failed(sandbox.OpSnapshot, sandbox.ReasonProviderError, nil)
			}
			return p.Snapshot(ctx, id, q)
		}
		return o
	}
}

// cloning fails to clone the snapshots of some requests.
func cloning(can func(q sandbox.ProvisionRequest) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		o, requests := remembering(p)
		o.CloneSnapshotFunc = func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			if request, ours := requests.get(q.Snapshot.SourceInstanceID); ours && !can(request) {
				env.Fire()
				return sandbox.Handoff[sandbox.Snapshot]{}, sandbox.Failed(sandbox.OpCloneSnapshot, sandbox.ReasonProviderError, nil)
			}
			return p.CloneSnapshot(ctx, q)
		}
		return o
	}
}

// droppingMounts prepares eight mounts and takes every write.
func droppingMounts(p sandbox.Provider, env *Env) sandbox.Provider {
	inner := disguised(p, env, func(q *sandbox.ProvisionRequest) bool {
		if len(q.Mounts) <= 8 {
			return false
		}
		q.Mounts = q.Mounts[:8]
		return true
	})
	return Override{Provider: inner, WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
		err := inner.WriteFile(ctx, id, w)
		if errors.Is(err, sandbox.Failed("", sandbox.ReasonOutsideRoot, nil)) && strings.HasPrefix(w.Path, "/workspace/") {
			return nil
		}
		return err
	}}
}

package sandboxtest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// asked is a request that the memory provider serves.
func asked(c sandbox.Capabilities) sandbox.ProvisionRequest {
	return sandbox.ProvisionRequest{
		WorkspaceID: "ws_1", SessionID: "ses_1", RunID: "run_1", AttemptID: "att_1", LeaseID: "lease_1", LeaseEpoch: 1,
		Target: c.Target(), Platform: c.Platforms[0], RootImage: oracle.Image, Mounts: []sandbox.Mount{}, ExpiresAt: "9999-01-01T00:00:00.000Z",
		Profile: sandbox.Profile{
			ProfileID: "prof_1", ProfileVersion: 1, Tier: c.Tiers[0], BaseImage: oracle.Image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 10, MemoryBytes: 1 << 20, DiskBytes: 1 << 20, MaxProcesses: 8, MaxDurationSeconds: 60},
			RetentionMode:  sandbox.RetentionEphemeralZDR,
		},
	}
}

func TestReducedEnvelopesRefuseWhatTheyLack(t *testing.T) {
	type change = func(*sandbox.Capabilities)
	same := func(*sandbox.ProvisionRequest) {}
	for _, c := range []struct {
		lacks  sandbox.Requirement // "": it is served
		change change
		want   func(*sandbox.ProvisionRequest)
	}{
		{"", func(*sandbox.Capabilities) {}, same},
		{sandbox.RequireTier, func(c *sandbox.Capabilities) { c.Tiers = []sandbox.Tier{sandbox.TierMicroVM} }, same},
		{sandbox.RequirePlatform, func(c *sandbox.Capabilities) { c.Platforms = c.Platforms[1:] }, same},
		{sandbox.RequireBaseImage, func(c *sandbox.Capabilities) {
			c.ImageMode, c.FixedBaseImages = sandbox.ImageFixed, []string{"registry.invalid/other" + oracle.Image[len("registry.invalid/oracle"):]}
		}, same},
		{sandbox.RequirePackages, func(*sandbox.Capabilities) {}, func(q *sandbox.ProvisionRequest) {
			q.Profile.Packages = []sandbox.Package{{Manager: sandbox.ManagerApt, Name: "git"}}
		}},
		{sandbox.RequireNetworkPolicy, func(c *sandbox.Capabilities) { c.NetworkModes = c.NetworkModes[1:] }, same},
		{sandbox.RequireNetworkPolicy, func(c *sandbox.Capabilities) { c.EgressCertification = "" }, func(q *sandbox.ProvisionRequest) {
			q.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}}
		}},
		{sandbox.RequireRetention, func(c *sandbox.Capabilities) { c.RetentionModes = c.RetentionModes[:1] }, same},
		{sandbox.RequireResources, func(c *sandbox.Capabilities) { c.MaximumResources.DiskBytes = 1<<20 - 1 }, same},
		{sandbox.RequireMounts, func(c *sandbox.Capabilities) { c.MaxMounts = 0 }, func(q *sandbox.ProvisionRequest) {
			q.Mounts = []sandbox.Mount{{MountPath: "/workspace/a", Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit}}
		}},
	} {
		t.Run(string(c.lacks), func(t *testing.T) {
			inner := memory.New(memory.Options{})
			p := sandboxtest.Reduce(inner, c.change)
			full, err := inner.Capabilities(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			q := asked(full)
			c.want(&q)
			for _, call := range []struct {
				op  sandbox.Operation
				err func() error
			}{
				{sandbox.OpProvision, func() error { _, err := p.Provision(t.Context(), q); return err }},
				{sandbox.OpResume, func() error {
					_, err := p.Resume(t.Context(), sandbox.ResumeRequest{Request: q})
					return err
				}},
			} {
				err := call.err()
				if got := errors.Is(err, sandbox.Unavailable(call.op, c.lacks, "", "")); c.lacks != "" && !got || c.lacks == "" && call.op == sandbox.OpProvision && err != nil {
					t.Errorf("%s: %v", call.op, err)
				}
			}
			// A request that is no request is the provider's to refuse.
			q.LeaseEpoch = -1
			if _, err := p.Provision(t.Context(), q); !errors.Is(err, sandbox.Failed(sandbox.OpProvision, sandbox.ReasonInvalidRequest, nil)) && c.lacks != sandbox.RequireMounts {
				t.Errorf("malformed: %v", err)
			}
			after, err := inner.Capabilities(t.Context())
			if err != nil || !slices.Equal(after.Tiers, full.Tiers) || !slices.Equal(after.NetworkModes, full.NetworkModes) {
				t.Errorf("the provider inside was changed: %+v %v", after, err)
			}
		})
	}
}

func TestReducedMembers(t *testing.T) {
	ctx := t.Context()
	inner := memory.New(memory.Options{})
	c, err := inner.Capabilities(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range []func(sandbox.Provider) sandbox.Provider{sandboxtest.DayOne, sandboxtest.Minimum} {
		p := tier(inner)
		if o := p.Optional(); o != (sandbox.Optional{}) {
			t.Errorf("optional members: %+v", o)
		}
		_, err := p.CloneSnapshot(ctx, sandbox.CloneRequest{})
		if !errors.Is(err, sandbox.Unavailable(sandbox.OpCloneSnapshot, sandbox.RequireSnapshots, "", "")) {
			t.Errorf("clone: %v", err)
		}
		_, err = p.Resume(ctx, sandbox.ResumeRequest{Request: asked(c)})
		if !errors.Is(err, sandbox.Unavailable(sandbox.OpResume, sandbox.RequireSnapshots, "", "")) {
			t.Errorf("resume: %v", err)
		}
		h, err := p.Provision(ctx, asked(c))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Activate(ctx, h.Value.InstanceID); err != nil {
			t.Fatal(err)
		}
		_, err = p.Snapshot(ctx, h.Value.InstanceID, sandbox.SnapshotRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
		if !errors.Is(err, sandbox.Forbidden(sandbox.OpSnapshot, h.Value.InstanceID)) {
			t.Errorf("snapshot: %v", err)
		}
		if err := h.Rollback(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}
	_, err = sandboxtest.Minimum(inner).ReadFile(ctx, "i", sandbox.FileRead{})
	if !errors.Is(err, sandbox.Unavailable(sandbox.OpReadFile, sandbox.RequireContainedRead, "", "")) {
		t.Errorf("read: %v", err)
	}
	p := sandboxtest.Reduce(inner, func(c *sandbox.Capabilities) { c.SnapshotClone, c.SymlinkStaging = false, false })
	_, err = p.CloneSnapshot(ctx, sandbox.CloneRequest{})
	if !errors.Is(err, sandbox.Unavailable(sandbox.OpCloneSnapshot, sandbox.RequireSnapshotClone, "", "")) {
		t.Errorf("clone: %v", err)
	}
	err = p.WriteFile(ctx, "i", sandbox.FileWrite{Path: "/workspace/a/b", Symlink: "c"})
	if !errors.Is(err, sandbox.Failed(sandbox.OpWriteFile, sandbox.ReasonInvalidRequest, nil)) {
		t.Errorf("link: %v", err)
	}
}

// TestTiersStayGreenInEverySuite runs everything against the reduced tiers:
// what a probe does not require it must not use.
func TestTiersStayGreenInEverySuite(t *testing.T) {
	restated := func(p sandbox.Provider) sandbox.Provider {
		return sandboxtest.Reduce(p, func(c *sandbox.Capabilities) {
			c.Enforcement = sandbox.EnforcedBy(sandbox.GuestObserved)
			c.MaxMounts = 3
		})
	}
	for name, tier := range map[string]func(sandbox.Provider) sandbox.Provider{
		"day-one": sandboxtest.DayOne, "minimum": sandboxtest.Minimum, "docker": sandboxtest.DockerPosture, "restated": restated,
		"closed": func(p sandbox.Provider) sandbox.Provider { return sandboxtest.ClosedReads(sandboxtest.DayOne(p)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sandboxtest.Saboteur{ID: name, Wrap: func(p sandbox.Provider, _ *sandboxtest.Env) sandbox.Provider { return tier(p) }}
			if name == "closed" {
				s.Withhold = []report.Token{report.Filesystem}
			}
			rep, _ := suitecheck.Run(t.Context(), s, "", report.Suites()...)
			if rep.ExitCode == report.ExitConformant {
				return
			}
			t.Errorf("exit %d: %s", rep.ExitCode, rep.Reason)
			for _, row := range rep.Rows() {
				if row.Status != report.Pass && row.Status != report.Skip {
					t.Logf("%s %s %s: %+v", row.ID, row.Status, row.Reason, row.Findings)
				}
			}
		})
	}
}

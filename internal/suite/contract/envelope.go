package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// envelope holds the target to what selection read in its envelope. The form
// of the envelope is a standing check.
func envelope() []probe.Probe {
	const concept = `concept "The capability envelope"`
	const absent = `contract "Optional capabilities: absent versus wrong"`
	return []probe.Probe{
		{
			ID: "envelope.capture-served", Suite: report.Contract, Clause: "CF-CE-01", Source: absent,
			Title:    "snapshots are claimed and can be captured, whatever the mount plan",
			Requires: []report.Token{report.SnapshotToken, report.Durable}, Run: captureServed,
		},
		{
			ID: "envelope.clone-served", Suite: report.Contract, Clause: "CF-CE-02", Source: absent,
			Title:    "clones are claimed and can be made, whatever the mount plan",
			Requires: []report.Token{report.SnapshotToken, report.Durable, report.SnapshotClone}, Run: cloneServed,
		},
		{
			ID: "envelope.platform-served", Suite: report.Contract, Clause: "CF-CE-03", Source: concept,
			Title:    "a machine runs on the architecture that was claimed and asked for",
			Requires: []report.Token{report.Process}, Run: platformServed,
		},
		{
			ID: "envelope.packages-served", Suite: report.Contract, Clause: "CF-CE-04", Source: concept,
			Title: "every package manager that is claimed takes a package", Once: true, Run: packagesServed,
		},
		{
			ID: "envelope.mounts-served", Suite: report.Contract, Clause: "CF-CE-05", Source: concept,
			Title:    "a plan of max_mounts mounts is served whole",
			Requires: []report.Token{report.Mounts}, Run: mountsServed,
		},
		{
			ID: "envelope.resources-served", Suite: report.Contract, Clause: "CF-CE-06", Source: concept,
			Title: "both ends of the claimed range of resources are served", Run: resourcesServed,
		},
		{
			ID: "envelope.images-served", Suite: report.Contract, Clause: "CF-CE-07", Source: concept,
			Title: "every fixed image that is claimed is served", Run: imagesServed,
		},
		{
			ID: "envelope.choices-served", Suite: report.Contract, Clause: "CF-CE-08", Source: concept,
			Title: "every claimed tier, network mode and retention mode is served", Run: choicesServed,
		},
	}
}

// later is a retention deadline that is good for the length of a probe.
func later(t *probe.T) sandbox.Timestamp { return sandbox.At(t.Now().Add(time.Hour)) }

// plan is a mount plan of n mounts, in an order that sorting would change.
func plan(t *probe.T, n int64, access ...sandbox.Access) []sandbox.Mount {
	kinds := []sandbox.MountKind{sandbox.MountProject, sandbox.MountMemory, sandbox.MountGit}
	n = min(n, t.Envelope().MaxMounts, sandbox.MaxMounts)
	mounts := make([]sandbox.Mount, n)
	for i := range mounts {
		mounts[i] = sandbox.Mount{
			MountPath: fmt.Sprintf("/workspace/%02d-%s", int(n)-i, t.Nonce()),
			Access:    access[i%len(access)], Kind: kinds[i%len(kinds)],
		}
	}
	return mounts
}

// captured captures a machine of n mounts: more than other probes have, for
// capture has to be of all of them.
func captured(t *probe.T, n int64) (sandbox.Snapshot, error) {
	m := t.Machine(probe.Durable(probe.Shape{Mounts: plan(t, n, sandbox.AccessReadWrite, sandbox.AccessReadOnly)}))
	h, err := t.Provider().Snapshot(t.Context(), m.ID, sandbox.SnapshotRequest{ExpiresAt: later(t)})
	return h.Value, err
}

func captureServed(t *probe.T) {
	_, err := captured(t, 6)
	t.Served("capture", err == nil, "a snapshot", err)
}

func cloneServed(t *probe.T) {
	s, err := captured(t, 5)
	t.Need("capture", err)
	_, err = t.Provider().CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: s, TargetSessionID: t.ID("ses_")})
	t.Served("clone", err == nil, "a clone", err)
}

// machines are what uname calls an architecture.
var machines = map[string][]string{"amd64": {"x86_64"}, "arm64": {"aarch64", "arm64"}}

func platformServed(t *probe.T) {
	for i, p := range t.Envelope().Platforms {
		q := t.Request(probe.Shape{})
		q.Platform = p
		h, err := t.Provider().Provision(t.Context(), q)
		// The image of this run may be there for one platform only.
		if i > 0 && errors.Is(err, sandbox.Unavailable("", sandbox.RequireBaseImage, "", "")) {
			t.Observe("the image cannot be had for %s/%s", p.OS, p.Architecture)
			continue
		}
		if !t.Served("provision", err == nil, "a machine on "+p.OS+"/"+p.Architecture, err) {
			continue
		}
		_, err = t.Provider().Activate(t.Context(), h.Value.InstanceID)
		t.Need("activate", err)
		s, err := t.Provider().Execute(t.Context(), h.Value.InstanceID, probe.Command("uname -m"))
		t.Need("execute", err)
		got := strings.TrimSpace(string(s.Stdout))
		t.Served("architecture", slices.Contains(machines[p.Architecture], got), strings.Join(machines[p.Architecture], " or "), got)
		t.Need("destroy", t.Provider().Destroy(t.Context(), h.Value.InstanceID))
	}
}

// popular are packages without dependencies that have been there for years.
var popular = map[sandbox.PackageManager]string{
	sandbox.ManagerApt: "tree", sandbox.ManagerCargo: "hexyl", sandbox.ManagerGem: "rake",
	sandbox.ManagerGo: "rsc.io/hello", sandbox.ManagerNpm: "left-pad", sandbox.ManagerPip: "six",
}

func packagesServed(t *probe.T) {
	t.Check("claims", true, "", nil)
	if len(t.Envelope().PackageManagers) == 0 {
		t.Observe("no package manager is claimed")
	}
	for _, manager := range t.Envelope().PackageManagers {
		q := t.Request(probe.Shape{})
		q.Profile.Packages = []sandbox.Package{{Manager: manager, Name: popular[manager]}}
		// To install takes as long as a registry takes; the target is not to be
		// taken for one that hangs.
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
		_, err := t.Provider().Provision(ctx, q)
		cancel()
		refused := errors.Is(err, sandbox.Unavailable("", sandbox.RequirePackages, "", ""))
		t.Served("served", !refused, "packages by "+string(manager), err)
		// Whoever has no registry within reach cannot be told from one that
		// installs nothing.
		if err != nil && !refused {
			t.Observe("%s did not install %s: %v", manager, popular[manager], err)
		}
	}
}

func mountsServed(t *probe.T) {
	mounts := plan(t, sandbox.MaxMounts, sandbox.AccessReadOnly, sandbox.AccessReadWrite)
	var script, want strings.Builder
	s := probe.Shape{Mounts: mounts}
	for _, m := range mounts {
		content := t.Nonce() + "\n"
		s.Files = append(s.Files, sandbox.FileWrite{Path: m.MountPath + "/name", Content: []byte(content)})
		fmt.Fprintf(&script, "cat %s/name\n", m.MountPath)
		want.WriteString(content)
	}
	got := t.Machine(s).Sh(script.String())
	t.Served("visible", string(got.Stdout) == want.String(), fmt.Sprintf("the file of each of %d mounts", len(mounts)),
		fmt.Sprintf("%d of their lines", strings.Count(string(got.Stdout), "\n")))
}

func resourcesServed(t *probe.T) {
	c := t.Envelope()
	ends := map[string]sandbox.Resources{"minimum": c.MinimumResources}
	// Where every machine is paid for by its size, the largest is not made only
	// to see it.
	high := c.MaximumResources
	own := c.Placement == sandbox.PlacementLocal || c.Placement == sandbox.PlacementTest
	if own || high.CPUMillis <= 8000 && high.MemoryBytes <= 16<<30 && high.DiskBytes <= 128<<30 {
		ends["maximum"] = high
	} else {
		t.Observe("the largest machine was not tried")
	}
	for _, end := range []string{"minimum", "maximum"} {
		limits, asked := ends[end]
		if !asked {
			continue
		}
		q := t.Request(probe.Shape{})
		q.Profile.ResourceLimits = limits
		h, err := t.Provider().Provision(t.Context(), q)
		if err == nil {
			_, err = t.Provider().Activate(t.Context(), h.Value.InstanceID)
		}
		t.Served(end, err == nil, "a machine of the "+end+" resources", err)
	}
}

func imagesServed(t *probe.T) {
	t.Check("claims", true, "", nil)
	if t.Envelope().ImageMode != sandbox.ImageFixed {
		t.Observe("no image is fixed")
		return
	}
	for _, image := range t.Envelope().FixedBaseImages {
		q := t.Request(probe.Shape{})
		q.Profile.BaseImage, q.RootImage = image, image
		_, err := t.Provider().Provision(t.Context(), q)
		t.Served("served", err == nil, "a machine of "+image, err)
	}
}

func choicesServed(t *probe.T) {
	c := t.Envelope()
	try := func(id, choice string, change func(p *sandbox.Profile)) {
		q := t.Request(probe.Shape{})
		change(&q.Profile)
		_, err := t.Provider().Provision(t.Context(), q)
		t.Served(id, err == nil, "a machine with "+choice, err)
	}
	for _, tier := range c.Tiers {
		try("tier", string(tier), func(p *sandbox.Profile) { p.Tier = tier })
	}
	for _, mode := range c.RetentionModes {
		try("retention", string(mode), func(p *sandbox.Profile) { p.RetentionMode = mode })
	}
	for _, mode := range c.NetworkModes {
		policy := sandbox.NetworkPolicy{Mode: mode}
		if mode == sandbox.NetworkAllowlist {
			policy.Destinations = []sandbox.Destination{}
			if grade.Network(c, policy) != nil {
				t.Observe("allowlist is claimed at a grade that no allowlist selects")
				continue
			}
		}
		try("network", string(mode), func(p *sandbox.Profile) { p.NetworkPolicy = policy })
	}
}

package sandboxruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/google/go-cmp/cmp"
)

func wanted(f *fake) sandboxruntime.Wanted {
	q := request(f, durable)
	return sandboxruntime.Wanted{Target: q.Target, Profile: q.Profile, Platform: q.Platform, RootImage: q.RootImage, Mounts: q.Mounts}
}

// TestSelection_IsExact: one match or a typed refusal, and no fallback.
func TestSelection_IsExact(t *testing.T) {
	b := newBench(t)
	two := newFake(b.clock)
	for name, change := range map[string]func(*sandbox.Target){
		"provider":                 func(x *sandbox.Target) { x.Provider = "other" },
		"provider_revision":        func(x *sandbox.Target) { x.ProviderRevision = "fake@2" },
		"materialization_revision": func(x *sandbox.Target) { x.MaterializationRevision = "image@2" },
		"placement":                func(x *sandbox.Target) { x.Placement = sandbox.PlacementHosted },
	} {
		w := wanted(b.fake)
		change(&w.Target)
		_, err := sandboxruntime.Select(b.ctx, []sandboxruntime.Adapter{{Provider: b.fake}}, w)
		if !errors.Is(err, &sandboxruntime.Error{Kind: sandboxruntime.AdapterUnavailable}) {
			t.Error(name, err)
		}
	}
	_, err := sandboxruntime.Select(b.ctx, nil, wanted(b.fake))
	if !errors.Is(err, &sandboxruntime.Error{Kind: sandboxruntime.AdapterUnavailable}) {
		t.Error(err)
	}
	_, err = sandboxruntime.Select(b.ctx, []sandboxruntime.Adapter{{Provider: b.fake}, {Provider: two, Remote: true}}, wanted(b.fake))
	if !errors.Is(err, &sandboxruntime.Error{Kind: sandboxruntime.AdapterAmbiguous}) {
		t.Error(err)
	}
	w := wanted(b.fake)
	w.Target.Provider = "Fake"
	if _, err := sandboxruntime.Select(b.ctx, nil, w); !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := sandboxruntime.Select(ctx, []sandboxruntime.Adapter{{Provider: b.fake}}, wanted(b.fake)); err != context.Canceled {
		t.Error(err)
	}
}

// TestSelection_OneBadProviderDoesNotStopAnothersRuns: down, panicking, absent
// or silent neighbours. The silent one costs 30 s of the clock.
func TestSelection_OneBadProviderDoesNotStopAnothersRuns(t *testing.T) {
	b := newBench(t)
	let, asked := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(let) })
	bad := func(hook func(context.Context) error) sandboxruntime.Adapter {
		f := newFake(b.clock)
		f.on[sandbox.OpCapabilities] = hook
		return sandboxruntime.Adapter{Provider: f}
	}
	adapters := []sandboxruntime.Adapter{
		bad(func(context.Context) error { return sandbox.Failed(sandbox.OpCapabilities, "down", nil) }),
		bad(func(context.Context) error { panic("bug") }),
		{},
		bad(func(context.Context) error { close(asked); <-let; return nil }),
		{Provider: b.fake},
	}
	type answer struct {
		r   *sandboxruntime.Runtime
		err error
	}
	done := make(chan answer, 1)
	go func() { r, err := b.selector(adapters...).Select(b.ctx, wanted(b.fake)); done <- answer{r, err} }()
	<-asked
	b.await(1) // the others have answered
	b.clock.Advance(30 * time.Second)
	if a := <-done; a.err != nil || a.r.Capabilities().Provider != "fake" {
		t.Error(a.err)
	}
	_, err := b.selector(adapters[:3]...).Select(b.ctx, wanted(b.fake))
	if !errors.Is(err, &sandboxruntime.Error{Kind: sandboxruntime.AdapterUnavailable}) || !strings.Contains(err.Error(), "down") {
		t.Error("the reasons are missing:", err)
	}
}

// TestSelection_EveryRequirement: each is refused typed, before any provider
// work, and with what was wanted and what is offered.
func TestSelection_EveryRequirement(t *testing.T) {
	big := func(axis func(*sandbox.Resources)) func(*sandboxruntime.Wanted) {
		return func(w *sandboxruntime.Wanted) { axis(&w.Profile.ResourceLimits) }
	}
	policy := func(p sandbox.NetworkPolicy) func(*sandboxruntime.Wanted) {
		return func(w *sandboxruntime.Wanted) { w.Profile.NetworkPolicy = p }
	}
	allow := func(required sandbox.EgressCertification) func(*sandboxruntime.Wanted) {
		return policy(sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}, RequiredEgressCertification: required})
	}
	grade := func(e sandbox.EgressCertification) func(*fake) {
		return func(f *fake) { f.envelope.EgressCertification = e }
	}
	mounts := func(m ...sandbox.Mount) func(*sandboxruntime.Wanted) {
		return func(w *sandboxruntime.Wanted) { w.Mounts = m }
	}
	at := func(path string) sandbox.Mount {
		return sandbox.Mount{MountPath: path, Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit}
	}
	fixed := func(f *fake) { f.envelope.ImageMode, f.envelope.FixedBaseImages = sandbox.ImageFixed, []string{image} }
	other := strings.Replace(image, "base", "other", 1)
	cases := []struct {
		name             string
		provider         func(*fake)
		want             func(*sandboxruntime.Wanted)
		requirement      sandbox.Requirement // "" is met
		expected, actual string
	}{
		{"as it is", nil, nil, "", "", ""},
		{"tier", nil, func(w *sandboxruntime.Wanted) { w.Profile.Tier = sandbox.TierMicroVM }, sandbox.RequireTier, "microvm", "container"},
		{"platform", nil, func(w *sandboxruntime.Wanted) { w.Platform.Architecture = "arm64" }, sandbox.RequirePlatform, "linux/arm64", "linux/amd64"},
		{"fixed image", fixed, func(w *sandboxruntime.Wanted) { w.Profile.BaseImage = other }, sandbox.RequireBaseImage, other, image},
		{"fixed root image", fixed, func(w *sandboxruntime.Wanted) { w.RootImage = other }, sandbox.RequireBaseImage, other, image},
		{"fixed image met", fixed, nil, "", "", ""},
		{"root image by name alone", nil, func(w *sandboxruntime.Wanted) { w.RootImage = "base:latest" }, sandbox.RequireBaseImage, "NAME@sha256:DIGEST", "base:latest"},
		{"packages", func(f *fake) { f.envelope.PackageManagers = []sandbox.PackageManager{sandbox.ManagerApt} }, nil, sandbox.RequirePackages, "pip", "apt"},
		{"mode", nil, policy(sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}), sandbox.RequireNetworkPolicy, "unrestricted", "network_modes none allowlist"},
		{"policy of no shape", nil, policy(sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist}), sandbox.RequireNetworkPolicy, "allowlist", `destinations: expected a list, possibly empty, got "absent"`},
		{"allowlist that names nothing", grade(sandbox.EgressUnsupported), allow(""), sandbox.RequireNetworkPolicy, "allowlist", "unsupported"},
		{"omitted grade is the weakest", grade(""), allow(""), sandbox.RequireNetworkPolicy, "allowlist", "unsupported"},
		{"none needs no grade", grade(sandbox.EgressUnsupported), policy(sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}), "", "", ""},
		{"advisory met", nil, allow(sandbox.EgressAdvisoryFilter), "", "", ""},
		{"boundary", nil, allow(sandbox.EgressSecurityBoundary), sandbox.RequireNetworkPolicy, "allowlist requiring security_boundary", "advisory_filter"},
		{"unsupported is no spelling", nil, allow(sandbox.EgressUnsupported), sandbox.RequireNetworkPolicy, "allowlist requiring unsupported",
			`required_egress_certification: expected advisory_filter or security_boundary, got "unsupported"`},
		{"retention", func(f *fake) {
			f.envelope.RetentionModes = []sandbox.RetentionMode{zdr}
			f.envelope.Snapshots = false
			f.envelope.SnapshotClone = false
		}, nil,
			sandbox.RequireRetention, "durable", "ephemeral_zdr"},
		{"cpu over", nil, big(func(r *sandbox.Resources) { r.CPUMillis = 4001 }), sandbox.RequireResources, "cpu_millis 4001", "cpu_millis 100 to 4000"},
		{"cpu under", nil, big(func(r *sandbox.Resources) { r.CPUMillis = 99 }), sandbox.RequireResources, "cpu_millis 99", "cpu_millis 100 to 4000"},
		{"memory over", nil, big(func(r *sandbox.Resources) { r.MemoryBytes = 1<<32 + 1 }), sandbox.RequireResources, "memory_bytes 4294967297", "memory_bytes 1048576 to 4294967296"},
		{"disk under", nil, big(func(r *sandbox.Resources) { r.DiskBytes = 1 }), sandbox.RequireResources, "disk_bytes 1", "disk_bytes 1048576 to 4294967296"},
		{"processes over", nil, big(func(r *sandbox.Resources) { r.MaxProcesses = 1025 }), sandbox.RequireResources, "max_processes 1025", "max_processes 1 to 1024"},
		{"duration over", nil, big(func(r *sandbox.Resources) { r.MaxDurationSeconds = 3601 }), sandbox.RequireResources, "max_duration_seconds 3601", "max_duration_seconds 1 to 3600"},
		{"resources at both ends", nil, big(func(r *sandbox.Resources) { r.CPUMillis, r.MaxProcesses = 4000, 1 }), "", "", ""},
		{"reserved root", nil, mounts(at("/workspace/.checkfu")), sandbox.RequireMounts, "", ""},
		{"parent of a reserved root", nil, mounts(at("/workspace")), sandbox.RequireMounts, "", ""},
		{"below a reserved root", nil, mounts(at("/mnt/session/outputs/x")), sandbox.RequireMounts, "", ""},
		{"conflict", nil, mounts(at("/a"), at("/a")), sandbox.RequireMounts, "", ""},
		{"nesting", nil, mounts(at("/a"), at("/a/b")), "", "", ""},
		{"max_mounts", func(f *fake) { f.envelope.MaxMounts = 1 }, mounts(at("/a"), at("/b")), sandbox.RequireMounts, "2 mounts", "max_mounts 1"},
		{"max_mounts met", func(f *fake) { f.envelope.MaxMounts = 2 }, mounts(at("/a"), at("/b")), "", "", ""},
		{"no mounts", func(f *fake) { f.envelope.MaxMounts = 0 }, mounts(), "", "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			if c.provider != nil {
				c.provider(b.fake)
			}
			w := wanted(b.fake)
			if c.want != nil {
				c.want(&w)
			}
			_, err := b.selector(sandboxruntime.Adapter{Provider: b.fake}).Select(b.ctx, w)
			if c.requirement == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			want := sandbox.Unavailable(sandboxruntime.OpSelect, c.requirement, c.expected, c.actual)
			if !errors.Is(err, want) {
				t.Errorf("got  %v\nwant %v", err, want)
			}
			if n := b.called(sandbox.OpProvision); n != 0 {
				t.Error("provider work was started")
			}
		})
	}
	for _, root := range sandbox.ReservedRoots() {
		b := newBench(t)
		w := wanted(b.fake)
		w.Mounts = []sandbox.Mount{at(root)}
		if _, err := sandboxruntime.Select(b.ctx, []sandboxruntime.Adapter{{Provider: b.fake}}, w); !errors.Is(err, &sandbox.Error{Requirement: sandbox.RequireMounts}) {
			t.Error(root, err)
		}
	}
}

// TestSelection_RequirementsInOrder: where all are unmet the first is named.
func TestSelection_RequirementsInOrder(t *testing.T) {
	b := newBench(t)
	w := sandboxruntime.Wanted{Target: b.fake.envelope.Target(), Profile: sandbox.Profile{
		Packages:      []sandbox.Package{{Manager: "zypper"}},
		NetworkPolicy: sandbox.NetworkPolicy{Mode: "some"}, RetentionMode: "long"}, RootImage: "x",
		Mounts: []sandbox.Mount{{MountPath: "/proc"}}}
	good := wanted(b.fake)
	repairs := map[sandbox.Requirement]func(){
		sandbox.RequireTier:          func() { w.Profile.Tier = good.Profile.Tier },
		sandbox.RequirePlatform:      func() { w.Platform = good.Platform },
		sandbox.RequireBaseImage:     func() { w.RootImage = good.RootImage },
		sandbox.RequirePackages:      func() { w.Profile.Packages = good.Profile.Packages },
		sandbox.RequireNetworkPolicy: func() { w.Profile.NetworkPolicy = good.Profile.NetworkPolicy },
		sandbox.RequireRetention:     func() { w.Profile.RetentionMode = good.Profile.RetentionMode },
		sandbox.RequireResources:     func() { w.Profile.ResourceLimits = good.Profile.ResourceLimits },
		sandbox.RequireMounts:        func() { w.Mounts = nil },
	}
	var order []sandbox.Requirement
	for range repairs {
		_, err := b.selector(sandboxruntime.Adapter{Provider: b.fake}).Select(b.ctx, w)
		e, ok := errors.AsType[*sandbox.Error](err)
		if !ok || repairs[e.Requirement] == nil {
			t.Fatal(err)
		}
		order = append(order, e.Requirement)
		repairs[e.Requirement]()
	}
	want := []sandbox.Requirement{}
	for _, r := range sandbox.Requirements() {
		if repairs[r] != nil {
			want = append(want, r)
		}
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
	// What is left is form.
	if _, err := b.selector(sandboxruntime.Adapter{Provider: b.fake}).Select(b.ctx, w); !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}) {
		t.Error(err)
	}
}

// TestCapabilityEnvelope_CrossFieldRules are enforced at decode.
func TestCapabilityEnvelope_CrossFieldRules(t *testing.T) {
	for field, lie := range map[string]func(*sandbox.Capabilities){
		"fixed_base_images": func(c *sandbox.Capabilities) { c.ImageMode = sandbox.ImageFixed },
		"retention_modes":   func(c *sandbox.Capabilities) { c.Snapshots, c.SnapshotClone = false, false },
		"snapshot_custody": func(c *sandbox.Capabilities) {
			c.Snapshots, c.SnapshotCustody, c.RetentionModes = false, sandbox.CustodyProvider, []sandbox.RetentionMode{zdr}
		},
		"snapshot_clone": func(c *sandbox.Capabilities) { c.Snapshots, c.RetentionModes = false, []sandbox.RetentionMode{zdr} },
		"tiers":          func(c *sandbox.Capabilities) { c.Tiers = nil },
	} {
		b := newBench(t)
		lie(&b.fake.envelope)
		_, err := b.selector(sandboxruntime.Adapter{Provider: b.fake}).Attach(b.ctx, b.fake.envelope.Target())
		wantField(t, err, sandbox.OpCapabilities, field)
	}
}

// TestCapabilityEnvelope_IsReadOnceAndKept: one call, and a provider that
// changes its slices afterwards changes nothing.
func TestCapabilityEnvelope_IsReadOnceAndKept(t *testing.T) {
	b := newBench(t)
	b.fake.envelope.NetworkModes[1] = sandbox.NetworkUnrestricted
	b.activate(durable)
	if n := b.called(sandbox.OpCapabilities); n != 1 {
		t.Errorf("capabilities was called %d times", n)
	}
}

// TestEnforcementStatement_RemoteIsNeverRunnerEnforced: capped by how the
// Runner reached it, recorded axis by axis; also in evidence.
func TestEnforcementStatement_RemoteIsNeverRunnerEnforced(t *testing.T) {
	b := newBench(t)
	b.fake.envelope.Enforcement = sandbox.EnforcedBy(sandbox.RunnerEnforced).With(sandbox.AxisNonRoot, sandbox.GuestObserved).With(sandbox.AxisDiskLimit, sandbox.NotEnforced)
	target := b.fake.envelope.Target()
	local, err := b.selector(sandboxruntime.Adapter{Provider: b.fake}).Attach(b.ctx, target)
	if err != nil || len(local.Narrowings()) != 0 || local.Capabilities().Enforcement != b.fake.envelope.Enforcement {
		t.Error(err, local.Narrowings())
	}
	if b.runtime, err = b.selector(sandboxruntime.Adapter{Provider: b.fake, Remote: true}).Attach(b.ctx, target); err != nil {
		t.Fatal(err)
	}
	want := sandbox.EnforcedBy(sandbox.ProviderAttested).With(sandbox.AxisNonRoot, sandbox.GuestObserved).With(sandbox.AxisDiskLimit, sandbox.NotEnforced)
	if got := b.runtime.Capabilities().Enforcement; got != want {
		t.Error(got)
	}
	if n := b.runtime.Narrowings(); len(n) != 7 || n[0] != (grade.Narrowing{Field: "enforcement.sandbox_isolation", Claimed: "runner_enforced",
		Ceiling: "provider_attested", Result: "provider_attested", Reason: grade.ReasonWire}) {
		t.Error(n)
	}
	p, err := b.runtime.OpenProcess(b.ctx, b.activate(durable), program)
	if err != nil || p.Evidence().Enforcement != want {
		t.Error(p, err)
	}
}

// TestSelection_ProvisionChecksItsOwnRequest: what was selected for one
// profile serves no other unchecked.
func TestSelection_ProvisionChecksItsOwnRequest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sandbox.ProvisionRequest)
		want   error
	}{
		"another target": {func(q *sandbox.ProvisionRequest) { q.Target.ProviderRevision = "fake@2" }, &sandboxruntime.Error{Kind: sandboxruntime.AdapterUnavailable, Operation: sandbox.OpProvision}},
		"another tier":   {func(q *sandbox.ProvisionRequest) { q.Profile.Tier = sandbox.TierMicroVM }, &sandbox.Error{Requirement: sandbox.RequireTier, Operation: sandbox.OpProvision}},
		"nine mounts":    {func(q *sandbox.ProvisionRequest) { q.Mounts = nineMounts() }, &sandbox.Error{Requirement: sandbox.RequireMounts}},
		"malformed":      {func(q *sandbox.ProvisionRequest) { q.RunID = "run 1" }, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}},
		"expired":        {func(q *sandbox.ProvisionRequest) { q.ExpiresAt = sandbox.At(epoch) }, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: sandbox.ActualExpired}},
	} {
		b := newBench(t)
		q := request(b.fake, durable)
		c.change(&q)
		_, err := b.runtime.Provision(b.ctx, q)
		_, err2 := b.runtime.Resume(b.ctx, sandbox.ResumeRequest{Request: q, Snapshot: snapshot(b)})
		if !errors.Is(err, c.want) || err2 == nil || b.called(sandbox.OpProvision)+b.called(sandbox.OpResume) != 0 {
			t.Error(name, err, err2)
		}
	}
}

func nineMounts() (mounts []sandbox.Mount) {
	for _, name := range strings.Fields("a b c d e f g h i") {
		mounts = append(mounts, sandbox.Mount{MountPath: "/m/" + name, Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit})
	}
	return mounts
}

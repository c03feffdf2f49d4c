package memory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/google/go-cmp/cmp"
)

func TestEnvelope(t *testing.T) {
	f := newFixture(t)
	c, err := f.p.Capabilities(f.ctx())
	f.must(err)
	f.must(c.Validate())
	c.Tiers[0] = "changed"
	again, err := f.p.Capabilities(f.ctx())
	f.must(err)
	if again.Tiers[0] != sandbox.TierContainer {
		t.Error("a caller can change the envelope")
	}
	for _, axis := range sandbox.Axes() {
		if c.Enforcement.On(axis) == sandbox.RunnerEnforced {
			t.Errorf("%s claims the Runner's authority", axis)
		}
	}
	o := f.p.Optional()
	if o.ReadFiles == nil || o.ListDir == nil || o.ListProjectDir == nil || o.OpenProcess == nil || o.ActiveWrite == nil {
		t.Error("an optional member is missing")
	}
}

func TestProvisionEchoesEveryField(t *testing.T) {
	f := newFixture(t)
	r := request()
	h, err := f.p.Provision(f.ctx(), r)
	f.must(err)
	want := sandbox.InstanceOf(r, h.Value.InstanceID, sandbox.StateProvisioning, digestOf(r.Profile.ImageIdentity()))
	if diff := cmp.Diff(want, h.Value); diff != "" {
		t.Error(diff)
	}
	f.must(sandbox.CheckInstanceID("instance_id", h.Value.InstanceID))
	// Neither the request nor the value is the provider's any more.
	r.Mounts[0].MountPath, h.Value.Mounts[1].MountPath = "/changed", "/changed"
	a, err := f.p.Activate(f.ctx(), want.InstanceID)
	f.must(err)
	want.State = sandbox.StateActive
	want.Mounts = request().Mounts
	if diff := cmp.Diff(want, a.Value); diff != "" {
		t.Error(diff)
	}
}

func TestProvisionRefuses(t *testing.T) {
	lack := func(r sandbox.Requirement) *sandbox.Error {
		return &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Operation: sandbox.OpProvision, Requirement: r}
	}
	bad := &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpProvision, Reason: sandbox.ReasonInvalidRequest}
	for _, c := range []struct {
		name   string
		change func(*sandbox.ProvisionRequest)
		want   *sandbox.Error
	}{
		{"another provider", func(r *sandbox.ProvisionRequest) { r.Target.ProviderRevision = "x" }, &sandbox.Error{Kind: sandbox.LifecycleConflict}},
		{"tier", func(r *sandbox.ProvisionRequest) { r.Profile.Tier = sandbox.TierMicroVM }, lack(sandbox.RequireTier)},
		{"packages", func(r *sandbox.ProvisionRequest) {
			r.Profile.Packages = []sandbox.Package{{Manager: sandbox.ManagerPip, Name: "x"}}
		}, lack(sandbox.RequirePackages)},
		{"boundary", func(r *sandbox.ProvisionRequest) {
			r.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}, RequiredEgressCertification: sandbox.EgressSecurityBoundary}
		}, lack(sandbox.RequireNetworkPolicy)},
		{"resources", func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.CPUMillis = 1 << 40 }, lack(sandbox.RequireResources)},
		{"reserved mount", func(r *sandbox.ProvisionRequest) { r.Mounts[0].MountPath = "/tmp/x" }, lack(sandbox.RequireMounts)},
		{"mount over a reserved root", func(r *sandbox.ProvisionRequest) { r.Mounts[0].MountPath = "/workspace" }, lack(sandbox.RequireMounts)},
		{"equal mounts", func(r *sandbox.ProvisionRequest) { r.Mounts[1] = r.Mounts[0] }, lack(sandbox.RequireMounts)},
		{"65 mounts", func(r *sandbox.ProvisionRequest) {
			r.Mounts = nil
			for n := range 65 {
				r.Mounts = append(r.Mounts, sandbox.Mount{MountPath: fmt.Sprintf("/m/%d", n), Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit})
			}
		}, lack(sandbox.RequireMounts)},
		{"expired", func(r *sandbox.ProvisionRequest) { r.ExpiresAt = at(0) }, sandbox.Conflict(sandbox.OpProvision, "before expires_at "+string(at(0)), sandbox.ActualExpired)},
		{"time form", func(r *sandbox.ProvisionRequest) { r.ExpiresAt = "2026-03-01T13:00:00Z" }, bad},
		{"tagged image", func(r *sandbox.ProvisionRequest) { r.RootImage = "x:latest" }, bad},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			_, err := f.p.Provision(f.ctx(), with(c.change))
			f.want(err, c.want)
			if len(f.p.instances) != 0 {
				t.Error("an instance was left")
			}
		})
	}
}

// Every member refuses the wrong state, an unknown instance, one that expired
// and a context that is done.
func TestMembersCheckState(t *testing.T) {
	members := []struct {
		op    sandbox.Operation
		state sandbox.State // "" is either
		call  func(p *Provider, ctx context.Context, id sandbox.InstanceID) error
	}{
		{sandbox.OpWriteFile, "", func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			return p.WriteFile(ctx, id, sandbox.FileWrite{Path: sandbox.OutputPath + "/f"})
		}},
		{sandbox.OpActivate, sandbox.StateProvisioning, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.Activate(ctx, id)
			return err
		}},
		{sandbox.OpExecute, sandbox.StateActive, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.Execute(ctx, id, shellCommand("true"))
			return err
		}},
		{sandbox.OpReadFile, sandbox.StateActive, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.ReadFile(ctx, id, sandbox.FileRead{Path: sandbox.OutputPath + "/f", AllowedRoot: sandbox.OutputPath})
			return err
		}},
		{sandbox.OpReadFiles, sandbox.StateActive, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.ReadFiles(ctx, id, sandbox.FilesRead{AllowedRoot: sandbox.OutputPath, Files: []sandbox.FileMember{{Path: sandbox.OutputPath + "/f"}}})
			return err
		}},
		{sandbox.OpListDir, sandbox.StateActive, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.ListDir(ctx, id, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 9})
			return err
		}},
		{sandbox.OpListProjectDir, sandbox.StateActive, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.ListProjectDir(ctx, id, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 9})
			return err
		}},
		{sandbox.OpBeginActiveWrite, sandbox.StateActive, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.BeginActiveWrite(ctx, id, []string{"/workspace/rw/f"})
			return err
		}},
		{sandbox.OpOpenProcess, sandbox.StateActive, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.OpenProcess(ctx, id, "p", sandbox.ProcessRequest{Executable: "true", WorkingDirectory: "/"})
			return err
		}},
		{sandbox.OpSnapshot, sandbox.StateActive, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: at(9 * time.Hour)})
			return err
		}},
		{sandbox.OpRelease, sandbox.StateActive, func(p *Provider, ctx context.Context, id sandbox.InstanceID) error {
			_, err := p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: at(24 * time.Hour)})
			return err
		}},
	}
	for _, m := range members {
		t.Run(string(m.op), func(t *testing.T) {
			f := newFixture(t)
			ids := map[sandbox.State]sandbox.InstanceID{sandbox.StateProvisioning: f.provision(request()), sandbox.StateActive: f.active(request())}
			done, cancel := context.WithCancel(f.ctx())
			cancel()
			for _, id := range ids {
				if err := m.call(f.p, done, id); err != context.Canceled {
					t.Errorf("context done: %v", err)
				}
			}
			for state, id := range ids {
				if m.state != "" && m.state != state {
					f.want(m.call(f.p, f.ctx(), id), sandbox.Conflict(m.op, string(m.state), string(state)))
				}
			}
			f.want(m.call(f.p, f.ctx(), "nobody"), sandbox.NoInstance(m.op, "nobody"))
			f.clock.Advance(time.Hour)
			for state, id := range ids {
				err := m.call(f.p, f.ctx(), id)
				switch {
				case m.state != "" && m.state != state:
				case work[m.op]:
					f.want(err, sandbox.Conflict(m.op, "before expires_at "+string(at(time.Hour)), sandbox.ActualExpired))
				case errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict}):
					t.Errorf("what an expired instance holds is kept back: %v", err)
				}
			}
		})
	}
}

func TestStageSealExecute(t *testing.T) {
	f := newFixture(t)
	id := f.provision(request())
	f.write(id, "/workspace/ro/in", "given")
	f.write(id, "/workspace/rw/sealed/deep/in", "nested")
	f.must(f.p.WriteFile(f.ctx(), id, sandbox.FileWrite{Path: "/workspace/ro/run", Content: []byte("#!/bin/sh\necho ran\n"), Executable: true}))
	f.must(f.p.WriteFile(f.ctx(), id, sandbox.FileWrite{Path: "/workspace/ro/link", Symlink: "in"}))
	f.activate(id)
	if got := f.sh(id, "cd /workspace/ro; cat link ../rw/sealed/deep/in; ./run; printf out >/mnt/session/outputs/o"); got != "givennestedran\n" {
		t.Errorf("%q", got)
	}
	if s := f.run(id, "echo x >/workspace/ro/in"); *s.Exit.ExitCode == 0 {
		t.Error("a sealed mount was written")
	}
	if got := f.read(id, sandbox.OutputPath+"/o", sandbox.OutputPath); got != "out" {
		t.Errorf("%q", got)
	}
	f.write(id, sandbox.OutputPath+"/d/trusted", "later")
	if got := f.sh(id, "cat /mnt/session/outputs/d/trusted"); got != "later" {
		t.Errorf("%q", got)
	}
}

func TestWriteFileRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		active bool
		before string // run before, when active
		w      sandbox.FileWrite
		want   *sandbox.Error
	}{
		{"outside", false, "", sandbox.FileWrite{Path: "/etc/x"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonOutsideRoot}},
		{"home", false, "", sandbox.FileWrite{Path: "/home/checkfu/x"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonOutsideRoot}},
		{"mount itself", false, "", sandbox.FileWrite{Path: "/workspace/ro"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonOutsideRoot}},
		{"nested mount itself", false, "", sandbox.FileWrite{Path: "/workspace/rw/sealed"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonOutsideRoot}},
		{"like a mount", false, "", sandbox.FileWrite{Path: "/workspace/rox/x"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonOutsideRoot}},
		{"dot dot", false, "", sandbox.FileWrite{Path: "/workspace/ro/../x"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonInvalidRequest}},
		{"too large", false, "", sandbox.FileWrite{Path: "/workspace/ro/x", Content: make([]byte, sandbox.MaxFileBytes+1)}, sandbox.TooLarge(sandbox.OpWriteFile, "/workspace/ro/x", sandbox.MaxFileBytes)},
		{"active mount", true, "", sandbox.FileWrite{Path: "/workspace/rw/x"}, sandbox.Conflict(sandbox.OpWriteFile, "provisioning", "active")},
		{"link", true, "ln -s /tmp/x /mnt/session/outputs/l", sandbox.FileWrite{Path: sandbox.OutputPath + "/l"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonOutsideRoot}},
		{"link on the way", true, "ln -s /tmp /mnt/session/outputs/l", sandbox.FileWrite{Path: sandbox.OutputPath + "/l/x"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonOutsideRoot}},
		{"fifo", true, "mkfifo /mnt/session/outputs/p", sandbox.FileWrite{Path: sandbox.OutputPath + "/p"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonNotRegular}},
		{"directory", true, "mkdir /mnt/session/outputs/d", sandbox.FileWrite{Path: sandbox.OutputPath + "/d"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonNotRegular}},
		{"file on the way", true, "echo >/mnt/session/outputs/f", sandbox.FileWrite{Path: sandbox.OutputPath + "/f/x"}, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonNotDirectory}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			id := f.provision(request())
			if c.active {
				f.activate(id)
			}
			if c.before != "" {
				f.sh(id, c.before)
			}
			f.want(f.p.WriteFile(f.ctx(), id, c.w), c.want)
		})
	}
}

func TestDiskLimit(t *testing.T) {
	f := newFixture(t)
	id := f.provision(with(func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.DiskBytes = 10000 }))
	f.write(id, "/workspace/rw/a", strings.Repeat("a", 5000))
	f.want(f.p.WriteFile(f.ctx(), id, sandbox.FileWrite{Path: "/workspace/rw/b", Content: make([]byte, 5000)}), &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireResources})
	f.activate(id)
	s := f.run(id, "head -c 100000 /workspace/rw/a /workspace/rw/a >/tmp/b")
	contains(t, s.Stderr, "No space left on device")
	s = f.run(id, "rm /tmp/b /workspace/rw/a; yes | head -c 9000 >/tmp/c; wc -c /tmp/c")
	contains(t, s.Stdout, "9000 /tmp/c")
	// Empty files count too.
	if s = f.run(id, "rm /tmp/c; n=x; while touch /tmp/$n; do n=x$n; done; ls /tmp | wc -l"); string(s.Stdout) != "36\n" {
		t.Errorf("%q %q", s.Stdout, s.Stderr)
	}
}

func TestReads(t *testing.T) {
	f := newFixture(t)
	id := f.provision(request())
	f.write(id, "/workspace/rw/sealed/secret", "secret")
	f.write(id, "/workspace/ro/other", "other")
	f.activate(id)
	f.sh(id, `cd /workspace/rw; printf 12345 >f; printf x >.hidden; mkdir -p d/e; printf deep >d/e/f; ln -s f l; ln -s /workspace/ro up
	ln -s d ld; mkfifo p; printf bytes >'a b'; chmod 000 f`)
	f.must(f.p.Plant(f.ctx(), id, "/workspace/rw/s", sandbox.LeafSocket))
	f.must(f.p.Plant(f.ctx(), id, "/workspace/rw/n", sandbox.LeafDevice))

	reads := []struct {
		path, root string
		maximum    int64
		content    string
		refused    sandbox.Refusal
	}{
		{rw + "/f", rw, 5, "12345", ""},
		{rw + "/d/e/f", rw, 100, "deep", ""},
		{rw + "/d/e/f", rw + "/d", 100, "deep", ""},
		{rw + "/f", rw, 4, "", sandbox.RefusedTooLarge},
		{rw + "/none", rw, 9, "", sandbox.RefusedNotFound},
		{rw + "/f/x", rw, 9, "", sandbox.RefusedNotFound},
		{rw + "/d", rw, 9, "", sandbox.RefusedNotRegular},
		{rw + "/p", rw, 9, "", sandbox.RefusedNotRegular},
		{rw + "/s", rw, 9, "", sandbox.RefusedNotRegular},
		{rw + "/n", rw, 9, "", sandbox.RefusedNotRegular},
		{rw + "/l", rw, 9, "", sandbox.RefusedOutsideRoot},
		{rw + "/ld/e/f", rw, 9, "", sandbox.RefusedOutsideRoot},
		{rw + "/up/other", rw, 9, "", sandbox.RefusedOutsideRoot},
		{rw + "/sealed/secret", rw, 9, "", sandbox.RefusedOutsideRoot},
		{rw + "/sealed/secret", rw + "/sealed", 9, "secret", ""},
		{"/tmp/x", "/tmp", 9, "", sandbox.RefusedOutsideRoot},
		{"/bin/cat", "/bin", 99, "", sandbox.RefusedOutsideRoot},
	}
	for _, c := range reads {
		data, err := f.p.ReadFile(f.ctx(), id, sandbox.FileRead{Path: c.path, AllowedRoot: c.root, MaximumBytes: c.maximum})
		switch {
		case c.refused == sandbox.RefusedTooLarge:
			f.want(err, sandbox.TooLarge(sandbox.OpReadFile, c.path, c.maximum))
		case c.refused != "":
			f.want(err, sandbox.FailedAt(sandbox.OpReadFile, c.path, string(c.refused), nil))
		case err != nil || string(data) != c.content:
			t.Errorf("%s: %q %v", c.path, data, err)
		}
		batch := sandbox.FilesRead{AllowedRoot: c.root, Files: []sandbox.FileMember{{Path: c.path, MaximumBytes: c.maximum}}, AggregateMaximumBytes: c.maximum}
		got, err := f.p.ReadFiles(f.ctx(), id, batch)
		f.must(err)
		if len(got) != 1 || got[0].Refused != c.refused || string(got[0].Content) != c.content {
			t.Errorf("%s in a batch: %+v", c.path, got)
		}
		f.must(got[0].Validate(batch.Files[0]))
	}
	for _, r := range []sandbox.FileRead{{Path: rw, AllowedRoot: rw}, {Path: "/workspace/rwx", AllowedRoot: rw}, {Path: "/workspace/ro/other", AllowedRoot: rw}} {
		_, err := f.p.ReadFile(f.ctx(), id, r)
		f.want(err, sandbox.FailedAt(sandbox.OpReadFile, r.Path, sandbox.ReasonOutsideRoot, nil))
	}
	_, err := f.p.ReadFile(f.ctx(), id, sandbox.FileRead{Path: rw + "/f", AllowedRoot: rw, MaximumBytes: sandbox.MaxFileBytes + 1})
	f.want(err, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest})
	_, err = f.p.ReadFiles(f.ctx(), id, sandbox.FilesRead{AllowedRoot: rw, Files: []sandbox.FileMember{{Path: rw + "/f", MaximumBytes: 5}}, AggregateMaximumBytes: 6})
	f.want(err, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest})

	entries, err := f.p.ListDir(f.ctx(), id, sandbox.Listing{Root: rw, MaxEntries: 4})
	f.must(err)
	f.must(sandbox.ValidateEntries(entries, 4))
	if diff := cmp.Diff([]sandbox.DirEntry{
		{Path: ".hidden", Size: 1, Digest: digestOf([]byte("x"))}, {Path: "a b", Size: 5, Digest: digestOf([]byte("bytes"))},
		{Path: "d/e/f", Size: 4, Digest: digestOf([]byte("deep"))}, {Path: "f", Size: 5, Digest: digestOf([]byte("12345"))},
	}, entries); diff != "" {
		t.Error(diff)
	}
	project, err := f.p.ListProjectDir(f.ctx(), id, sandbox.Listing{Root: rw, MaxEntries: 10})
	f.must(err)
	f.must(project.Validate(10))
	names := ""
	for _, l := range project.Leaves {
		names += l.Path + ":" + string(l.Type) + ":" + l.Target + " "
	}
	if want := ".hidden:regular: a b:regular: d/e/f:regular: f:regular: l:symlink:f ld:symlink:d n:device: p:fifo: s:socket: up:symlink:/workspace/ro "; names != want {
		t.Errorf("%s\nwant %s", names, want)
	}
	for _, c := range []struct {
		root   string
		max    int64
		reason string
	}{{rw, 3, sandbox.ReasonTooManyEntries}, {rw + "/none", 9, sandbox.ReasonNotFound}, {rw + "/up", 9, sandbox.ReasonOutsideRoot}, {"/bin", 9, sandbox.ReasonOutsideRoot}, {rw + "/f", 9, sandbox.ReasonNotDirectory}, {rw, 0, sandbox.ReasonInvalidRequest}} {
		_, err := f.p.ListDir(f.ctx(), id, sandbox.Listing{Root: c.root, MaxEntries: c.max})
		f.want(err, &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpListDir, Reason: c.reason})
	}
}

package sandboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// fileFaults are wrong in reading, writing or listing.
func fileFaults() []Saboteur {
	return slices.Concat(writeFaults(), readFaults(), batchFaults(), listFaults(), projectFaults(), deepFileFaults(), staleFaults())
}

// pendingFiles wait for a real file system.
func pendingFiles() []Pending { return nil }

// in gives saboteurs the suite that they are run against, where they name a
// standing check.
func in(suite report.Suite, all []Saboteur) []Saboteur {
	for i := range all {
		all[i].Suite = suite
	}
	return all
}

// inside runs a script as the workload: the one way in which a saboteur gets
// where the trusted port does not go. It reports whether the status was 0.
func inside(ctx context.Context, p sandbox.Provider, id sandbox.InstanceID, script string, stdin []byte) ([]byte, bool) {
	s, err := p.Execute(ctx, id, sandbox.Command{
		Executable: "/bin/sh", Arguments: []string{"-c", script}, WorkingDirectory: "/", Environment: map[string]string{"PATH": "/usr/bin:/bin"},
		Stdin: stdin, TimeoutSeconds: 30, OutputLimitBytes: sandbox.MaxOutputBytes,
	})
	return s.Stdout, err == nil && s.Exit.ExitCode != nil && *s.Exit.ExitCode == 0
}

// mountPlans remembers the mounts of every instance.
type mountPlans struct {
	mu  sync.Mutex
	all map[sandbox.InstanceID][]sandbox.Mount
}

func (m *mountPlans) of(id sandbox.InstanceID) []sandbox.Mount {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[id]
}

// at is the mount of an instance at path, or none.
func (m *mountPlans) at(id sandbox.InstanceID, path string) sandbox.Mount {
	for _, mount := range m.of(id) {
		if mount.MountPath == path {
			return mount
		}
	}
	return sandbox.Mount{}
}

// watched is o with a Provision that remembers mounts.
func (m *mountPlans) watched(o Override) Override {
	m.all = map[sandbox.InstanceID][]sandbox.Mount{}
	o.ProvisionFunc = func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		h, err := o.Provider.Provision(ctx, q)
		if err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.all[h.Value.InstanceID] = slices.Clone(q.Mounts)
		}
		return h, err
	}
	return o
}

// nested reports whether mount lies inside another of the plan.
func nested(plan []sandbox.Mount, mount sandbox.Mount) bool {
	return slices.ContainsFunc(plan, func(o sandbox.Mount) bool {
		return o.MountPath != mount.MountPath && sandbox.Within(mount.MountPath, o.MountPath)
	})
}

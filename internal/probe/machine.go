package probe

import (
	"slices"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Shape says what machine a probe needs. The zero value is the plainest that
// the target offers: no mounts, no network if it can be had, zero retention if
// it can be had, moderate limits, an hour.
type Shape struct {
	Mounts    []sandbox.Mount
	Files     []sandbox.FileWrite
	Retention sandbox.RetentionMode
	Network   *sandbox.NetworkPolicy
	Limits    sandbox.Resources // a zero axis is a moderate one
	Lifetime  time.Duration     // until expires_at; 0 is an hour
	Session   string            // "" is that of the pass
}

// Machine is one instance of a probe.
type Machine struct {
	t        *T
	ID       sandbox.InstanceID
	Request  sandbox.ProvisionRequest
	Instance sandbox.Instance
	Rollback func() error // of the last handoff
}

// Request is a provision request of s, with identifiers of its own.
func (t *T) Request(s Shape) sandbox.ProvisionRequest {
	c := t.Envelope()
	retention := s.Retention
	if retention == "" {
		retention = sandbox.RetentionEphemeralZDR
		if !slices.Contains(c.RetentionModes, retention) && len(c.RetentionModes) > 0 {
			retention = c.RetentionModes[0]
		}
	}
	network := sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}
	switch {
	case s.Network != nil:
		network = *s.Network
	case slices.Contains(c.NetworkModes, sandbox.NetworkNone):
	case slices.Contains(c.NetworkModes, sandbox.NetworkUnrestricted):
		network = sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}
	default:
		network = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}}
	}
	lifetime := s.Lifetime
	if lifetime == 0 {
		lifetime = time.Hour
	}
	session := s.Session
	if session == "" {
		session = t.run.session
	}
	image := t.run.target.Image
	if c.ImageMode == sandbox.ImageFixed && len(c.FixedBaseImages) > 0 && !slices.Contains(c.FixedBaseImages, image) {
		image = c.FixedBaseImages[0]
	}
	q := sandbox.ProvisionRequest{
		WorkspaceID: t.run.workspace, SessionID: session,
		RunID: t.ID("run_"), AttemptID: t.ID("att_"), LeaseID: t.ID("lease_"), LeaseEpoch: 1, Target: c.Target(),
		Profile: sandbox.Profile{
			ProfileID: t.ID("prof_"), ProfileVersion: 1 + int64(t.Bytes(1)[0]), BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy: network, ResourceLimits: limits(s.Limits, c.MinimumResources, c.MaximumResources), RetentionMode: retention,
		},
		RootImage: image, Mounts: s.Mounts, ExpiresAt: sandbox.At(t.Now().Add(lifetime)),
	}
	if len(c.Tiers) > 0 {
		q.Profile.Tier = c.Tiers[0]
	}
	if len(c.Platforms) > 0 {
		q.Platform = c.Platforms[0]
	}
	if q.Mounts == nil {
		q.Mounts = []sandbox.Mount{}
	}
	return q
}

// Durable is a shape's durable twin for the probes of snapshots.
func Durable(s Shape) Shape {
	s.Retention = sandbox.RetentionDurable
	return s
}

// Provision makes a machine in provisioning, its files staged. The probe stops
// if the target refuses, and is skipped where the envelope takes fewer mounts.
func (t *T) Provision(s Shape) *Machine {
	if most := t.Envelope().MaxMounts; int64(len(s.Mounts)) > most {
		t.NotHere("needs " + strconv.Itoa(len(s.Mounts)) + " mounts, and the envelope takes " + strconv.FormatInt(most, 10))
	}
	q := t.Request(s)
	h, err := t.Provider().Provision(t.ctx, q)
	t.Need("provision", err)
	m := &Machine{t: t, ID: h.Value.InstanceID, Request: q, Instance: h.Value, Rollback: func() error { return h.Rollback(t.ctx) }}
	for _, f := range s.Files {
		t.Need("stage", t.Provider().WriteFile(t.ctx, m.ID, f))
	}
	return m
}

// Machine makes an active machine.
func (t *T) Machine(s Shape) *Machine {
	m := t.Provision(s)
	m.Activate()
	return m
}

// Activate seals the machine. The probe stops if the target refuses.
func (m *Machine) Activate() {
	h, err := m.t.Provider().Activate(m.t.ctx, m.ID)
	m.t.Need("activate", err)
	m.Instance, m.Rollback = h.Value, func() error { return h.Rollback(m.t.ctx) }
}

// Command is a command of this machine that runs a shell script. Its
// environment has HOME and PATH only.
func Command(script string) sandbox.Command {
	return sandbox.Command{
		Executable: "/bin/sh", Arguments: []string{"-c", script}, WorkingDirectory: "/",
		Environment:    map[string]string{"HOME": sandbox.HomePath, "PATH": "/usr/local/bin:/usr/bin:/bin"},
		TimeoutSeconds: 30, OutputLimitBytes: 1 << 20,
	}
}

// Run runs a command. The probe stops if it does not settle.
func (m *Machine) Run(c sandbox.Command) sandbox.Settlement {
	s, err := m.t.Provider().Execute(m.t.ctx, m.ID, c)
	m.t.Need("execute", err)
	return s
}

// Sh runs a script.
func (m *Machine) Sh(script string) sandbox.Settlement { return m.Run(Command(script)) }

// Code is the exit code of a settlement, or -1 for a signal or a timeout.
func Code(s sandbox.Settlement) int64 {
	if s.Exit.ExitCode == nil || s.TimedOut {
		return -1
	}
	return *s.Exit.ExitCode
}

// Read reads a file under root.
func (m *Machine) Read(path, root string, maximum int64) ([]byte, error) {
	return m.t.Provider().ReadFile(m.t.ctx, m.ID, sandbox.FileRead{Path: path, AllowedRoot: root, MaximumBytes: maximum})
}

// limits fills in moderate values and keeps them inside the envelope.
func limits(want, low, high sandbox.Resources) sandbox.Resources {
	pick := func(want, moderate, low, high int64) int64 {
		if want == 0 {
			want = moderate
		}
		return min(max(want, low), high)
	}
	return sandbox.Resources{
		CPUMillis:          pick(want.CPUMillis, 1000, low.CPUMillis, high.CPUMillis),
		MemoryBytes:        pick(want.MemoryBytes, 256<<20, low.MemoryBytes, high.MemoryBytes),
		DiskBytes:          pick(want.DiskBytes, 64<<20, low.DiskBytes, high.DiskBytes),
		MaxProcesses:       pick(want.MaxProcesses, 64, low.MaxProcesses, high.MaxProcesses),
		MaxDurationSeconds: pick(want.MaxDurationSeconds, 600, low.MaxDurationSeconds, high.MaxDurationSeconds),
	}
}

// Package oracle makes the memory provider a target of the suite: with a
// clock that the suite moves, a network of names and a census.
//
// Every case must pass here, or the suite has no authority.
package oracle

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// Image is the image of every machine of the oracle. It has no bytes.
var Image = "registry.invalid/oracle@" + canonical.Digest([]byte("oracle"))

// New returns a target over a new memory provider, and the provider.
func New(seed string) (probe.Target, *memory.Provider) {
	clock := NewClock()
	p := memory.New(memory.Options{Seed: seed, Clock: clock})
	return probe.Target{
		Name: "builtin:memory", Provider: p, Image: Image, Clock: clock, Network: network{p},
		Census:  func(context.Context) ([]string, error) { return p.Census(), nil },
		Restart: func(context.Context) (sandbox.Provider, error) { return p, nil },
	}, p
}

// Clock is a clock that stands still until somebody moves it, for a memory
// provider and for the engine alike.
type Clock struct{ *memory.Manual }

// NewClock returns a clock that stands at the present second.
func NewClock() Clock { return Clock{memory.NewManual(time.Now().Truncate(time.Second))} }

// NewTimer returns a timer that fires when the clock was moved past d.
func (c Clock) NewTimer(d time.Duration) sandboxruntime.Timer { return timer{c.After(d)} }

type timer struct{ c <-chan time.Time }

func (t timer) C() <-chan time.Time { return t.c }

// Stop leaves the waiter: its channel has room for the one value.
func (t timer) Stop() bool { return true }

// network has two names. Nothing stands behind them: the machine's own rule
// decides, so the live control is a machine without a rule.
type network struct{ p *memory.Provider }

var _ probe.Network = network{}

func (network) Listed() sandbox.Destination {
	return sandbox.Destination{Host: "registry.example.com", Port: 443}
}

func (network) Unlisted() sandbox.Destination {
	return sandbox.Destination{Host: "paste.example.net", Port: 443}
}

func (network) Connect(d sandbox.Destination) string {
	return "connect " + d.Host + " " + strconv.FormatInt(d.Port, 10)
}

func (network) Accepted(sandbox.Destination) int64 { return -1 }

// Alive connects from a machine whose network is unrestricted.
func (n network) Alive(ctx context.Context, d sandbox.Destination) error {
	c, err := n.p.Capabilities(ctx)
	if err != nil {
		return err
	}
	h, err := n.p.Provision(ctx, sandbox.ProvisionRequest{
		WorkspaceID: "ws_control", SessionID: "ses_control", RunID: "run_control", AttemptID: "att_control", LeaseID: "lease_control", LeaseEpoch: 1,
		Target: c.Target(), Platform: c.Platforms[0], RootImage: Image, Mounts: []sandbox.Mount{}, ExpiresAt: "9999-01-01T00:00:00.000Z",
		Profile: sandbox.Profile{
			ProfileID: "prof_control", ProfileVersion: 1, Tier: c.Tiers[0], BaseImage: Image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted},
			ResourceLimits: sandbox.Resources{CPUMillis: 1, MemoryBytes: 1, DiskBytes: 1 << 16, MaxProcesses: 8, MaxDurationSeconds: 60},
			RetentionMode:  sandbox.RetentionEphemeralZDR,
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = h.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := n.p.Activate(ctx, h.Value.InstanceID); err != nil {
		return err
	}
	s, err := n.p.Execute(ctx, h.Value.InstanceID, probe.Command(n.Connect(d)))
	if err == nil && probe.Code(s) != 0 {
		err = errors.New("a machine without restriction did not reach it")
	}
	return err
}

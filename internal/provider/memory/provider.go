package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Options are what a Provider is made from. The zero value works.
type Options struct {
	// Seed begins every id. Providers with the same seed that are asked the
	// same in the same order answer the same, byte for byte.
	// A program that is started again needs another seed, or its ids repeat.
	Seed string
	// Clock is the provider's time; nil is a Manual that stands at
	// 2026-01-01T00:00:00.000Z. See Waiter and Advancer for what else it may do.
	Clock Clock
	// Target is the provider's tuple; the zero value is DefaultTarget.
	Target sandbox.Target
	// Programs are put into /bin of every machine, beside the standard ones or
	// in their place. Names must be single path components.
	Programs map[string]Program
	// NoAllowlist leaves the network mode allowlist out. Its machines connect to
	// nothing, which only who stands beside the provider knows how to judge.
	NoAllowlist bool
}

// Provider is the memory provider. It holds no resource but memory.
//
// Concurrency: every method may be called by many goroutines at once. Ids are
// numbered in the order of the allocations.
type Provider struct {
	caps     sandbox.Capabilities
	seed     string
	clock    Clock
	programs map[string]Program
	names    []string // of programs, sorted

	mu        sync.Mutex // guards what follows; never held while waiting
	count     int64
	instances map[sandbox.InstanceID]*instance
	snapshots map[sandbox.SnapshotID]*snapshot
	epochs    map[string]int64 // highest epoch seen of each lease
}

var _ sandbox.Provider = (*Provider)(nil)

// New returns a provider without instances.
func New(o Options) *Provider {
	if o.Clock == nil {
		o.Clock = NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	if o.Target == (sandbox.Target{}) {
		o.Target = DefaultTarget
	}
	p := &Provider{
		caps: envelope(o.Target, o.NoAllowlist), seed: o.Seed, clock: o.Clock, programs: standardPrograms(),
		instances: map[sandbox.InstanceID]*instance{},
		snapshots: map[sandbox.SnapshotID]*snapshot{},
		epochs:    map[string]int64{},
	}
	maps.Copy(p.programs, o.Programs)
	for name := range p.programs {
		p.names = append(p.names, name)
	}
	sort.Strings(p.names)
	return p
}

// Capabilities returns the envelope. Its slices are the caller's.
func (p *Provider) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	return clone(p.caps), ctx.Err()
}

// Optional returns all five optional members.
func (p *Provider) Optional() sandbox.Optional {
	return sandbox.Optional{ReadFiles: p, ListDir: p, ListProjectDir: p, OpenProcess: p, ActiveWrite: p}
}

func (p *Provider) now() sandbox.Timestamp { return sandbox.At(p.clock.Now()) }

// mint makes the next id. The caller holds p.mu.
func (p *Provider) mint(what string) string {
	p.count++
	sum := sha256.Sum256([]byte(p.seed + "\x00" + what + "\x00" + strconv.FormatInt(p.count, 10)))
	return what + "-" + hex.EncodeToString(sum[:16])
}

// Provision allocates an instance whose mounts exist and are empty.
// Errors: CapabilityUnavailable, LifecycleConflict (another provider's target),
// OperationFailed.
// Source: contract "The operations", row provision.
func (p *Provider) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	if err := p.admit(sandbox.OpProvision, r); err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	return p.allocate(copyRequest(r), sandbox.StateProvisioning, nil), nil
}

// allocate makes the instance of an admitted request. root is the state of a
// snapshot, or nil.
func (p *Provider) allocate(r sandbox.ProvisionRequest, state sandbox.State, root *node) sandbox.Handoff[sandbox.Instance] {
	t := newTree(r.Mounts, r.Profile.ResourceLimits.DiskBytes, p.names)
	if root != nil {
		t.used = root.size() - t.root.size()
		t.root = root
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := sandbox.InstanceID(p.mint("instance"))
	i := newInstance(sandbox.InstanceOf(r, id, state, digestOf(r.Profile.ImageIdentity())), t, p)
	p.instances[id] = i
	p.epochs[r.LeaseID] = max(p.epochs[r.LeaseID], r.LeaseEpoch)
	return sandbox.Handoff[sandbox.Instance]{
		Value: copyInstance(i.value),
		// The closure knows the instance itself: whatever becomes of Value, it
		// is this allocation that goes, and no other.
		Rollback: func(ctx context.Context) error { return p.discard(ctx, i) },
	}
}

// Activate seals the mounts. The rollback of its handoff destroys the
// instance: what could not be taken over active is not used again.
// Errors: InstanceNotFound, LifecycleConflict.
// Source: contract "The operations", row activate.
func (p *Provider) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	i, leave, err := p.enter(ctx, sandbox.OpActivate, id, sandbox.StateProvisioning)
	if err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	defer leave()
	i.mu.Lock()
	defer i.mu.Unlock()
	// Two activations may have entered together; one of them comes too late.
	if i.value.State != sandbox.StateProvisioning {
		return sandbox.Handoff[sandbox.Instance]{}, sandbox.Conflict(sandbox.OpActivate, string(sandbox.StateProvisioning), string(i.value.State))
	}
	i.value.State = sandbox.StateActive
	return sandbox.Handoff[sandbox.Instance]{
		Value:    copyInstance(i.value),
		Rollback: func(ctx context.Context) error { return p.discard(ctx, i) },
	}, nil
}

// Destroy ends an instance and erases its files. An unknown id is success.
// Source: contract "The operations", row destroy.
func (p *Provider) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	i := p.instances[id]
	p.mu.Unlock()
	if i == nil {
		return nil
	}
	return p.discard(ctx, i)
}

// discard ends an instance. It may be called again, also while another call
// is at it; each returns once nothing is left.
func (p *Provider) discard(ctx context.Context, i *instance) error {
	if err := i.close(ctx); err != nil {
		return err
	}
	i.erase()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.instances, i.value.InstanceID)
	return nil
}

// Census names every instance and snapshot that there is, sorted: what is
// left when a test has ended.
func (p *Provider) Census() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []string{}
	for id := range p.instances {
		all = append(all, string(id))
	}
	for id := range p.snapshots {
		all = append(all, string(id))
	}
	sort.Strings(all)
	return all
}

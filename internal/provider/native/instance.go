package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native/journal"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/internal/provider/native/uplink"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/internal/snapshot/volume"
	"github.com/checkfu/checkfu/sandbox"
)

// instance is one allocation of this process.
type instance struct {
	p       *Provider
	id      sandbox.InstanceID
	request sandbox.ProvisionRequest
	digest  sandbox.Digest
	trees   []tree
	ahead   bool // its machine was started before the request was there

	at    place
	lock  *os.File    // held until nothing of the instance is left
	image *image.Root // released last: the store may not remove it before
	env   []string    // the image's own; commands may read it while image goes

	policy []byte      // of an allowlist instance: what its guard is told
	lease  *Lease      // of an instance with a model route
	route  []byte      // likewise: what its relay is told
	host   uplink.Host // of an unrestricted instance: what it is let into

	// staging is held for reading by each write into a mount and for writing
	// by the activation that seals them, so that no write lands behind a seal.
	staging sync.RWMutex
	sealed  bool

	mu      sync.Mutex
	state   sandbox.State
	moving  *activation // under way
	ending  bool        // no new work; set once
	expiry  *time.Timer
	roots   map[string]*contain.Root
	machine machine.Machine
	live    *process
	guard   Attendant      // from its start to its stop
	relay   Attendant      // likewise
	uplink  *uplink.Uplink // likewise
	cut     atomic.Bool    // its fence fell, and so its link was cut

	journal *journal.Journal      // of active writes; from allocate on
	writes  map[*activeWrite]bool // that end with the instance
	stopped *stop                 // the last pause of one, until it was seen to end
	gate    gate                  // shut while one publishes, or the home is copied

	building   *recipe.Recipe    // of a build machine: what it installs
	kept       *snapshot.Hold    // of an instance that is being resumed, until it is made
	goingOn    bool              // of one that is being resumed: with its processes
	checkpoint string            // where those are, until the machine was made
	volume     *volume.Volume    // the mounted home of a durable instance
	capturing  chan struct{}     // holds a token for each capture, durable release and publication, and has room for one
	releasing  chan struct{}     // holds a token for each release, and has room for one
	released   *sandbox.Snapshot // of a release whose removal failed, for the next; with releasing's token
	removing   chan struct{}     // holds a token for each removal, and has room for one
}

func newInstance(p *Provider, id sandbox.InstanceID, r sandbox.ProvisionRequest, root *image.Root) *instance {
	return &instance{
		p: p, id: id, request: r, digest: profileDigest(r.Profile), image: root, env: root.Config.Env,
		trees: trees(r.Mounts), state: sandbox.StateProvisioning, roots: map[string]*contain.Root{},
		removing: make(chan struct{}, 1), capturing: make(chan struct{}, 1), releasing: make(chan struct{}, 1),
		writes: map[*activeWrite]bool{},
	}
}

// guarded reports whether the instance is of an allowlist.
func (in *instance) guarded() bool {
	return in.request.Profile.NetworkPolicy.Mode == sandbox.NetworkAllowlist
}

// allocate makes everything of the instance but its processes. What it leaves
// on an error, remove removes.
func (in *instance) allocate(ctx context.Context) error {
	p := in.p
	var err error
	if in.at, in.lock, err = p.begin(in.record(in.ahead)); err != nil {
		return err
	}
	p.opt.Step("record")
	if err := os.Mkdir(in.at.machine(), 0o700); err != nil {
		return err
	}
	if err := in.makeHome(ctx); err != nil {
		return err
	}
	p.opt.Step("home")
	if err := in.layRoot(); err != nil {
		return err
	}
	p.opt.Step("root")
	// Before anything else reads it: a home out of a snapshot may hold what its
	// owner left in the middle.
	if in.journal, err = journal.Open(ctx, in.at.home(), *workloadOwned().Owner, func(step string) { p.opt.Step(step) }); err != nil {
		return err
	}
	for _, t := range in.trees {
		root, err := contain.Open(filepath.Join(in.at.home(), t.home), workloadOwned())
		if err != nil {
			return err
		}
		in.roots[t.guest] = root
	}
	return ctx.Err()
}

// record is what the disk is told of the instance; waits, that it is nobody's yet.
func (in *instance) record(waits bool) record {
	r := in.request
	return record{
		Schema: recordSchema, InstanceID: string(in.id), Driver: in.p.opt.Driver.Name(), OwnerPID: int64(userns.Owner()),
		SessionID: r.SessionID, RunID: r.RunID, RootImage: r.RootImage, CreatedAt: sandbox.At(in.p.opt.Now()), ExpiresAt: r.ExpiresAt,
		Guarded: in.guarded(), Linked: in.linked(), Waits: waits,
	}
}

// expireAt ends the instance at its own deadline, whatever its owner does. A
// deadline already past was refused before this is called.
func (in *instance) expireAt(deadline time.Time) {
	in.mu.Lock() // a sweep, or the timer itself, may already be removing it
	defer in.mu.Unlock()
	in.expiry = time.AfterFunc(deadline.Sub(in.p.opt.Now()), func() {
		ctx, cancel := context.WithTimeout(context.Background(), teardownBound)
		defer cancel()
		in.p.Destroy(ctx, in.id) // what is left of a failure is the sweep's
	})
}

// describe is the honest answer about this instance.
func (in *instance) describe() sandbox.Instance {
	return sandbox.InstanceOf(in.request, in.id, in.currentState(), in.digest)
}

func (in *instance) isEnding() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.ending
}

func (in *instance) currentState() sandbox.State {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.state
}

// activation is a start, or a capture, that a removal can cut short and must wait
// for: a machine that came up after its removal would belong to nobody, and of a
// home that goes on being written to there is no snapshot.
type activation struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// activate starts the machine. One caller does it; others meet a conflict.
func (in *instance) activate(ctx context.Context) error {
	in.mu.Lock()
	if in.ending || in.moving != nil || in.state != sandbox.StateProvisioning {
		state := in.state
		in.mu.Unlock()
		return sandbox.Conflict(sandbox.OpActivate, string(sandbox.StateProvisioning), string(state))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	moving := &activation{cancel: cancel, done: make(chan struct{})}
	in.moving = moving
	in.mu.Unlock()
	defer close(moving.done)
	in.staging.Lock()
	in.sealed = true
	in.staging.Unlock()

	m, err := in.start(ctx)

	in.mu.Lock()
	defer in.mu.Unlock()
	in.moving = nil
	if err != nil {
		return sandbox.Failed(sandbox.OpActivate, sandbox.ReasonProviderError, err)
	}
	in.machine, in.state = m, sandbox.StateActive
	in.p.opt.Step("active")
	return nil
}

// start seals the mounts and starts the machine, and believes neither itself
// nor the driver: what the host sees afterwards must be what the envelope says.
func (in *instance) start(ctx context.Context) (machine.Machine, error) {
	if err := placeholders(in.at, in.trees); err != nil {
		return nil, err
	}
	spec := in.spec()
	var m machine.Machine
	var err error
	if spec.Netns, err = in.connect(); err == nil {
		m, err = in.startAll(ctx, spec)
	}
	if err == nil {
		in.p.opt.Step("started")
		err = in.verify(ctx, m, spec)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.RollbackSeconds*time.Second)
		defer cancel()
		if m != nil {
			err = errors.Join(err, m.Destroy(undo))
		}
		return nil, errors.Join(err, in.dismiss(undo), in.disconnect())
	}
	return m, nil
}

// spec is the machine that the request asks for, without its network.
func (in *instance) spec() machine.Spec {
	limits := in.request.Profile.ResourceLimits
	spec := machine.Spec{
		ID: string(in.id), StateDir: in.at.machine(), Rootfs: in.at.root(), Hostname: "checkfu", IDBase: IDBase,
		Limits: machine.Limits{
			CPUMillis: limits.CPUMillis,
			// Where the home is memory, what the instance may hold in all is both.
			MemoryBytes: limits.MemoryBytes + in.homeMemory(),
			Processes:   limits.MaxProcesses,
		},
		Binds: []machine.Bind{{Source: in.p.initPath, Destination: machine.InitPath, ReadOnly: true}},
		Build: in.building != nil,
		Twin:  in.p.twin,
	}
	for _, t := range in.trees {
		spec.Binds = append(spec.Binds, machine.Bind{
			Source: filepath.Join(in.at.home(), t.home), Destination: t.guest,
			ReadOnly: t.readOnly && !in.p.twinHome.unsealed,
		})
	}
	return spec
}

// startAll starts the machine and its attendants beside it: until one listens its
// socket file leads to a queue and nowhere else. On an error any of them may be
// left, for the caller to end.
func (in *instance) startAll(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	posts := in.posts()
	if len(posts) == 0 {
		return in.begin(ctx, spec)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	doors, err := in.openDoors(posts)
	if err != nil {
		return nil, err
	}
	in.addPosts(&spec)
	attended := make(chan error, len(posts))
	for i, p := range posts {
		go func() {
			err := in.attend(ctx, p, doors[i])
			if err != nil {
				cancel() // no machine without it
			}
			attended <- err
		}()
	}
	m, err := in.begin(ctx, spec)
	if err != nil {
		cancel()
	}
	for range posts {
		err = errors.Join(<-attended, err)
	}
	return m, err
}

// mountPoints are the guest directories on which something is mounted.
func (in *instance) mountPoints() []string {
	var points []string
	for _, t := range in.trees {
		if _, nested := parentTree(in.trees, t.guest); !nested {
			points = append(points, t.guest)
		}
	}
	if len(in.posts()) > 0 {
		points = append(points, egressPath)
	}
	return points
}

// use returns the running machine for one operation, or why there is none.
func (in *instance) use(op sandbox.Operation) (machine.Machine, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ending {
		return nil, sandbox.NoInstance(op, in.id)
	}
	if in.state != sandbox.StateActive {
		return nil, sandbox.Conflict(op, string(sandbox.StateActive), string(in.state))
	}
	return in.machine, nil
}

// remove ends the instance and takes away all of it, in the order in which a
// sweep would: processes, mounts, files, and last the record. It can be called
// again and by many; the last step decides that it is gone. One that fails
// leaves the timer of the instance's own expiry to try again.
func (in *instance) remove(ctx context.Context) error {
	select {
	case in.removing <- struct{}{}:
		defer func() { <-in.removing }()
	case <-ctx.Done():
		return fmt.Errorf("a removal under way did not settle: %w", ctx.Err())
	}
	m, live, err := in.end(ctx)
	if err != nil {
		return err
	}
	if in.lock == nil && in.at.dir == "" { // nothing was allocated, or all is gone
		in.endLease(ctx)
		in.releaseImage()
		return nil
	}
	if m != nil {
		err = m.Destroy(ctx)
		in.p.opt.Step("stopped")
	}
	if live != nil {
		live.abandon()
	}
	in.judgeRelay()
	err = errors.Join(err, in.dismiss(ctx), in.disconnect())
	// A gateway that is slow to answer takes none of the time that this host's part
	// needs: the machine is dismantled meanwhile.
	leased := make(chan struct{})
	go func() {
		defer close(leased)
		in.endLease(ctx)
	}()
	err = errors.Join(err, in.endWrites())
	in.closeRoots()
	if in.volume != nil {
		err = errors.Join(err, in.volume.Close())
	}
	err = errors.Join(err, in.p.dismantle(ctx, in.id, in.at))
	<-leased
	if err != nil {
		return err
	}
	in.releaseImage()
	err = in.lock.Close()
	in.lock, in.at = nil, place{}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.expiry != nil {
		in.expiry.Stop()
	}
	return err
}

// settleBound is how long what a removal cut short may take to settle before its
// machine is ended under it.
const settleBound = 2 * time.Second

// end refuses new work, cuts short what is under way and returns what must be ended.
// Whoever keeps that from settling may be in the machine, as a process that does not
// come out of a write while the home is to be frozen: then the machine goes first.
func (in *instance) end(ctx context.Context) (machine.Machine, *process, error) {
	in.mu.Lock()
	in.ending = true
	moving, m := in.moving, in.machine
	in.mu.Unlock()
	if moving != nil {
		moving.cancel()
		if m != nil && !moving.settled(ctx, settleBound) {
			if err := m.Destroy(ctx); err != nil {
				return nil, nil, err
			}
		}
		if !moving.settled(ctx, teardownBound) {
			return nil, nil, errors.Join(errors.New("what was under way did not settle"), ctx.Err())
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.machine, in.live, nil
}

// settled waits for the end of what is under way, and reports whether it came.
func (a *activation) settled(ctx context.Context, bound time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	select {
	case <-a.done:
		return true
	case <-ctx.Done():
		return false
	}
}

func (in *instance) closeRoots() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for guest, root := range in.roots {
		root.Close()
		delete(in.roots, guest)
	}
}

func (in *instance) releaseImage() {
	if in.image != nil {
		in.image.Release()
		in.image = nil
	}
}

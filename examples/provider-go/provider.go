package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// provider holds all instances and snapshots.
type provider struct {
	state string
	made  bool     // by itself, and taken away at its end
	lock  *os.File // one provider has a state directory

	mu        sync.Mutex
	instances map[sandbox.InstanceID]*instance
	snapshots map[sandbox.SnapshotID]*retained
	epochs    map[string]int64                         // the highest that was seen of each lease
	lost      map[sandbox.InstanceID]sandbox.Timestamp // deadlines; see lost.go
}

// open takes a state directory, erases what an earlier provider left of its
// instances, and takes up its snapshots. "" is a new directory.
func open(state string) (p *provider, err error) {
	made := state == ""
	if made {
		if state, err = os.MkdirTemp("", name+"-"); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(state, reach); err != nil {
		return nil, err
	}
	p = &provider{state: state, made: made, instances: map[sandbox.InstanceID]*instance{}, snapshots: map[sandbox.SnapshotID]*retained{}, epochs: map[string]int64{}, lost: map[sandbox.InstanceID]sandbox.Timestamp{}}
	if p.lock, err = os.Open(state); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(p.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another provider holds it (%w)", state, err), p.lock.Close())
	}
	err = os.Chmod(state, reach)
	if durable {
		err = errors.Join(err, p.loadLost(), p.loadSnapshots())
	}
	err = errors.Join(err, os.RemoveAll(p.instanceDir()), os.Mkdir(p.instanceDir(), 0o711))
	for id, deadline := range p.lost {
		err = errors.Join(err, p.mark(id, deadline))
	}
	if err != nil {
		return nil, errors.Join(err, p.lock.Close())
	}
	return p, nil
}

func (p *provider) instanceDir() string { return filepath.Join(p.state, "run") }

// close ends every instance; snapshots stay.
func (p *provider) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	p.mu.Lock()
	all := maps.Clone(p.instances)
	p.mu.Unlock()
	for id, i := range all {
		err = errors.Join(err, p.Destroy(ctx, id))
		if durable {
			err = errors.Join(err, p.mark(id, i.value.ExpiresAt))
		}
	}
	if !durable {
		err = errors.Join(err, os.Remove(p.instanceDir()))
	}
	if p.made {
		err = errors.Join(err, os.RemoveAll(p.state))
	}
	return errors.Join(err, p.lock.Close())
}

const probeName = "probe"

// probe runs a command as any other would run, before anything is promised.
func (p *provider) probe(ctx context.Context) (err error) {
	value := sandbox.Instance{Profile: sandbox.Profile{ResourceLimits: sandbox.Resources{DiskBytes: 1 << 20, MaxProcesses: 64}}}
	i, err := newInstance(filepath.Join(p.instanceDir(), probeName), value, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.erase()) }()
	r, err := i.start(ctx, sandbox.OpExecute, sandbox.ProcessRequest{Executable: "/bin/sh", Arguments: []string{"-c", "exit 7"}, WorkingDirectory: "/"}, false)
	if err != nil {
		return err
	}
	defer r.close()
	select {
	case <-r.over:
	case <-ctx.Done():
	}
	if err = r.kill(context.WithoutCancel(ctx)); err == nil && (r.exit == nil || r.exit.ExitCode == nil || *r.exit.ExitCode != 7) {
		err = errors.New("a command did not end as it should")
	}
	return err
}

func now() sandbox.Timestamp { return sandbox.At(time.Now()) }

// Capabilities is the envelope.
func (p *provider) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	return envelope(), ctx.Err()
}

// Optional names what the tier has.
func (p *provider) Optional() sandbox.Optional {
	if !dayOne {
		return sandbox.Optional{}
	}
	return sandbox.Optional{ReadFiles: p, ListDir: p, OpenProcess: p}
}

// find gives an instance that is there.
func (p *provider) find(op sandbox.Operation, id sandbox.InstanceID) (*instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.instances[id]; i != nil {
		return i, nil
	}
	return nil, sandbox.NoInstance(op, id)
}

// work are the members that an expired instance refuses.
var work = []sandbox.Operation{sandbox.OpWriteFile, sandbox.OpActivate, sandbox.OpExecute, sandbox.OpOpenProcess}

// enter begins a member on an instance. state is "" where both states do.
func (p *provider) enter(ctx context.Context, op sandbox.Operation, id sandbox.InstanceID, state sandbox.State) (*instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	i, err := p.find(op, id)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.gone:
		return nil, sandbox.NoInstance(op, id)
	case state != "" && i.value.State != state:
		return nil, sandbox.Conflict(op, string(state), string(i.value.State))
	case slices.Contains(work, op):
		if err := inTime(op, i.value.ExpiresAt); err != nil {
			return nil, err
		}
	}
	i.seen = now()
	return i, nil
}

// Provision makes an instance.
func (p *provider) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	if err := admit(sandbox.OpProvision, r); err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	return p.allocate(sandbox.OpProvision, r, sandbox.StateProvisioning, nil)
}

func (p *provider) allocate(op sandbox.Operation, r sandbox.ProvisionRequest, state sandbox.State, fill func(*instance) error) (sandbox.Handoff[sandbox.Instance], error) {
	id := sandbox.InstanceID("instance-" + strings.ToLower(rand.Text()))
	value := sandbox.InstanceOf(r, id, state, digest(r.Profile.ImageIdentity()))
	i, err := newInstance(filepath.Join(p.instanceDir(), string(id)), value, fill)
	if err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, fault(op, "", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances[id] = i
	p.epochs[r.LeaseID] = max(p.epochs[r.LeaseID], r.LeaseEpoch)
	return p.handOver(id, value), nil
}

// handOver knows the id itself: what the Runner rejects it may not trust.
func (p *provider) handOver(id sandbox.InstanceID, value sandbox.Instance) sandbox.Handoff[sandbox.Instance] {
	return sandbox.Handoff[sandbox.Instance]{Value: value, Rollback: func(ctx context.Context) error { return p.Destroy(ctx, id) }}
}

// Activate seals the mounts: from now on nobody stages anything into them.
func (p *provider) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	const op = sandbox.OpActivate
	i, err := p.enter(ctx, op, id, sandbox.StateProvisioning)
	if err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	i.staging.Lock()
	defer i.staging.Unlock()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.value.State != sandbox.StateProvisioning { // another activation was faster
		return sandbox.Handoff[sandbox.Instance]{}, sandbox.Conflict(op, string(sandbox.StateProvisioning), string(i.value.State))
	}
	i.value.State = sandbox.StateActive
	return p.handOver(id, i.value), nil
}

// Destroy ends an instance and erases it. An unknown id is success.
func (p *provider) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	i, err := p.find(sandbox.OpDestroy, id)
	if err != nil {
		return errors.Join(ctx.Err(), p.forget(id))
	}
	if err := i.end(ctx); err != nil {
		return err
	}
	if err := i.erase(); err != nil {
		return fault(sandbox.OpDestroy, "", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.instances, id)
	return nil
}

// Cleanup destroys what is orphaned: an instance past its deadline, or whose
// lease has a later owner and which nobody used since the cutoff; a snapshot past
// its deadline, or unpinned and not used since the cutoff.
func (p *provider) Cleanup(ctx context.Context, r sandbox.CleanupRequest) (sandbox.Swept, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Swept{}, err
	}
	if err := r.Validate(); err != nil {
		return sandbox.Swept{}, invalid(sandbox.OpCleanup, err)
	}
	swept := sandbox.Swept{InstanceIDs: []sandbox.InstanceID{}, SnapshotIDs: []sandbox.SnapshotID{}}
	p.mu.Lock()
	for id, i := range p.instances {
		i.mu.Lock()
		if !r.Now.Before(i.value.ExpiresAt) || p.epochs[i.value.LeaseID] > i.value.LeaseEpoch && i.seen.Before(r.OrphanedBefore) {
			swept.InstanceIDs = append(swept.InstanceIDs, id)
		}
		i.mu.Unlock()
	}
	for id, deadline := range p.lost {
		if !r.Now.Before(deadline) {
			swept.InstanceIDs = append(swept.InstanceIDs, id)
		}
	}
	for id, s := range p.snapshots {
		if !r.Now.Before(s.Reference.ExpiresAt) || s.seen.Before(r.OrphanedBefore) && !slices.Contains(r.PinnedSnapshots, id) {
			swept.SnapshotIDs = append(swept.SnapshotIDs, id)
		}
	}
	p.mu.Unlock()
	for _, id := range swept.InstanceIDs {
		if err := p.Destroy(ctx, id); err != nil {
			return sandbox.Swept{}, err
		}
	}
	for _, id := range swept.SnapshotIDs {
		if err := p.DestroySnapshot(ctx, id); err != nil {
			return sandbox.Swept{}, err
		}
	}
	slices.Sort(swept.InstanceIDs)
	slices.Sort(swept.SnapshotIDs)
	return swept, nil
}

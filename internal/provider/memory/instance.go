package memory

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// instance is one machine with its identity.
type instance struct {
	m *machine // immutable

	mu      sync.Mutex
	value   sandbox.Instance // only State changes
	seen    sandbox.Timestamp
	gone    bool          // no member may enter any more
	users   int           // members that entered and have not left
	idle    chan struct{} // closed once gone and users is 0
	jobs    map[*job]bool
	process *process
	writes  map[*activeWrite]bool
}

func newInstance(value sandbox.Instance, t *tree, p *Provider) *instance {
	return &instance{
		value: value, seen: p.now(), idle: make(chan struct{}), jobs: map[*job]bool{}, writes: map[*activeWrite]bool{},
		m: &machine{
			tree: t, platform: value.Platform, policy: value.Profile.NetworkPolicy, programs: p.programs,
			depth:     int(min(value.Profile.ResourceLimits.MaxProcesses, maxDepth)),
			processes: min(value.Profile.ResourceLimits.MaxProcesses, maxLive),
		},
	}
}

// work are the members that an expired instance refuses.
var work = map[sandbox.Operation]bool{
	sandbox.OpWriteFile: true, sandbox.OpActivate: true, sandbox.OpExecute: true,
	sandbox.OpOpenProcess: true, sandbox.OpBeginActiveWrite: true,
}

// enter begins a member on an instance and holds the instance until leave.
// state is "" where both states do. Past its own deadline an instance takes no
// more work; what it holds can be read, captured and released until a cleanup
// comes.
func (p *Provider) enter(ctx context.Context, op sandbox.Operation, id sandbox.InstanceID, state sandbox.State) (i *instance, leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	i = p.instances[id]
	p.mu.Unlock()
	if i == nil {
		return nil, nil, sandbox.NoInstance(op, id)
	}
	now := p.now()
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.gone:
		return nil, nil, sandbox.NoInstance(op, id)
	case state != "" && i.value.State != state:
		return nil, nil, sandbox.Conflict(op, string(state), string(i.value.State))
	case work[op] && !now.Before(i.value.ExpiresAt):
		return nil, nil, p.checkDeadline(op, i.value.ExpiresAt)
	}
	i.seen = now
	i.users++
	return i, i.leave, nil
}

func (i *instance) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.users--; i.gone && i.users == 0 {
		close(i.idle)
	}
}

// start registers a job so that the end of the instance kills it.
func (i *instance) start(j *job) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.jobs[j] = true
	if i.gone {
		j.kill("SIGKILL")
	}
}

func (i *instance) finish(j *job) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.jobs, j)
}

// close lets nobody in any more, kills what runs and waits until all have
// left. It may be called again.
func (i *instance) close(ctx context.Context) error {
	i.mu.Lock()
	if !i.gone {
		i.gone = true
		if i.users == 0 {
			close(i.idle)
		}
	}
	for j := range i.jobs {
		j.kill("SIGKILL")
	}
	writes := slices.Collect(maps.Keys(i.writes))
	clear(i.writes)
	i.mu.Unlock()
	for _, w := range writes { // a transaction is locked before its instance
		w.drop()
	}
	select {
	case <-i.idle:
		return nil
	default:
	}
	select {
	case <-i.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// erase overwrites every file. The instance is closed.
func (i *instance) erase() {
	t := i.m.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root != nil {
		t.root.erase()
		t.root = nil
	}
}

// claim closes the door for one caller: it is false if it was closed already.
// The caller is one of the users.
func (i *instance) claim() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.gone {
		return false
	}
	i.gone = true
	return true
}

// reopen takes a claim back, unless the instance has ended meanwhile.
func (i *instance) reopen() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.users > 0 {
		i.gone = false
	}
}

package sandboxruntime

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// phase is where an instance is for the runtime. The contract has two states;
// the others are what lies between and after them, and accept destroy only.
// Source: contract "Lifecycle and states".
type phase string

const (
	provisioning phase = phase(sandbox.StateProvisioning)
	active       phase = phase(sandbox.StateActive)
	activating   phase = "activating"
	releasing    phase = "releasing"
	destroying   phase = "destroying"
	lost         phase = "lost" // its provider's part failed in a way that leaves its state unknown
	gone         phase = "gone"
)

// instance is one instance that the runtime owns.
type instance struct {
	id      sandbox.InstanceID
	request sandbox.ProvisionRequest // what was asked for; never changes
	digest  sandbox.Digest           // of request.Profile's derived image
	shape   error                    // what is wrong with request's network policy by itself
	expires time.Time

	mu        sync.Mutex // guards what follows
	phase     phase
	uses      int // calls in flight, without the changes of its lifecycle
	processes map[*process]none
}

func newInstance(q sandbox.ProvisionRequest, expires time.Time) *instance {
	q = cloneRequest(q)
	return &instance{
		request: q, digest: profileDigest(q.Profile), shape: q.Profile.NetworkPolicy.Validate(),
		expires: expires, processes: map[*process]none{},
	}
}

// value is the instance as the runtime knows it: made from its own request,
// equal to what the provider returned and sharing no memory with it.
func (i *instance) value(s sandbox.State) sandbox.Instance {
	return sandbox.InstanceOf(cloneRequest(i.request), i.id, s, i.digest)
}

// enter admits one use of an instance in one of states. Each enter that
// succeeds needs one leave.
// Errors: InstanceNotFound, LifecycleConflict; the provider is not called.
// Source: contract "Lifecycle and states".
func (r *Runtime) enter(op sandbox.Operation, id sandbox.InstanceID, states ...phase) (*instance, error) {
	i := r.find(id)
	if i == nil {
		return nil, sandbox.NoInstance(op, id)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.is(op, states...); err != nil {
		return nil, err
	}
	i.uses++
	return i, nil
}

// reenter counts one more use beside one that the caller already has.
func (i *instance) reenter() {
	i.mu.Lock()
	i.uses++
	i.mu.Unlock()
}

func (i *instance) leave() {
	i.mu.Lock()
	i.uses--
	i.mu.Unlock()
}

// begin changes the lifecycle from one phase into a passing one, unless
// another call is in flight: what it writes would be sealed or captured half.
func (r *Runtime) begin(op sandbox.Operation, id sandbox.InstanceID, from, through phase) (*instance, error) {
	i := r.find(id)
	if i == nil {
		return nil, sandbox.NoInstance(op, id)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.is(op, from); err != nil {
		return nil, err
	}
	if i.uses > 0 {
		return nil, sandbox.Conflict(op, string(from), sandbox.ActualBusy)
	}
	i.phase = through
	return i, nil
}

// end settles a passing phase. It fails if a destroy came in between, which
// then decides what becomes of the instance.
func (r *Runtime) end(op sandbox.Operation, i *instance, through, to phase) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.is(op, through); err != nil {
		return err
	}
	i.phase = to
	if to == gone {
		r.forget(i)
	}
	return nil
}

// is compares the phase. The caller holds mu.
func (i *instance) is(op sandbox.Operation, states ...phase) error {
	if slices.Contains(states, i.phase) {
		return nil
	}
	expected := string(states[0])
	for _, s := range states[1:] {
		expected += " or " + string(s)
	}
	return sandbox.Conflict(op, expected, string(i.phase))
}

func (r *Runtime) find(id sandbox.InstanceID) *instance {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.instances[id]
}

// keep registers a new instance, unless its id names one already: a provider
// that answers with a neighbour's id must not get the neighbour torn down.
func (r *Runtime) keep(i *instance) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[i.id] != nil {
		return protocolInvalid(OpInstanceIdentity, "instance_id", "an id that names no other instance", string(i.id))
	}
	r.instances[i.id] = i
	return nil
}

func (r *Runtime) forget(i *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[i.id] == i {
		delete(r.instances, i.id)
	}
}

// expired refuses work on an instance past its own deadline. Reading what it
// holds, releasing and destroying it stay possible while the provider has it.
// Source: contract "Identity is cross-checked" (hard expiry).
func (r *Runtime) expired(op sandbox.Operation, i *instance) error {
	if r.link.Now().Before(i.expires) {
		return nil
	}
	return sandbox.Conflict(op, "before expires_at "+string(i.request.ExpiresAt), sandbox.ActualExpired)
}

// passed refuses a deadline of a request that lies in the past.
func (r *Runtime) passed(op sandbox.Operation, field string, deadline sandbox.Timestamp) error {
	if t, err := deadline.Time(); err == nil && r.link.Now().Before(t) {
		return nil
	}
	return sandbox.Conflict(op, "before "+field+" "+string(deadline), sandbox.ActualExpired)
}

// runnable is what every call that sets the workload going has in common: the
// retained profile's network policy must satisfy the current envelope and the
// current shape, now and not only at selection, and the instance must live.
// Source: contract "Errors", third condition of network_policy.
func (r *Runtime) runnable(op sandbox.Operation, i *instance) error {
	if err := unmetNetwork(op, r.capabilities, i.request.Profile.NetworkPolicy, i.shape); err != nil {
		return err
	}
	return r.expired(op, i)
}

// use runs one call on an instance that was entered, and leaves the instance
// when the provider has really returned, however late.
func use[T any](ctx context.Context, r *Runtime, i *instance, c call[T]) (T, error) {
	c.late = func(T, error) { i.leave() }
	value, left, err := do(ctx, r.link, c)
	if !left {
		i.leave()
	}
	return value, err
}

package sandboxtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// baselines do not even try.
func baselines() []Saboteur {
	type envelope = func(ctx context.Context) (sandbox.Capabilities, error)
	zero := func(context.Context) (sandbox.Capabilities, error) { return sandbox.Capabilities{}, nil }
	dumb := func(id, fault string, envelope func(p sandbox.Provider) envelope, answer func(op sandbox.Operation) error) Saboteur {
		return Saboteur{ID: id, Fault: fault, Wrap: func(p sandbox.Provider, _ *Env) sandbox.Provider { return mute{envelope(p), answer} }}
	}
	refusal := func(op sandbox.Operation) error {
		switch op {
		case sandbox.OpDestroy, sandbox.OpDestroySnapshot, sandbox.OpCleanup:
			return sandbox.Failed(op, sandbox.ReasonProviderError, nil)
		}
		return sandbox.Unavailable(op, sandbox.RequireResources, "a machine", "none")
	}
	throws := func(op sandbox.Operation) error { return fmt.Errorf("not implemented: %s", op) }
	return []Saboteur{
		{ID: "B1", Fault: "empty: there is no provider", Wrap: func(sandbox.Provider, *Env) sandbox.Provider { return nil }},
		dumb("B2", "null: every member returns nothing", func(sandbox.Provider) envelope { return zero }, func(sandbox.Operation) error { return nil }),
		dumb("B3", "null behind a right envelope", memberless, func(sandbox.Operation) error { return nil }),
		dumb("B4", "throws on every call", func(sandbox.Provider) envelope {
			return func(context.Context) (sandbox.Capabilities, error) {
				return sandbox.Capabilities{}, throws(sandbox.OpCapabilities)
			}
		}, throws),
		dumb("B5", "throws behind a right envelope", memberless, throws),
		dumb("B6", "panics on every call", func(sandbox.Provider) envelope {
			return func(context.Context) (sandbox.Capabilities, error) { panic("capabilities") }
		}, func(op sandbox.Operation) error { panic(op) }),
		dumb("B7", "panics behind a right envelope", memberless, func(op sandbox.Operation) error { panic(op) }),
		dumb("B8", "refuses everything in closed words behind a full envelope", memberless, refusal),
		dumb("B9", "refuses everything in closed words behind the weakest envelope", func(p sandbox.Provider) envelope { return Minimum(p).Capabilities }, refusal),
		{ID: "B10", Fault: "echo: answers every call with what was asked for and does nothing", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			e := newEcho(p, env)
			return &e
		}},
		{ID: "B11", Fault: "answer key: says what the suite wants to hear and has no machine", Wrap: newAnswerKey},
		{ID: "B12", Fault: "answer key behind the weakest envelope", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider { return Minimum(newAnswerKey(p, env)) }},
	}
}

// memberless is an envelope of p that claims no optional member.
func memberless(p sandbox.Provider) func(ctx context.Context) (sandbox.Capabilities, error) {
	return Reduce(p, func(c *sandbox.Capabilities) { c.ListDir, c.ActiveMountWrite = false, false }).Capabilities
}

// mute answers every call alike.
type mute struct {
	envelope func(ctx context.Context) (sandbox.Capabilities, error)
	answer   func(op sandbox.Operation) error
}

var _ sandbox.Provider = mute{}

func (m mute) Capabilities(ctx context.Context) (sandbox.Capabilities, error) { return m.envelope(ctx) }

func (m mute) Provision(context.Context, sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return sandbox.Handoff[sandbox.Instance]{}, m.answer(sandbox.OpProvision)
}

func (m mute) WriteFile(context.Context, sandbox.InstanceID, sandbox.FileWrite) error {
	return m.answer(sandbox.OpWriteFile)
}

func (m mute) Activate(context.Context, sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	return sandbox.Handoff[sandbox.Instance]{}, m.answer(sandbox.OpActivate)
}

func (m mute) Execute(context.Context, sandbox.InstanceID, sandbox.Command) (sandbox.Settlement, error) {
	return sandbox.Settlement{}, m.answer(sandbox.OpExecute)
}

func (m mute) ReadFile(context.Context, sandbox.InstanceID, sandbox.FileRead) ([]byte, error) {
	return nil, m.answer(sandbox.OpReadFile)
}

func (m mute) Snapshot(context.Context, sandbox.InstanceID, sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	return sandbox.Handoff[sandbox.Snapshot]{}, m.answer(sandbox.OpSnapshot)
}

func (m mute) CloneSnapshot(context.Context, sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	return sandbox.Handoff[sandbox.Snapshot]{}, m.answer(sandbox.OpCloneSnapshot)
}

func (m mute) Release(context.Context, sandbox.InstanceID, sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	return sandbox.Handoff[sandbox.Released]{}, m.answer(sandbox.OpRelease)
}

func (m mute) Resume(context.Context, sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return sandbox.Handoff[sandbox.Instance]{}, m.answer(sandbox.OpResume)
}

func (m mute) Destroy(context.Context, sandbox.InstanceID) error { return m.answer(sandbox.OpDestroy) }

func (m mute) DestroySnapshot(context.Context, sandbox.SnapshotID) error {
	return m.answer(sandbox.OpDestroySnapshot)
}

func (m mute) Cleanup(context.Context, sandbox.CleanupRequest) (sandbox.Swept, error) {
	return sandbox.Swept{}, m.answer(sandbox.OpCleanup)
}

func (m mute) Optional() sandbox.Optional { return sandbox.Optional{} }

// echo gives back what was asked for, well formed and with every identity
// right, and has nothing behind it: what answers 200 to everything, with care.
type echo struct {
	mute
	now  func() time.Time
	fire func()

	mu        *sync.Mutex
	count     *int
	instances map[sandbox.InstanceID]*echoed
}

type echoed struct {
	request sandbox.ProvisionRequest
	state   sandbox.State
}

func newEcho(p sandbox.Provider, env *Env) echo {
	return echo{
		mute: mute{memberless(p), func(sandbox.Operation) error { return nil }}, now: env.Now, fire: env.Fire,
		mu: &sync.Mutex{}, count: new(int), instances: map[sandbox.InstanceID]*echoed{},
	}
}

func (e *echo) mint(prefix string) string {
	*e.count++
	sum := sha256.Sum256(fmt.Append(nil, prefix, *e.count))
	return prefix + hex.EncodeToString(sum[:10])
}

func handed[V any](v V) sandbox.Handoff[V] {
	return sandbox.Handoff[V]{Value: v, Rollback: func(context.Context) error { return nil }}
}

func digest(b []byte) sandbox.Digest {
	sum := sha256.Sum256(b)
	return sandbox.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

func (e *echo) instance(q sandbox.ProvisionRequest, state sandbox.State) sandbox.Handoff[sandbox.Instance] {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := sandbox.InstanceID(e.mint("i-"))
	e.instances[id] = &echoed{q, state}
	return handed(sandbox.InstanceOf(q, id, state, digest(q.Profile.ImageIdentity())))
}

func (e *echo) Provision(_ context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return e.instance(q, sandbox.StateProvisioning), nil
}

func (e *echo) Resume(_ context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return e.instance(q.Request, sandbox.StateActive), nil
}

func (e *echo) Activate(_ context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.instances[id]
	if i == nil {
		return sandbox.Handoff[sandbox.Instance]{}, nil
	}
	i.state = sandbox.StateActive
	return handed(sandbox.InstanceOf(i.request, id, i.state, digest(i.request.Profile.ImageIdentity()))), nil
}

func (e *echo) Execute(context.Context, sandbox.InstanceID, sandbox.Command) (sandbox.Settlement, error) {
	now := sandbox.At(e.now())
	return sandbox.Settlement{Exit: sandbox.Exited(0), StartedAt: now, FinishedAt: now}, nil
}

func (e *echo) Snapshot(_ context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.instances[id]
	if i == nil {
		return handed(sandbox.Snapshot{}), nil
	}
	r := i.request
	return handed(sandbox.Snapshot{
		SnapshotID: sandbox.SnapshotID(e.mint("s-")), Provider: r.Target.Provider, Placement: r.Target.Placement, SourceInstanceID: id,
		WorkspaceID: r.WorkspaceID, SessionID: r.SessionID, ProfileID: r.Profile.ProfileID, ProfileVersion: r.Profile.ProfileVersion,
		ProfileDigest: digest(r.Profile.ImageIdentity()), CreatedAt: sandbox.At(e.now()), ExpiresAt: q.ExpiresAt,
	}), nil
}

func (e *echo) CloneSnapshot(_ context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q.Snapshot.SnapshotID, q.Snapshot.SessionID = sandbox.SnapshotID(e.mint("s-")), q.TargetSessionID
	return handed(q.Snapshot), nil
}

func (e *echo) Release(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	out := sandbox.Released{Disposition: sandbox.DispositionDestroyed}
	if q.ExpiresAt != "" {
		h, _ := e.Snapshot(ctx, id, sandbox.SnapshotRequest(q))
		out = sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &h.Value}
	}
	return handed(out), e.Destroy(ctx, id)
}

func (e *echo) Destroy(_ context.Context, id sandbox.InstanceID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.instances, id)
	return nil
}

func (e *echo) Cleanup(context.Context, sandbox.CleanupRequest) (sandbox.Swept, error) {
	return sandbox.Swept{InstanceIDs: []sandbox.InstanceID{}, SnapshotIDs: []sandbox.SnapshotID{}}, nil
}

package probe

import (
	"context"
	"fmt"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/sandbox"
)

// seam is the target as one probe sees it.
type seam struct{ t *T }

var _ sandbox.Provider = seam{}

// rollbackLimit is the contract's own bound.
// Source: contract "Allocation handoff", third rule.
const rollbackLimit = sandbox.RollbackSeconds * time.Second

// asked names a call for the transcript: the instance or snapshot that it is
// about, and the request.
type asked struct {
	op      sandbox.Operation
	id      string
	request any // of package sandbox, or nil
	limit   time.Duration
}

// through makes one call: bounded, judged, written down. A target that hung
// once is not asked anything else: every later call would hang too.
func through[V any](ctx context.Context, t *T, q asked, result func(V) any, call func(context.Context) (V, error)) (V, error) {
	if where := t.run.stuck(); where != "" {
		var zero V
		return zero, fmt.Errorf("%w: it is not asked again since it hung in %s", errHung, where)
	}
	if q.limit == 0 {
		q.limit = t.run.o.Patience
	}
	began := t.run.clock.Now()
	// A caller that gave up still waits: what the target owes it is an answer.
	value, err := bounded(ctx, t.run.within(t.ctx, q.limit), call, func(v V, err error) { abandon(v, err) })
	t.run.judge(q.op, err, ctx.Err() != nil)
	if Hung(err) {
		t.run.stick(string(q.op) + ", called by " + t.probe.ID)
	}
	if t.run.o.Transcript != nil {
		var of any
		if err == nil && result != nil {
			of = result(value)
		}
		t.record(q, began, of, err)
	}
	return value, err
}

// record writes one line of the transcript.
func (t *T) record(q asked, began time.Time, result any, err error) {
	line := report.Line{
		At: sandbox.At(began), Probe: t.probe.ID, Operation: q.op, ID: report.Printable(q.id),
		Ms: max(t.run.clock.Now().Sub(began).Milliseconds(), 0),
	}
	if q.request != nil {
		line.Request, _ = report.Mask(q.request)
	}
	if err != nil {
		line.Error = report.Printable(text(err))
	} else if result != nil {
		line.Result, _ = report.Mask(result)
	}
	t.run.mu.Lock()
	defer t.run.mu.Unlock()
	_, _ = t.run.o.Transcript.Append(line) // bounded, printable text always encodes
}

// stuck is where the target hung, or "".
func (r *run) stuck() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hung
}

// stick notes the first hang.
func (r *run) stick(where string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hung == "" {
		r.hung = where
	}
}

// abandon gives back what came when nobody waited for it any more: no teardown
// knows its id. If the target fails here too, hard expiry is left.
func abandon(v any, err error) {
	if err != nil {
		return
	}
	var undo func(context.Context) error
	switch h := v.(type) {
	case sandbox.Handoff[sandbox.Instance]:
		undo = h.Rollback
	case sandbox.Handoff[sandbox.Snapshot]:
		undo = h.Rollback
	case sandbox.Handoff[sandbox.Released]:
		undo = h.Rollback
	case sandbox.Process:
		undo = h.Destroy
	case sandbox.ActiveWrite:
		undo = h.Abort
	}
	if undo == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackLimit)
	defer cancel()
	_, _ = survive(ctx, func(ctx context.Context) (none, error) { return none{}, undo(ctx) })
}

// none is the result of a member that returns only an error.
type none struct{}

func only(ctx context.Context, t *T, q asked, call func(context.Context) error) error {
	_, err := through(ctx, t, q, nil, func(ctx context.Context) (none, error) { return none{}, call(ctx) })
	return err
}

// handoff makes the compensation of an allocation as careful as the call was.
func handoff[V any](t *T, op sandbox.Operation, h sandbox.Handoff[V]) sandbox.Handoff[V] {
	t.run.held(standHandoff)
	rollback := h.Rollback
	if rollback == nil {
		t.run.broke(standHandoff, string(op), string(op), "a compensation", "none")
		rollback = func(context.Context) error { return nil }
	}
	h.Rollback = func(ctx context.Context) error {
		return only(ctx, t, asked{op: op + "_rollback", limit: rollbackLimit}, rollback)
	}
	return h
}

func (s seam) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	return through(ctx, s.t, asked{op: sandbox.OpCapabilities}, func(c sandbox.Capabilities) any { return c }, s.t.run.target.Provider.Capabilities)
}

func (s seam) Provision(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return s.instance(ctx, asked{op: sandbox.OpProvision, request: q}, standProvision, q, sandbox.StateProvisioning, "",
		func(ctx context.Context) (sandbox.Handoff[sandbox.Instance], error) {
			return s.t.run.target.Provider.Provision(ctx, copyRequest(q))
		})
}

func (s seam) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	q, _ := s.t.run.ledger.asked(id)
	return s.instance(ctx, asked{op: sandbox.OpActivate, id: string(id)}, standActivate, q, sandbox.StateActive, id,
		func(ctx context.Context) (sandbox.Handoff[sandbox.Instance], error) {
			return s.t.run.target.Provider.Activate(ctx, id)
		})
}

func (s seam) Resume(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return s.instance(ctx, asked{op: sandbox.OpResume, id: string(q.Snapshot.SnapshotID), request: q.Request}, standResume, q.Request, sandbox.StateActive, "",
		func(ctx context.Context) (sandbox.Handoff[sandbox.Instance], error) {
			return s.t.run.target.Provider.Resume(ctx, sandbox.ResumeRequest{Request: copyRequest(q.Request), Snapshot: q.Snapshot})
		})
}

// instance is what the three members that return one have in common. known is
// the id that it must keep, "" where it may choose one.
func (s seam) instance(ctx context.Context, q asked, stand string, request sandbox.ProvisionRequest, state sandbox.State, known sandbox.InstanceID,
	call func(context.Context) (sandbox.Handoff[sandbox.Instance], error)) (sandbox.Handoff[sandbox.Instance], error) {
	r := s.t.run
	h, err := through(ctx, s.t, q, func(h sandbox.Handoff[sandbox.Instance]) any { return h.Value }, call)
	if err != nil {
		return h, err
	}
	got := h.Value
	if known == "" {
		if other, ours := r.ledger.asked(got.InstanceID); ours && other.RunID != request.RunID && !r.ledger.gone(got.InstanceID) {
			r.broke(stand, "instance_id", "instance_id", "an id that names no other instance", string(got.InstanceID))
		} else {
			r.ledger.instance(s.t.probe.ID, got.InstanceID, request)
		}
	}
	want := sandbox.InstanceOf(request, got.InstanceID, state, sandbox.Digest(canonical.Digest(request.Profile.ImageIdentity())))
	r.differ(stand, "", crosscheck.Instance(&want, &got))
	if e := sandbox.CheckInstanceID("instance_id", got.InstanceID); e != nil {
		r.valid(stand, e)
	}
	if known != "" && got.InstanceID != known {
		r.broke(stand, "instance_id", "instance_id", string(known), string(got.InstanceID))
	}
	return handoff(s.t, q.op, h), nil
}

func (s seam) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	return only(ctx, s.t, asked{op: sandbox.OpWriteFile, id: string(id), request: w}, func(ctx context.Context) error {
		return s.t.run.target.Provider.WriteFile(ctx, id, w)
	})
}

func (s seam) Execute(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	limit := time.Duration(min(c.TimeoutSeconds, 1<<30))*time.Second + s.t.run.o.Patience
	got, err := through(ctx, s.t, asked{op: sandbox.OpExecute, id: string(id), request: c, limit: limit},
		func(got sandbox.Settlement) any { return settled(got) },
		func(ctx context.Context) (sandbox.Settlement, error) {
			return s.t.run.target.Provider.Execute(ctx, id, c)
		})
	if err == nil {
		s.t.run.valid(standSettlement, got.Validate(c.OutputLimitBytes))
	}
	return got, err
}

func (s seam) ReadFile(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
	got, err := through(ctx, s.t, asked{op: sandbox.OpReadFile, id: string(id), request: q}, func(b []byte) any { return sized(b) },
		func(ctx context.Context) ([]byte, error) { return s.t.run.target.Provider.ReadFile(ctx, id, q) })
	if err == nil {
		s.t.run.held(standReadFile)
		if int64(len(got)) > q.MaximumBytes {
			s.t.run.broke(standReadFile, "maximum_bytes", "content", "at most maximum_bytes", "more")
		}
	}
	return got, err
}

func (s seam) Snapshot(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	return s.snapshot(ctx, asked{op: sandbox.OpSnapshot, id: string(id), request: q}, standSnapshot,
		func(got *sandbox.Snapshot) { s.t.run.compareSnapshot(standSnapshot, id, q.ExpiresAt, got) },
		func(ctx context.Context) (sandbox.Handoff[sandbox.Snapshot], error) {
			return s.t.run.target.Provider.Snapshot(ctx, id, q)
		})
}

func (s seam) CloneSnapshot(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	return s.snapshot(ctx, asked{op: sandbox.OpCloneSnapshot, id: string(q.Snapshot.SnapshotID), request: q}, standClone,
		func(got *sandbox.Snapshot) { s.t.run.differ(standClone, "", crosscheck.Clone(&q, got)) },
		func(ctx context.Context) (sandbox.Handoff[sandbox.Snapshot], error) {
			return s.t.run.target.Provider.CloneSnapshot(ctx, q)
		})
}

func (s seam) snapshot(ctx context.Context, q asked, stand string, compare func(*sandbox.Snapshot),
	call func(context.Context) (sandbox.Handoff[sandbox.Snapshot], error)) (sandbox.Handoff[sandbox.Snapshot], error) {
	h, err := through(ctx, s.t, q, func(h sandbox.Handoff[sandbox.Snapshot]) any { return h.Value }, call)
	if err != nil {
		return h, err
	}
	s.t.run.ledger.snapshot(s.t.probe.ID, h.Value.SnapshotID)
	compare(&h.Value)
	s.t.run.valid(stand, h.Value.Validate())
	return handoff(s.t, q.op, h), nil
}

// compareSnapshot holds a snapshot to the instance that it was taken of.
func (r *run) compareSnapshot(stand string, id sandbox.InstanceID, expires sandbox.Timestamp, got *sandbox.Snapshot) {
	q, ours := r.ledger.asked(id)
	if !ours {
		return
	}
	want := sandbox.Snapshot{
		Provider: q.Target.Provider, Placement: q.Target.Placement, SourceInstanceID: id, WorkspaceID: q.WorkspaceID, SessionID: q.SessionID,
		ProfileID: q.Profile.ProfileID, ProfileVersion: q.Profile.ProfileVersion,
		ProfileDigest: sandbox.Digest(canonical.Digest(q.Profile.ImageIdentity())), ExpiresAt: expires,
	}
	r.differ(stand, "", crosscheck.Snapshot(&want, got))
}

func (s seam) Release(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	r := s.t.run
	h, err := through(ctx, s.t, asked{op: sandbox.OpRelease, id: string(id), request: q}, func(h sandbox.Handoff[sandbox.Released]) any { return h.Value },
		func(ctx context.Context) (sandbox.Handoff[sandbox.Released], error) {
			return r.target.Provider.Release(ctx, id, q)
		})
	if err != nil {
		return h, err
	}
	got := h.Value
	if got.Snapshot != nil {
		r.ledger.snapshot(s.t.probe.ID, got.Snapshot.SnapshotID)
		r.compareSnapshot(standRelease, id, q.ExpiresAt, got.Snapshot)
		r.valid(standRelease, got.Snapshot.Validate())
	}
	r.held(standSettled)
	if got.Snapshot == nil || got.Snapshot.Validate() == nil { // otherwise that is the one finding
		r.valid(standSettled, got.Validate())
	}
	if request, ours := r.ledger.asked(id); ours {
		want := sandbox.DispositionDestroyed
		if request.Profile.RetentionMode == sandbox.RetentionDurable {
			want = sandbox.DispositionReleased
		}
		if got.Disposition != want {
			r.broke(standSettled, "disposition", "disposition", string(want), string(got.Disposition))
		}
	}
	return handoff(s.t, sandbox.OpRelease, h), nil
}

func (s seam) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	return only(ctx, s.t, asked{op: sandbox.OpDestroy, id: string(id)}, func(ctx context.Context) error { return s.t.run.target.Provider.Destroy(ctx, id) })
}

func (s seam) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	return only(ctx, s.t, asked{op: sandbox.OpDestroySnapshot, id: string(id)}, func(ctx context.Context) error {
		return s.t.run.target.Provider.DestroySnapshot(ctx, id)
	})
}

func (s seam) Cleanup(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	got, err := through(ctx, s.t, asked{op: sandbox.OpCleanup, request: q}, func(got sandbox.Swept) any { return got },
		func(ctx context.Context) (sandbox.Swept, error) { return s.t.run.target.Provider.Cleanup(ctx, q) })
	if err == nil {
		s.t.run.valid(standCleanup, got.Validate())
	}
	return got, err
}

package sandboxtest

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// references knows the real snapshot behind one that was told otherwise, so
// that the saboteur is wrong in what it says and in nothing that it does.
type references struct {
	mu   sync.Mutex
	real map[sandbox.Snapshot]sandbox.Snapshot
}

func (r *references) put(told, real sandbox.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.real == nil {
		r.real = map[sandbox.Snapshot]sandbox.Snapshot{}
	}
	r.real[told] = real
}

// of is the real one, which is s itself where nothing was made up.
func (r *references) of(s sandbox.Snapshot) sandbox.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if real, ok := r.real[s]; ok {
		return real
	}
	return s
}

// resume hides the lie from the provider inside.
func (r *references) resume(p sandbox.Provider) func(context.Context, sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
		q.Snapshot = r.of(q.Snapshot)
		return p.Resume(ctx, q)
	}
}

// clone clones the real snapshot and keeps the copy in line with what was told
// of its source. lie may change it once more.
func (r *references) clone(p sandbox.Provider, lie func(told *sandbox.Snapshot, source sandbox.Snapshot)) func(context.Context, sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	return func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
		source := q.Snapshot
		q.Snapshot = r.of(source)
		h, err := p.CloneSnapshot(ctx, q)
		if err != nil {
			return h, err
		}
		real, told := h.Value, h.Value
		if source != q.Snapshot {
			told = source
			told.SnapshotID, told.SessionID, told.CreatedAt = real.SnapshotID, real.SessionID, real.CreatedAt
		}
		lie(&told, source)
		r.put(told, real)
		h.Value = told
		return h, nil
	}
}

// member is one of the three that return a snapshot.
type member string

const (
	ofSnapshot member = "snapshot"
	ofClone    member = "clone"
	ofRelease  member = "release"
)

// misreference is wrong in the snapshot that one member returns.
func misreference(in member, lie func(told *sandbox.Snapshot, source sandbox.Snapshot)) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var refs references
		fire := func(told *sandbox.Snapshot, source sandbox.Snapshot) { lie(told, source); env.Fire() }
		honest := func(*sandbox.Snapshot, sandbox.Snapshot) {}
		o := Override{Provider: p, ResumeFunc: refs.resume(p), CloneSnapshotFunc: refs.clone(p, honest)}
		switch in {
		case ofClone:
			o.CloneSnapshotFunc = refs.clone(p, fire)
		case ofSnapshot:
			o.SnapshotFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
				h, err := p.Snapshot(ctx, id, q)
				if err == nil {
					real := h.Value
					fire(&h.Value, real)
					refs.put(h.Value, real)
				}
				return h, err
			}
		case ofRelease:
			o.ReleaseFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
				h, err := p.Release(ctx, id, q)
				if err == nil && h.Value.Snapshot != nil {
					told := *h.Value.Snapshot
					fire(&told, told)
					refs.put(told, *h.Value.Snapshot)
					h.Value.Snapshot = &told
				}
				return h, err
			}
		}
		return o
	}
}

// later is t plus d in the one form of a timestamp.
func later(t sandbox.Timestamp, d time.Duration) sandbox.Timestamp {
	at, err := t.Time()
	if err != nil {
		return t
	}
	return sandbox.At(at.Add(d))
}

// referenceFaults are wrong in one field of a snapshot: N1 to N9 in a capture,
// with c in a clone, with r in what a release settles.
func referenceFaults() []Saboteur {
	fields := []struct {
		check string
		lie   func(told *sandbox.Snapshot)
	}{
		{"provider", func(s *sandbox.Snapshot) { s.Provider += "x" }},
		{"placement", func(s *sandbox.Snapshot) {
			if s.Placement == sandbox.PlacementHosted {
				s.Placement = sandbox.PlacementLocal
			} else {
				s.Placement = sandbox.PlacementHosted
			}
		}},
		{"source_instance_id", func(s *sandbox.Snapshot) { s.SourceInstanceID += "x" }},
		{"workspace_id", func(s *sandbox.Snapshot) { s.WorkspaceID += "x" }},
		{"session_id", func(s *sandbox.Snapshot) { s.SessionID += "x" }},
		{"profile_id", func(s *sandbox.Snapshot) { s.ProfileID += "x" }},
		{"profile_version", func(s *sandbox.Snapshot) { s.ProfileVersion++ }},
		{"profile_digest", func(s *sandbox.Snapshot) {
			s.ProfileDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
		}},
		{"expires_at", func(s *sandbox.Snapshot) { s.ExpiresAt = later(s.ExpiresAt, time.Second) }},
	}
	one := func(id, fault string, in member, check string, lie func(told *sandbox.Snapshot, source sandbox.Snapshot)) Saboteur {
		return Saboteur{ID: id, Fault: fault, Kills: "identity." + string(in) + "/" + check, Suite: report.Contract, Wrap: misreference(in, lie)}
	}
	unborn := func(s *sandbox.Snapshot, _ sandbox.Snapshot) { s.CreatedAt = s.ExpiresAt }
	var all []Saboteur
	for n, f := range fields {
		id := "N" + strconv.Itoa(n+1)
		lie := func(told *sandbox.Snapshot, _ sandbox.Snapshot) { f.lie(told) }
		all = append(all,
			one(id, "a capture says another "+f.check, ofSnapshot, f.check, lie),
			one(id+"c", "a clone says another "+f.check, ofClone, f.check, lie),
			one(id+"r", "a release settles a snapshot with another "+f.check, ofRelease, f.check, lie))
	}
	return append(all,
		Saboteur{ID: "N10", Fault: "a clone has the id of its source", Kills: "identity.clone/snapshot_id", Suite: report.Contract, Wrap: cloneReusesID},
		one("N11", "a clone is bound to the Session of its source", ofClone, "session_id",
			func(told *sandbox.Snapshot, source sandbox.Snapshot) { told.SessionID = source.SessionID }),
		one("N12", "a clone is older than its source", ofClone, "created_at",
			func(told *sandbox.Snapshot, source sandbox.Snapshot) {
				told.CreatedAt = later(source.CreatedAt, -time.Millisecond)
			}),
		one("N13", "a clone was made when it had expired", ofClone, "form", unborn),
		one("N13s", "a snapshot's time of creation has a year of six digits", ofSnapshot, "form",
			func(told *sandbox.Snapshot, _ sandbox.Snapshot) { told.CreatedAt = "+00" + told.CreatedAt }),
		one("N13r", "a release settles a snapshot that had expired", ofRelease, "form", unborn),
	)
}

// cloneReusesID keeps the clone under the id of its source: the first
// destruction takes the source, the second the clones.
func cloneReusesID(p sandbox.Provider, env *Env) sandbox.Provider {
	var refs references
	var mu sync.Mutex
	clones := map[sandbox.SnapshotID][]sandbox.SnapshotID{}
	gone := map[sandbox.SnapshotID]bool{}
	inner := refs.clone(p, func(*sandbox.Snapshot, sandbox.Snapshot) {})
	sweep := func(ctx context.Context, id sandbox.SnapshotID) error {
		mu.Lock()
		list := clones[id]
		delete(clones, id)
		mu.Unlock()
		for _, id := range list {
			if err := p.DestroySnapshot(ctx, id); err != nil {
				return err
			}
		}
		return nil
	}
	return Override{
		Provider: p, ResumeFunc: refs.resume(p),
		CloneSnapshotFunc: func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			h, err := inner(ctx, q)
			if err != nil {
				return h, err
			}
			id := q.Snapshot.SnapshotID
			mu.Lock()
			clones[id] = append(clones[id], h.Value.SnapshotID)
			mu.Unlock()
			real := refs.of(h.Value)
			h.Value.SnapshotID = id
			refs.put(h.Value, real)
			env.Fire()
			return h, nil
		},
		DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
			mu.Lock()
			again := gone[id]
			gone[id] = true
			mu.Unlock()
			if again {
				return sweep(ctx, id)
			}
			return p.DestroySnapshot(ctx, id)
		},
		CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
			mu.Lock()
			var orphans []sandbox.SnapshotID
			for id := range clones {
				if gone[id] {
					orphans = append(orphans, id)
				}
			}
			mu.Unlock()
			for _, id := range orphans {
				if err := sweep(ctx, id); err != nil {
					return sandbox.Swept{}, err
				}
			}
			return p.Cleanup(ctx, q)
		},
	}
}

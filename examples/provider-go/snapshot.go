package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// retained is a snapshot: files on the disk. A directory of the state has its
// reference, and below it the places of the instance by their number in its plan.
type retained struct {
	Reference sandbox.Snapshot `json:"reference"`
	Mounts    []sandbox.Mount  `json:"mounts"`
	DiskBytes int64            `json:"disk_bytes"`

	seen sandbox.Timestamp // guarded by provider.mu; on the disk, the directory's time
}

const referenceFile = "reference.json"

func (p *provider) snapshotDir(id sandbox.SnapshotID) string {
	return filepath.Join(p.state, "snapshots", string(id))
}

// loadSnapshots takes up what is there, and erases what was never finished.
func (p *provider) loadSnapshots() error {
	if err := os.MkdirAll(p.snapshotDir(""), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(p.snapshotDir(""))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		dir := p.snapshotDir(sandbox.SnapshotID(entry.Name()))
		if strings.HasPrefix(entry.Name(), ".") {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, referenceFile))
		if err != nil {
			return err
		}
		s := &retained{seen: sandbox.At(info.ModTime())}
		if err := errors.Join(json.Unmarshal(data, s), s.Reference.Validate()); err != nil || string(s.Reference.SnapshotID) != entry.Name() {
			return fmt.Errorf("%s is damaged (%w)", dir, err)
		}
		p.snapshots[s.Reference.SnapshotID] = s
	}
	return nil
}

// keep makes a snapshot whose files fill writes, whole and durable or not at all.
func (p *provider) keep(s *retained, fill func(dir string) error) (sandbox.Handoff[sandbox.Snapshot], error) {
	none := sandbox.Handoff[sandbox.Snapshot]{}
	id := sandbox.SnapshotID("snapshot-" + strings.ToLower(rand.Text()))
	s.Reference.SnapshotID, s.seen = id, now()
	hidden := p.snapshotDir("." + id)
	if err := os.Mkdir(hidden, 0o700); err != nil {
		return none, err
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(hidden, referenceFile), data, 0o600)
	}
	if err == nil {
		err = fill(hidden)
	}
	if err == nil {
		err = syncAll(hidden)
	}
	if err == nil {
		err = os.Rename(hidden, p.snapshotDir(id))
	}
	if err == nil {
		err = syncAll(p.snapshotDir(""))
	}
	if err != nil {
		return none, errors.Join(err, os.RemoveAll(hidden), os.RemoveAll(p.snapshotDir(id)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snapshots[id] = s
	return sandbox.Handoff[sandbox.Snapshot]{
		Value: s.Reference, Rollback: func(ctx context.Context) error { return p.DestroySnapshot(ctx, id) },
	}, nil
}

// capture copies the places of an instance, but for those that nobody keeps. A
// command that runs meanwhile goes on: each file is as it was when it was copied.
func (p *provider) capture(i *instance, expires sandbox.Timestamp) (sandbox.Handoff[sandbox.Snapshot], error) {
	v := i.value
	s := &retained{Mounts: v.Mounts, DiskBytes: v.Profile.ResourceLimits.DiskBytes, Reference: sandbox.Snapshot{
		Provider: v.Provider, Placement: v.Placement, SourceInstanceID: v.InstanceID, WorkspaceID: v.WorkspaceID, SessionID: v.SessionID,
		ProfileID: v.Profile.ProfileID, ProfileVersion: v.Profile.ProfileVersion, ProfileDigest: v.Materialization.ProfileDigest,
		CreatedAt: now(), ExpiresAt: expires,
	}}
	return p.keep(s, func(dir string) error { return copyPlaces(v.Mounts, i.base, dir, s.DiskBytes) })
}

// copyPlaces copies what a snapshot keeps from one directory of places to
// another, at most limit bytes.
func copyPlaces(mounts []sandbox.Mount, from, to string, limit int64) error {
	for number, b := range plan(mounts) {
		if slices.Contains(volatilePlaces, b.Target) {
			continue
		}
		place := "mount-" + strconv.Itoa(number)
		if err := copyTree(filepath.Join(from, place), filepath.Join(to, place), &limit); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot captures an instance that goes on.
func (p *provider) Snapshot(ctx context.Context, id sandbox.InstanceID, r sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	const op = sandbox.OpSnapshot
	none := sandbox.Handoff[sandbox.Snapshot]{}
	i, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return none, err
	}
	if i.value.Profile.RetentionMode != sandbox.RetentionDurable {
		return none, sandbox.Forbidden(op, id)
	}
	if err := r.Validate(); err != nil {
		return none, invalid(op, err)
	}
	if err := inTime(op, r.ExpiresAt); err != nil {
		return none, err
	}
	h, err := p.capture(i, r.ExpiresAt)
	if err == nil {
		// One that was destroyed meanwhile may have been copied in part.
		if _, gone := p.enter(ctx, op, id, sandbox.StateActive); gone != nil {
			return none, errors.Join(gone, h.Rollback(context.WithoutCancel(ctx)))
		}
		return h, nil
	}
	return none, fault(op, "", err)
}

// CloneSnapshot copies one into another Session. They share nothing.
func (p *provider) CloneSnapshot(ctx context.Context, r sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	const op = sandbox.OpCloneSnapshot
	none := sandbox.Handoff[sandbox.Snapshot]{}
	if !durable {
		return none, sandbox.Unavailable(op, sandbox.RequireSnapshotClone, "", "")
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := r.Validate(); err != nil {
		return none, invalid(op, err)
	}
	source, err := p.use(op, r.Snapshot)
	if err != nil {
		return none, err
	}
	s := &retained{Reference: source.Reference, Mounts: source.Mounts, DiskBytes: source.DiskBytes}
	s.Reference.SessionID = r.TargetSessionID
	s.Reference.CreatedAt = max(now(), source.Reference.CreatedAt)
	h, err := p.keep(s, func(dir string) error {
		return p.fill(source, dir, s.DiskBytes)
	})
	if err != nil {
		return none, p.orGone(op, r.Snapshot, err)
	}
	return h, nil
}

// use finds a snapshot. A reference that disagrees with it is refused: it is not
// an authority.
func (p *provider) use(op sandbox.Operation, reference sandbox.Snapshot) (*retained, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.snapshots[reference.SnapshotID]
	switch {
	case s == nil || !now().Before(s.Reference.ExpiresAt):
		return nil, sandbox.NoSnapshot(op, reference.SnapshotID)
	case s.Reference != reference:
		return nil, sandbox.Conflict(op, fmt.Sprintf("snapshot %+v", s.Reference), fmt.Sprintf("%+v", reference))
	}
	s.seen = now()
	// A sweep after a restart goes by this.
	if err := os.Chtimes(p.snapshotDir(reference.SnapshotID), time.Time{}, time.Now()); err != nil {
		return nil, fault(op, "", err)
	}
	return s, nil
}

// fill copies the places of a snapshot to a directory. One that is destroyed
// meanwhile gives nothing, and not a part.
func (p *provider) fill(s *retained, dir string, limit int64) error {
	id := s.Reference.SnapshotID
	if err := copyPlaces(s.Mounts, p.snapshotDir(id), dir, limit); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.snapshots[id] == nil {
		return notFound
	}
	return nil
}

// orGone is err, or that the snapshot was destroyed meanwhile.
func (p *provider) orGone(op sandbox.Operation, reference sandbox.Snapshot, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.snapshots[reference.SnapshotID] == nil {
		return sandbox.NoSnapshot(op, reference.SnapshotID)
	}
	return fault(op, "", err)
}

// Release ends an instance: a durable one settles a snapshot, the other leaves
// nothing.
func (p *provider) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	const op = sandbox.OpRelease
	none := sandbox.Handoff[sandbox.Released]{}
	i, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return none, err
	}
	retain := i.value.Profile.RetentionMode == sandbox.RetentionDurable
	switch err := r.Validate(); {
	case err != nil:
		return none, invalid(op, err)
	case retain != (r.ExpiresAt != ""):
		return none, invalid(op, &sandbox.Invalid{Field: "expires_at", Expected: "a deadline exactly where a snapshot is settled", Got: string(r.ExpiresAt)})
	case retain:
		if err := inTime(op, r.ExpiresAt); err != nil {
			return none, err
		}
	}
	i.mu.Lock()
	late := i.gone // of two releases one wins
	i.gone = true
	i.mu.Unlock()
	if late {
		return none, sandbox.NoInstance(op, id)
	}
	out := sandbox.Handoff[sandbox.Released]{
		Value: sandbox.Released{Disposition: sandbox.DispositionDestroyed}, Rollback: func(context.Context) error { return nil },
	}
	err = i.end(ctx)
	if err == nil && retain {
		var h sandbox.Handoff[sandbox.Snapshot]
		h, err = p.capture(i, r.ExpiresAt)
		out = sandbox.Handoff[sandbox.Released]{
			Value: sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &h.Value}, Rollback: h.Rollback,
		}
	}
	if err != nil { // it stays, for another release
		i.mu.Lock()
		i.gone = false
		i.mu.Unlock()
		return none, fault(op, "", err)
	}
	return out, p.Destroy(context.WithoutCancel(ctx), id)
}

// Resume makes a fresh active instance from a snapshot, which stays.
func (p *provider) Resume(ctx context.Context, r sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	const op = sandbox.OpResume
	none := sandbox.Handoff[sandbox.Instance]{}
	if !durable {
		return none, sandbox.Unavailable(op, sandbox.RequireSnapshots, "", "")
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := r.Snapshot.Validate(); err != nil {
		return none, invalid(op, err)
	}
	if err := admit(op, r.Request); err != nil {
		return none, err
	}
	s, err := p.use(op, r.Snapshot)
	if err != nil {
		return none, err
	}
	q := r.Request
	for _, f := range []struct{ field, want, got string }{
		{"workspace_id", s.Reference.WorkspaceID, q.WorkspaceID}, {"session_id", s.Reference.SessionID, q.SessionID},
		{"profile_id", s.Reference.ProfileID, q.Profile.ProfileID},
		{"profile_version", strconv.FormatInt(s.Reference.ProfileVersion, 10), strconv.FormatInt(q.Profile.ProfileVersion, 10)},
		{"profile_digest", string(s.Reference.ProfileDigest), string(digest(q.Profile.ImageIdentity()))},
	} {
		if f.want != f.got {
			return none, sandbox.Conflict(op, "snapshot."+f.field+" "+f.want, f.got)
		}
	}
	switch {
	case q.Profile.RetentionMode != sandbox.RetentionDurable:
		return none, sandbox.Unavailable(op, sandbox.RequireRetention, string(q.Profile.RetentionMode), string(sandbox.RetentionDurable))
	case !slices.Equal(q.Mounts, s.Mounts):
		return none, sandbox.Unavailable(op, sandbox.RequireMounts, "another mount plan", "the plan of the snapshot")
	}
	h, err := p.allocate(op, q, sandbox.StateActive, func(i *instance) error {
		return p.fill(s, i.base, q.Profile.ResourceLimits.DiskBytes)
	})
	if err != nil {
		return none, p.orGone(op, r.Snapshot, err)
	}
	return h, nil
}

// DestroySnapshot erases one. An unknown id is success.
func (p *provider) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	known := p.snapshots[id] != nil
	delete(p.snapshots, id) // from here on nobody is given it
	p.mu.Unlock()
	if !known {
		return nil
	}
	// Under a name that a later start erases, if this one does not come to it.
	hidden := p.snapshotDir("." + id)
	err := os.Rename(p.snapshotDir(id), hidden)
	if err == nil {
		err = errors.Join(os.RemoveAll(hidden), syncAll(p.snapshotDir("")))
	}
	if err != nil {
		return fault(sandbox.OpDestroySnapshot, "", err)
	}
	return nil
}

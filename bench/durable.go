package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// forks is how many are made of one session.
const forks = 10

// durableSessions measures what a session costs that comes back: a resumption
// beside a cold start with the same retention, and ten clones and ten machines of
// them beside one. The home holds 2,000 files of 4 KiB.
func durableSessions(ctx context.Context, w *world) error {
	for _, driver := range []string{"runsc", "runc"} {
		c, err := w.providers[driver].Capabilities(ctx)
		if err != nil {
			return err
		}
		if len(c.RetentionModes) < 2 {
			w.rep.note("no durable sessions on %s: the host cannot keep them", driver)
			continue
		}
		if err := w.durable(ctx, driver); err != nil {
			return fmt.Errorf("%s: %w", driver, err)
		}
	}
	return nil
}

// kept asks for a machine whose home can be kept.
func (w *world) kept(driver string) sandbox.ProvisionRequest {
	r := w.request(driver, sandbox.Mount{MountPath: "/mnt/session/project", Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject})
	r.Profile.RetentionMode = sandbox.RetentionDurable
	return r
}

func (w *world) durable(ctx context.Context, driver string) (err error) {
	p := w.providers[driver]
	ref, err := w.project(ctx, driver)
	if err != nil {
		return err
	}
	lasting := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, p.DestroySnapshot(lasting, ref.SnapshotID)) }()

	// back resumes a session and runs its first command.
	back := func(ctx context.Context, ref sandbox.Snapshot) (sandbox.InstanceID, error) {
		r := w.kept(driver)
		r.SessionID = ref.SessionID
		h, err := p.Resume(ctx, sandbox.ResumeRequest{Request: r, Snapshot: ref})
		if err != nil {
			return "", err
		}
		return h.Value.InstanceID, w.run(ctx, driver, h.Value.InstanceID, "/bin/true")
	}
	cold := func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		h, err := p.Provision(ctx, w.kept(driver))
		if err != nil {
			return 0, err
		}
		id := h.Value.InstanceID
		if _, err = p.Activate(ctx, id); err == nil {
			err = w.run(ctx, driver, id, "/bin/true")
		}
		return time.Since(begin), errors.Join(err, p.Destroy(lasting, id))
	}
	warm := func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		id, err := back(ctx, ref)
		return time.Since(begin), errors.Join(err, p.Destroy(lasting, id))
	}

	// clones are made at once, as whoever forks a session does, and so are machines
	// out of them.
	clones := func(ctx context.Context, n int) ([]sandbox.Snapshot, error) {
		all, errs := make([]sandbox.Snapshot, n), make([]error, n)
		var together sync.WaitGroup
		for i := range n {
			together.Go(func() {
				h, err := p.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: ref, TargetSessionID: fmt.Sprintf("bench-fork-%d", i)})
				all[i], errs[i] = h.Value, err
			})
		}
		together.Wait()
		return all, errors.Join(errs...)
	}
	gone := func(all []sandbox.Snapshot) (err error) {
		for _, ref := range all {
			err = errors.Join(err, p.DestroySnapshot(lasting, ref.SnapshotID))
		}
		return err
	}
	cloned := func(n int) side {
		return func(ctx context.Context) (time.Duration, error) {
			begin := time.Now()
			all, err := clones(ctx, n)
			return time.Since(begin), errors.Join(err, gone(all))
		}
	}
	resumed := func(n int) side {
		return func(ctx context.Context) (time.Duration, error) {
			all, err := clones(ctx, n)
			if err != nil {
				return 0, errors.Join(err, gone(all))
			}
			ids, errs := make([]sandbox.InstanceID, n), make([]error, n)
			var together sync.WaitGroup
			begin := time.Now()
			for i, ref := range all {
				together.Go(func() { ids[i], errs[i] = back(ctx, ref) })
			}
			together.Wait()
			took := time.Since(begin)
			for _, id := range ids {
				errs = append(errs, p.Destroy(lasting, id))
			}
			return took, errors.Join(errors.Join(errs...), gone(all))
		}
	}
	got, err := interleave(ctx, w.n, warm, cold, cloned(1), cloned(forks), resumed(1), resumed(forks))
	if err != nil {
		return err
	}
	w.rep.add(
		line{what: driver + ": resume → first execute", unit: "ms", ours: got[0], rawName: "a cold start with the same retention", raw: got[1], bound: 1.5},
		line{what: fmt.Sprintf("%s: %d clones of a session at once", driver, forks), unit: "ms", ours: got[3], rawName: "one", raw: got[2], bound: 3},
		line{what: fmt.Sprintf("%s: %d clones resumed at once", driver, forks), unit: "ms", ours: got[5], rawName: "one", raw: got[4], bound: 6},
	)
	return nil
}

// project is the snapshot of a session with files in it.
func (w *world) project(ctx context.Context, driver string) (ref sandbox.Snapshot, err error) {
	p := w.providers[driver]
	h, err := p.Provision(ctx, w.kept(driver))
	if err != nil {
		return ref, err
	}
	id := h.Value.InstanceID
	const files = `i=0; while [ $i -lt 2000 ]; do head -c 4096 /dev/urandom >f$i; i=$((i+1)); done`
	if _, err = p.Activate(ctx, id); err == nil {
		err = w.run(ctx, driver, id, "/bin/sh", "-c", "cd /mnt/session/project && "+files)
	}
	if err != nil {
		return ref, errors.Join(err, p.Destroy(context.WithoutCancel(ctx), id))
	}
	r, err := p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
	if err != nil {
		return ref, errors.Join(err, p.Destroy(context.WithoutCancel(ctx), id))
	}
	if r.Value.Snapshot == nil {
		return ref, os.ErrNotExist
	}
	return *r.Value.Snapshot, nil
}

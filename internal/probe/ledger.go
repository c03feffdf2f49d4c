package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// ledger is every id that this run has seen allocated. An id is written down
// before anything is asserted of what it came with.
type ledger struct {
	run *run

	mu        sync.Mutex
	instances map[sandbox.InstanceID]*entry
	snapshots map[sandbox.SnapshotID]*entry
	hung      map[sandbox.Operation]bool // what did not come back in a teardown
	failed    []string
	second    []string
	unknown   []string
	extra     []string
}

type entry struct {
	probe   string
	request sandbox.ProvisionRequest
	gone    bool
}

func (l *ledger) instance(probe string, id sandbox.InstanceID, request sandbox.ProvisionRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.instances == nil {
		l.instances = map[sandbox.InstanceID]*entry{}
	}
	if e := l.instances[id]; e == nil || e.gone {
		l.instances[id] = &entry{probe: probe, request: request}
	}
}

func (l *ledger) snapshot(probe string, id sandbox.SnapshotID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.snapshots == nil {
		l.snapshots = map[sandbox.SnapshotID]*entry{}
	}
	if e := l.snapshots[id]; e == nil || e.gone {
		l.snapshots[id] = &entry{probe: probe}
	}
}

// asked is what an instance was asked for with.
func (l *ledger) asked(id sandbox.InstanceID) (sandbox.ProvisionRequest, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.instances[id]; e != nil {
		return e.request, true
	}
	return sandbox.ProvisionRequest{}, false
}

// gone reports whether an id was torn down.
func (l *ledger) gone(id sandbox.InstanceID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.instances[id]
	return e == nil || e.gone
}

// settle tears down what a probe allocated. An id of nobody's is never named
// to the target.
func (l *ledger) settle(ctx context.Context, probe string) {
	// Teardown goes on when the run was cancelled.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.run.o.Patience+grace)
	defer cancel()
	l.mu.Lock()
	var instances []sandbox.InstanceID
	for id, e := range l.instances {
		if e.probe == probe && !e.gone {
			instances = append(instances, id)
		}
	}
	var snapshots []sandbox.SnapshotID
	for id, e := range l.snapshots {
		if e.probe == probe && !e.gone {
			snapshots = append(snapshots, id)
		}
	}
	l.mu.Unlock()
	slices.Sort(instances)
	slices.Sort(snapshots)
	for _, id := range instances {
		err := l.teardown(ctx, sandbox.OpDestroy, func(ctx context.Context) error { return l.run.target.Provider.Destroy(ctx, id) })
		l.mark(string(id), err, func() { l.instances[id].gone = true })
	}
	for _, id := range snapshots {
		err := l.teardown(ctx, sandbox.OpDestroySnapshot, func(ctx context.Context) error { return l.run.target.Provider.DestroySnapshot(ctx, id) })
		l.mark(string(id), err, func() { l.snapshots[id].gone = true })
	}
}

func (l *ledger) teardown(ctx context.Context, op sandbox.Operation, call func(context.Context) error) error {
	l.mu.Lock()
	hung := l.hung[op]
	l.mu.Unlock()
	if hung {
		return fmt.Errorf("%w: it is not asked again since %s hung before", errHung, op)
	}
	_, err := bounded(ctx, l.run.within(ctx, l.run.o.Patience), func(ctx context.Context) (none, error) { return none{}, call(ctx) }, nil)
	l.run.judge(op, err, ctx.Err() != nil)
	if Hung(err) {
		l.run.stick(string(op) + ", in the teardown")
		l.mu.Lock()
		l.hung[op] = true
		l.mu.Unlock()
	}
	return err
}

func (l *ledger) mark(id string, err error, gone func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone()
	if err != nil {
		l.failed = append(l.failed, report.Printable(id+": "+text(err)))
	}
}

func (l *ledger) leaks() report.Leaks {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := report.Leaks{Undestroyed: l.failed, Unknown: l.unknown, SecondSweep: l.second, Census: l.extra}
	out.Allocated = int64(len(l.instances) + len(l.snapshots))
	out.Destroyed = out.Allocated - int64(len(l.failed))
	return out
}

// sweep asks for what is orphaned once more, with a cutoff at the beginning of
// the run, so that on a shared provider it takes nothing that is younger.
func (r *run) sweep(ctx context.Context) {
	if ctx.Err() != nil || r.stuck() != "" {
		return
	}
	began := r.report.Run.StartedAt
	now := sandbox.At(r.clock.Now())
	if now.Before(began) {
		began = now
	}
	swept, err := bounded(ctx, r.within(ctx, r.o.Patience), func(ctx context.Context) (sandbox.Swept, error) {
		return r.target.Provider.Cleanup(ctx, sandbox.CleanupRequest{Now: now, OrphanedBefore: began})
	}, nil)
	r.judge(sandbox.OpCleanup, err, ctx.Err() != nil)
	if err != nil {
		return
	}
	r.valid(standCleanup, swept.Validate())
	r.ledger.swept(swept)
}

// swept compares what a cleanup returned with what was torn down before.
func (l *ledger) swept(s sandbox.Swept) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range s.InstanceIDs {
		if e := l.instances[id]; e != nil {
			l.second = append(l.second, report.Printable(string(id)))
		} else {
			l.unknown = append(l.unknown, report.Printable(string(id)))
		}
	}
	for _, id := range s.SnapshotIDs {
		if e := l.snapshots[id]; e != nil {
			l.second = append(l.second, report.Printable(string(id)))
		} else {
			l.unknown = append(l.unknown, report.Printable(string(id)))
		}
	}
}

// census lists what is there, where somebody can.
func (r *run) census(ctx context.Context) []string {
	if r.target.Census == nil {
		return nil
	}
	list, err := bounded(ctx, r.within(ctx, r.o.Patience), r.target.Census, nil)
	if err != nil && ctx.Err() == nil {
		r.brokeAs(report.Error, standAnswers, "census", "census", "a list", err.Error())
	}
	return list
}

// compare takes the census again and keeps what is new. What is being torn
// down gets a moment.
func (r *run) compare(ctx context.Context, before []string) {
	if r.target.Census == nil {
		r.report.Limits = append(r.report.Limits, "no native census: what the provider never mentions is not seen")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Linger)
	defer cancel()
	for {
		was := map[string]int{}
		for _, line := range before {
			was[line]++
		}
		var extra []string
		for _, line := range r.census(context.WithoutCancel(ctx)) {
			if was[line]--; was[line] < 0 {
				extra = append(extra, report.Printable(line))
			}
		}
		r.ledger.mu.Lock()
		r.ledger.extra = extra
		r.ledger.mu.Unlock()
		if len(extra) == 0 {
			return
		}
		again := time.NewTimer(50 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return
		}
	}
}

// closedRead asks once whether readFile fails closed.
func (r *run) closedRead(ctx context.Context) bool {
	r.mu.Lock()
	known := r.readClosed
	r.mu.Unlock()
	if known != nil {
		return *known
	}
	closed := r.probeRead(ctx)
	r.mu.Lock()
	r.readClosed = &closed
	r.mu.Unlock()
	return closed
}

// probeRead is the one probe that the filesystem token needs besides the
// envelope.
func (r *run) probeRead(ctx context.Context) bool {
	closed := false
	p := Probe{ID: "filesystem-token", Suite: report.Standing, Run: func(t *T) {
		m := t.Machine(Shape{})
		_, err := t.Provider().ReadFile(t.ctx, m.ID, sandbox.FileRead{Path: sandbox.OutputPath + "/" + t.Nonce(), AllowedRoot: sandbox.OutputPath, MaximumBytes: 1})
		closed = errors.Is(err, sandbox.Unavailable("", sandbox.RequireContainedRead, "", ""))
	}}
	r.probe(ctx, &p)
	return closed
}

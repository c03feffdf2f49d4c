package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// processes are those of this server, by the id that their Runner minted, for as
// long as their instances are there: an exit can be asked for again and again.
type processes struct {
	s *Server

	mu         sync.Mutex
	byID       map[wire.ProcessID]*process
	byInstance map[sandbox.InstanceID][]*process // in the order of their opening
	closing    bool
	tasks      sync.WaitGroup // of processes that are being retired
}

func newProcesses(s *Server) *processes {
	return &processes{s: s, byID: map[wire.ProcessID]*process{}, byInstance: map[sandbox.InstanceID][]*process{}}
}

const (
	// maxProcesses bounds the ids that one instance keeps, tombstones included.
	maxProcesses = 4096
	// maxRings is how many processes of one instance keep what they wrote: the
	// one that lives and those that a reader may still be after.
	maxRings = 3
)

// add puts a new process under its id; or returns the one that is there.
// Errors: *wire.Error with TagOperationRolledBack for a tombstone,
// TagOperationMismatch for another request, TagOverloaded.
func (ps *processes) add(p *process) (have *process, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if have := ps.byID[p.id]; have != nil {
		switch {
		case have.instance != p.instance:
			return nil, &wire.Error{Tag: wire.TagOperationMismatch}
		case p.digest == "":
			return have, nil
		case have.digest == "":
			return nil, &wire.Error{Tag: wire.TagOperationRolledBack}
		case have.digest != p.digest:
			return nil, &wire.Error{Tag: wire.TagOperationMismatch}
		}
		return have, nil
	}
	all := ps.byInstance[p.instance]
	if len(all) >= maxProcesses || ps.closing {
		return nil, &wire.Error{Tag: wire.TagOverloaded, RetryAfterMS: wire.MaxRetryAfterMS}
	}
	ps.byID[p.id], ps.byInstance[p.instance] = p, append(all, p)
	if i := len(all) + 1 - maxRings; i > 0 {
		all[i-1].shed()
	}
	return nil, nil
}

// shed lets go of what an ended process wrote.
func (p *process) shed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit != nil && p.reader == nil {
		p.out.free()
		p.errs.free()
	}
}

// drop takes back a process that could not be opened. One that was destroyed
// meanwhile stays as a tombstone.
func (ps *processes) drop(p *process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.tasks.Go(p.tasks.Wait) // of what was opened after all, and is being destroyed
	p.mu.Lock()
	doomed := p.doomed
	p.mu.Unlock()
	if doomed {
		p.digest = ""
		return
	}
	delete(ps.byID, p.id)
	all := ps.byInstance[p.instance]
	if i := slices.Index(all, p); i >= 0 {
		ps.byInstance[p.instance] = slices.Delete(slices.Clone(all), i, i+1)
	}
}

// find returns a process that was opened.
func (ps *processes) find(instance sandbox.InstanceID, id wire.ProcessID) (*process, error) {
	ps.mu.Lock()
	p := ps.byID[id]
	ps.mu.Unlock()
	if p != nil && p.instance == instance {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.opened {
			return p, nil
		}
	}
	return nil, &wire.Error{Tag: wire.TagProcessNotFound}
}

func (ps *processes) all() []*process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	all := make([]*process, 0, len(ps.byID))
	for _, p := range ps.byID {
		all = append(all, p)
	}
	return all
}

// detach ends the readers that d says.
func (ps *processes) detach(d wire.Detach, which func(*process, *attachment) bool) {
	for _, p := range ps.all() {
		p.mu.Lock()
		if a := p.reader; a != nil && which(p, a) {
			a.end(d)
		}
		p.mu.Unlock()
	}
}

// fence ends the streams of lower epochs.
func (ps *processes) fence(h wire.Lease) {
	ps.detach(wire.Detach{Reason: wire.DetachFenced, LeaseEpoch: h.Epoch}, func(p *process, a *attachment) bool {
		return p.lease == h.ID && a.epoch < h.Epoch
	})
}

// drain ends every stream: the server leaves.
func (ps *processes) drain() {
	ps.detach(wire.Detach{Reason: wire.DetachDraining}, func(*process, *attachment) bool { return true })
}

// end retires the processes of instances that are gone.
func (ps *processes) end(ids ...sandbox.InstanceID) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closing {
		return // all are being retired
	}
	ps.retire(ids...)
}

// retire ends the processes of instances. The caller holds ps.mu.
func (ps *processes) retire(ids ...sandbox.InstanceID) {
	for _, id := range ids {
		for _, p := range ps.byInstance[id] {
			delete(ps.byID, p.id)
			ps.tasks.Go(p.retire)
		}
		delete(ps.byInstance, id)
	}
}

// close retires all that are left, and returns when nothing of them runs.
func (ps *processes) close() {
	ps.mu.Lock()
	ps.closing = true
	ps.retire(slices.Collect(maps.Keys(ps.byInstance))...)
	ps.mu.Unlock()
	ps.tasks.Wait()
}

// discard destroys the process that an operation opened.
func (ps *processes) discard(ctx context.Context, op wire.OperationID) error {
	for _, p := range ps.all() {
		if p.op == op {
			return p.destroy(ctx)
		}
	}
	return nil
}

// process finds the process that a call names, in an instance of its lease.
func (c *call) process(instance sandbox.InstanceID, id wire.ProcessID) (*process, error) {
	if err := c.scope(instance); err != nil {
		return nil, err
	}
	return c.s.processes.find(instance, id)
}

func (c *call) openProcess() error {
	m, err := request[wire.OpenProcessRequest](c)
	if err != nil {
		return err
	}
	s := c.s
	if s.optional.OpenProcess == nil {
		return sandbox.Conflict(sandbox.OpOpenProcess, string(sandbox.OpOpenProcess), sandbox.ActualOpenProcessUnsupported)
	}
	// Durable before anything is opened: a later server must not take the process
	// for one that never was.
	c.opens = m.ProcessID
	return c.mutate(m.InstanceID, func(ctx context.Context, o *operation) (effect, error) {
		p := newProcess(s, m.ProcessID)
		p.op, p.instance, p.lease, p.digest = o.id, m.InstanceID, c.header.Lease.ID, c.digest
		have, err := s.processes.add(p)
		if err != nil {
			return effect{}, err
		}
		if have != nil {
			return have.again(ctx)
		}
		if err := p.open(ctx, m.Process); err != nil {
			s.processes.drop(p)
			return effect{}, err
		}
		return p.again(ctx)
	})
}

// open opens the process at the provider. It may be destroyed by its id before
// the provider has come back.
func (p *process) open(ctx context.Context, r sandbox.ProcessRequest) (err error) {
	defer close(p.ready)
	inner, err := p.s.optional.OpenProcess.OpenProcess(ctx, p.instance, string(p.id), r)
	if err != nil {
		return err
	}
	err = p.start(inner)
	p.mu.Lock()
	doomed := p.doomed
	if err != nil || doomed {
		p.killLocked()
		p.opened = false
	}
	p.mu.Unlock()
	if err == nil && doomed {
		err = &wire.Error{Tag: wire.TagOperationRolledBack}
	}
	if err != nil {
		p.cancel()
	}
	return err
}

// again is the answer of every opening of one process.
func (p *process) again(ctx context.Context) (effect, error) {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return effect{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.opened:
		return effect{}, &wire.Error{Tag: wire.TagProcessNotFound}
	case p.inner == nil:
		return effect{}, p.lost
	}
	return effect{message: p.openedLocked()}, nil
}

func (c *call) processInput() error {
	m, err := frameCall[wire.InputCall](c)
	if err != nil {
		return err
	}
	data, err := c.data(0, wire.MaxInputBytes)
	if err != nil {
		return err
	}
	p, err := c.process(m.InstanceID, m.ProcessID)
	if err != nil {
		return err
	}
	p.mu.Lock()
	// Under the lock under which it is appended: nothing of a lower epoch is
	// taken once a higher one was.
	err = c.s.leases.current(c.header.Lease)
	if err == nil {
		err = p.input.take(m.Offset, data, m.End)
	}
	w := p.input.window()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return c.reply(w)
}

func (c *call) processWait() error {
	m, err := request[wire.WaitRequest](c)
	if err != nil {
		return err
	}
	p, err := c.process(m.InstanceID, m.ProcessID)
	if err != nil {
		return err
	}
	due, stop := c.s.clock.NewTimer(min(time.Duration(m.WaitMS)*time.Millisecond, c.s.opt.MaxWait))
	defer stop()
	select {
	case <-p.exited:
	case <-due:
	case <-c.s.leaving:
	case <-c.r.Context().Done():
		return c.r.Context().Err()
	}
	p.mu.Lock()
	exit, lost := p.exit, p.lost
	p.mu.Unlock()
	switch {
	case exit != nil:
		return c.reply(wire.Waited{Exit: exit})
	case lost != nil:
		return lost
	}
	return c.reply(wire.Waited{Running: true})
}

func (c *call) processSignal() error {
	m, err := request[wire.SignalRequest](c)
	if err != nil {
		return err
	}
	p, err := c.process(m.InstanceID, m.ProcessID)
	if err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, _ *operation) (effect, error) {
		select {
		case <-p.exited:
			return effect{message: wire.Signaled{}}, nil
		default:
		}
		err := p.inner.Signal(ctx, m.Signal)
		return effect{message: wire.Signaled{Delivered: true}}, err
	})
}

// processDestroy works from the id alone: one that was not opened yet never will
// be. With its instance everything of it is gone.
func (c *call) processDestroy() error {
	m, err := request[wire.ProcessRequest](c)
	if err != nil {
		return err
	}
	if c.s.leases.ended(m.InstanceID, c.header.Lease) {
		return c.reply(wire.Empty{})
	}
	if err := c.scope(m.InstanceID); err != nil {
		return err
	}
	tombstone := newProcess(c.s, m.ProcessID)
	tombstone.instance = m.InstanceID
	close(tombstone.ready)
	have, err := c.s.processes.add(tombstone)
	if err != nil {
		return err
	}
	if have != nil {
		err = have.destroy(c.r.Context())
	}
	if err != nil {
		return err
	}
	return c.reply(wire.Empty{})
}

// destroy kills the process and all its descendants. It waits for an opening
// that is under way, and for ctx no longer than that.
func (p *process) destroy(ctx context.Context) error {
	p.mu.Lock()
	p.doomed = true
	p.mu.Unlock()
	bound, cancel := context.WithTimeout(ctx, sandbox.RollbackSeconds*time.Second)
	defer cancel()
	select {
	case <-p.ready:
	case <-bound.Done():
		return bound.Err()
	}
	p.mu.Lock()
	if p.opened && p.inner == nil || !p.opened && p.killing == nil {
		var err error
		if p.opened {
			err = p.lost // one of an earlier server, out of this one's reach
		}
		p.mu.Unlock()
		return err
	}
	u := p.killLocked()
	p.mu.Unlock()
	select {
	case <-u.settled:
		return u.err
	case <-bound.Done():
		return bound.Err()
	}
}

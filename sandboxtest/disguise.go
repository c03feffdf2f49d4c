package sandboxtest

import (
	"context"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// memory is what was asked for, by instance.
type memory struct {
	mu   sync.Mutex
	asks map[sandbox.InstanceID]sandbox.ProvisionRequest
}

func (m *memory) put(id sandbox.InstanceID, q sandbox.ProvisionRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asks[id] = q
}

func (m *memory) get(id sandbox.InstanceID) (sandbox.ProvisionRequest, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q, ok := m.asks[id]
	return q, ok
}

// remembering is p, and what its instances were asked for with.
func remembering(p sandbox.Provider) (Override, *memory) {
	m := &memory{asks: map[sandbox.InstanceID]sandbox.ProvisionRequest{}}
	return Override{
		Provider: p,
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Provision(ctx, q)
			if err == nil {
				m.put(h.Value.InstanceID, q)
			}
			return h, err
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Resume(ctx, q)
			if err == nil {
				m.put(h.Value.InstanceID, q.Request)
			}
			return h, err
		},
	}, m
}

// disguised makes another machine than was asked for and says that it is the
// one that was asked for, wherever it has to say so. change returns false
// where it leaves the request as it is.
func disguised(p sandbox.Provider, env *Env, change func(q *sandbox.ProvisionRequest) bool) sandbox.Provider {
	asks := &memory{asks: map[sandbox.InstanceID]sandbox.ProvisionRequest{}}
	say := func(h sandbox.Handoff[sandbox.Instance], q sandbox.ProvisionRequest) sandbox.Handoff[sandbox.Instance] {
		h.Value = sandbox.InstanceOf(q, h.Value.InstanceID, h.Value.State, h.Value.Materialization.ProfileDigest)
		return h
	}
	o := Override{Provider: p}
	o.ProvisionFunc = func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		other := q
		changed := change(&other)
		h, err := p.Provision(ctx, other)
		if err != nil {
			return h, err
		}
		if changed {
			env.Fire()
		}
		asks.put(h.Value.InstanceID, q)
		return say(h, q), nil
	}
	o.ActivateFunc = func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
		h, err := p.Activate(ctx, id)
		if q, ours := asks.get(id); err == nil && ours {
			h = say(h, q)
		}
		return h, err
	}
	o.ResumeFunc = func(ctx context.Context, r sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
		q := r.Request
		changed := change(&r.Request)
		h, err := p.Resume(ctx, r)
		if err != nil {
			return h, err
		}
		if changed {
			env.Fire()
		}
		asks.put(h.Value.InstanceID, q)
		return say(h, q), nil
	}
	o.Members = func(members *sandbox.Optional) {
		opener := members.OpenProcess
		if opener == nil {
			return
		}
		members.OpenProcess = OpenProcessFunc(func(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
			process, err := opener.OpenProcess(ctx, id, processID, r)
			q, ours := asks.get(id)
			if err != nil || !ours {
				return process, err
			}
			e := process.Evidence()
			e.Platform = q.Platform
			return stating{process, e}, nil
		})
	}
	return o
}

// stating is a process with another statement.
type stating struct {
	sandbox.Process
	evidence sandbox.Evidence
}

// Evidence is the other statement.
func (s stating) Evidence() sandbox.Evidence { return s.evidence }

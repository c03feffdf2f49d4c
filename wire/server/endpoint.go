package server

import (
	"context"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// handlers serves the twenty-nine endpoints.
var handlers map[wire.Endpoint]handler

func init() {
	handlers = map[wire.Endpoint]handler{
		wire.Capabilities: (*call).capabilities,

		wire.Provision:       (*call).provision,
		wire.Activate:        (*call).activate,
		wire.Snapshot:        (*call).snapshot,
		wire.CloneSnapshot:   (*call).cloneSnapshot,
		wire.Release:         (*call).release,
		wire.Resume:          (*call).resume,
		wire.Destroy:         (*call).destroy,
		wire.DestroySnapshot: (*call).destroySnapshot,
		wire.Cleanup:         (*call).cleanup,

		wire.WriteFile:      (*call).writeFile,
		wire.Execute:        (*call).execute,
		wire.ReadFile:       (*call).readFile,
		wire.ReadFiles:      (*call).readFiles,
		wire.ListDir:        (*call).listDir,
		wire.ListProjectDir: (*call).listProjectDir,

		wire.BeginActiveWrite:    (*call).beginActiveWrite,
		wire.StageActiveWrite:    (*call).stageActiveWrite,
		wire.DispatchActiveWrite: (*call).dispatchActiveWrite,
		wire.AbortActiveWrite:    (*call).abortActiveWrite,
		wire.InspectActiveWrite:  (*call).inspectActiveWrite,

		wire.OpenProcess:    (*call).openProcess,
		wire.ProcessStream:  (*call).processStream,
		wire.ProcessInput:   (*call).processInput,
		wire.ProcessWait:    (*call).processWait,
		wire.ProcessSignal:  (*call).processSignal,
		wire.ProcessDestroy: (*call).processDestroy,

		wire.RollbackOperation: func(c *call) error { return c.s.rollback(c) },
		wire.PollOperation:     func(c *call) error { return c.s.operation(c) },
	}
}

// capabilities says what the provider says now, and what of it is served.
func (c *call) capabilities() error {
	if c.r.Method != "GET" {
		if _, err := request[wire.Empty](c); err != nil {
			return err
		}
	}
	ctx, cancel := c.context()
	defer cancel()
	if err := c.s.describe(ctx); err != nil {
		return err
	}
	return c.reply(c.s.envelope.Load().response)
}

func (c *call) provision() error {
	m, err := request[wire.ProvisionRequest](c)
	if err != nil {
		return err
	}
	// Whoever fences and whoever is fenced must be the same.
	if m.LeaseID != c.header.Lease.ID {
		return &wire.Error{Tag: wire.TagMalformed, Pointer: "lease_id", Message: "expected the lease of the headers"}
	}
	if m.LeaseEpoch != c.header.Lease.Epoch {
		return &wire.Error{Tag: wire.TagMalformed, Pointer: "lease_epoch", Message: "expected the epoch of the headers"}
	}
	return c.mutate("", func(ctx context.Context, o *operation) (effect, error) {
		h, err := c.s.provider.Provision(ctx, sandbox.ProvisionRequest(m))
		return instanceEffect(o, h, m.LeaseID, m.ExpiresAt), err
	})
}

// instanceEffect is the effect of a handoff of an instance. A new one is bound
// to its lease.
func instanceEffect(o *operation, h sandbox.Handoff[sandbox.Instance], lease string, until sandbox.Timestamp) effect {
	return effect{
		message:  wire.InstanceHandoff{Value: h.Value, Rollback: wire.Rollback{OperationID: o.id}},
		instance: h.Value.InstanceID, lease: lease, until: until, undo: compensation(h),
	}
}

// compensation is the provider's own, or one that says that there is none.
func compensation[T any](h sandbox.Handoff[T]) func(context.Context) error {
	if h.Rollback == nil {
		return func(context.Context) error {
			return sandbox.Failed("", sandbox.ReasonProviderError, nil)
		}
	}
	return h.Rollback
}

func (c *call) activate() error {
	m, err := request[wire.InstanceRequest](c)
	if err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, o *operation) (effect, error) {
		h, err := c.s.provider.Activate(ctx, m.InstanceID)
		e := instanceEffect(o, h, "", "")
		e.instance = m.InstanceID // whatever the provider calls it now
		return e, err
	})
}

func (c *call) snapshot() error {
	m, err := request[wire.SnapshotRequest](c)
	if err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, o *operation) (effect, error) {
		h, err := c.s.provider.Snapshot(ctx, m.InstanceID, sandbox.SnapshotRequest{ExpiresAt: m.ExpiresAt})
		return snapshotEffect(o, h, m.ExpiresAt), err
	})
}

func snapshotEffect(o *operation, h sandbox.Handoff[sandbox.Snapshot], until sandbox.Timestamp) effect {
	return effect{
		message:  wire.SnapshotHandoff{Value: h.Value, Rollback: wire.Rollback{OperationID: o.id}},
		snapshot: h.Value.SnapshotID, until: until, undo: compensation(h),
	}
}

func (c *call) cloneSnapshot() error {
	m, err := request[wire.CloneRequest](c)
	if err != nil {
		return err
	}
	c.s.journal.acknowledge("snapshot/" + string(m.Snapshot.SnapshotID))
	return c.mutate("", func(ctx context.Context, o *operation) (effect, error) {
		h, err := c.s.provider.CloneSnapshot(ctx, sandbox.CloneRequest(m))
		return snapshotEffect(o, h, m.Snapshot.ExpiresAt), err
	})
}

func (c *call) release() error {
	m, err := request[wire.ReleaseRequest](c)
	if err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, o *operation) (effect, error) {
		h, err := c.s.provider.Release(ctx, m.InstanceID, sandbox.ReleaseRequest{ExpiresAt: m.ExpiresAt})
		if err != nil {
			return effect{}, err
		}
		e := effect{
			message: wire.ReleasedHandoff{Value: h.Value, Rollback: wire.Rollback{OperationID: o.id}},
			until:   m.ExpiresAt, undo: compensation(h), ended: []sandbox.InstanceID{m.InstanceID},
		}
		if h.Value.Snapshot != nil {
			e.snapshot = h.Value.Snapshot.SnapshotID
		}
		return e, nil
	})
}

func (c *call) resume() error {
	m, err := request[wire.ResumeRequest](c)
	if err != nil {
		return err
	}
	// It may come from a reconciler under a lease of its own, but the new
	// instance's lease fences as any other.
	if err := c.s.admit(wire.Lease{ID: m.Request.LeaseID, Epoch: m.Request.LeaseEpoch}); err != nil {
		return err
	}
	c.s.journal.acknowledge("snapshot/" + string(m.Snapshot.SnapshotID))
	return c.mutate("", func(ctx context.Context, o *operation) (effect, error) {
		h, err := c.s.provider.Resume(ctx, sandbox.ResumeRequest(m))
		return instanceEffect(o, h, m.Request.LeaseID, m.Request.ExpiresAt), err
	})
}

// destroy is not held to the instance's lease: reconcilers call it.
func (c *call) destroy() error {
	m, err := request[wire.InstanceRequest](c)
	if err != nil {
		return err
	}
	return c.mutate("", func(ctx context.Context, _ *operation) (effect, error) {
		if err := c.s.provider.Destroy(ctx, m.InstanceID); err != nil {
			return effect{}, err
		}
		return effect{message: wire.Empty{}, ended: []sandbox.InstanceID{m.InstanceID}}, nil
	})
}

func (c *call) destroySnapshot() error {
	m, err := request[wire.DestroySnapshotRequest](c)
	if err != nil {
		return err
	}
	return c.mutate("", func(ctx context.Context, _ *operation) (effect, error) {
		return effect{message: wire.Empty{}}, c.s.provider.DestroySnapshot(ctx, m.SnapshotID)
	})
}

func (c *call) cleanup() error {
	m, err := request[wire.CleanupRequest](c)
	if err != nil {
		return err
	}
	return c.mutate("", func(ctx context.Context, _ *operation) (effect, error) {
		swept, err := c.s.provider.Cleanup(ctx, sandbox.CleanupRequest(m))
		return effect{message: wire.CleanupResult(swept), ended: swept.InstanceIDs}, err
	})
}

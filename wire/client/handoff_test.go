package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// W32: a rollback goes by the id of the operation, whatever the value says, and
// says the same each time.
func TestRollbackOwesNothingToTheValue(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Provision, func(d *delivery) { d.provisioned("neighbour") })
		p.on(wire.RollbackOperation, func(d *delivery) {
			if d.n%2 == 1 {
				d.drop() // every other delivery is lost
			}
			d.reply(200, wire.Settled{Settled: true})
		})
		h, err := c.Provision(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		h.Value.InstanceID = "another"
		for range 2 {
			if err := h.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		}
		id := p.of(wire.Provision)[0].header.Operation
		for _, d := range p.of(wire.RollbackOperation) {
			q, err := wire.Decode[wire.RollbackRequest](d.body)
			if err != nil || q.OperationID != id || strings.Contains(string(d.body), "neighbour") || d.header.Lease.ID != "lease" {
				t.Errorf("%s %+v", d.body, d.header)
			}
		}
	})
}

// W30: a rollback that hangs is left after 30 s, and both causes are told.
func TestRollbackHangs(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.RollbackOperation, (*delivery).hold)
		p.on(wire.Provision, func(d *delivery) { d.provisioned("i1") })
		h, err := c.Provision(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = h.Rollback(t.Context())
		if e := (&sandbox.Error{Operation: "provision_rollback", Reason: sandbox.ReasonTimedOut}); !errors.Is(err, e) || time.Since(began) != patience {
			t.Error(err, time.Since(began))
		}
		if n := len(p.of(wire.RollbackOperation)); n < 2 {
			t.Errorf("%d deliveries", n)
		}

		p.on(wire.Provision, (*delivery).hold)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_, err = c.Provision(ctx, request())
		if !errors.Is(err, &sandbox.Error{Operation: sandbox.OpProvision, Reason: sandbox.ReasonIndeterminate}) ||
			!errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, &sandbox.Error{Operation: "provision_rollback"}) || time.Since(began) != patience+time.Second {
			t.Error(err, time.Since(began))
		}
	})
}

func TestRollbackRefused(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		owned := sandbox.Conflict("provision_rollback", "nobody's", "owned") // W33
		p.on(wire.RollbackOperation, func(d *delivery) { d.fail(owned) })
		p.on(wire.Provision, func(d *delivery) { d.provisioned("i1") })
		h, err := c.Provision(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Rollback(t.Context()); !errors.Is(err, owned) || len(p.of(wire.RollbackOperation)) != 1 {
			t.Error(err)
		}
	})
}

// Every member that allocates is undone by its id when its caller leaves.
func TestInterruptedAllocations(t *testing.T) {
	snapshot := sandbox.Snapshot{SnapshotID: "s1", ProfileDigest: digestOf(nil), CreatedAt: sandbox.At(start), ExpiresAt: sandbox.At(start.Add(time.Hour))}
	for _, c := range []struct {
		endpoint wire.Endpoint
		call     func(ctx context.Context, c *Client) error
	}{
		{wire.Provision, func(ctx context.Context, c *Client) error { _, err := c.Provision(ctx, request()); return err }},
		{wire.Activate, func(ctx context.Context, c *Client) error { _, err := c.Activate(ctx, "i1"); return err }},
		{wire.Snapshot, func(ctx context.Context, c *Client) error {
			_, err := c.Snapshot(ctx, "i1", sandbox.SnapshotRequest{ExpiresAt: sandbox.At(start)})
			return err
		}},
		{wire.CloneSnapshot, func(ctx context.Context, c *Client) error {
			_, err := c.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: snapshot, TargetSessionID: "s2"})
			return err
		}},
		{wire.Release, func(ctx context.Context, c *Client) error {
			_, err := c.Release(ctx, "i1", sandbox.ReleaseRequest{})
			return err
		}},
		{wire.Resume, func(ctx context.Context, c *Client) error {
			_, err := c.Resume(ctx, sandbox.ResumeRequest{Request: request(), Snapshot: snapshot})
			return err
		}},
		{wire.BeginActiveWrite, func(ctx context.Context, c *Client) error {
			_, err := c.BeginActiveWrite(ctx, "i1", []string{"/a"})
			return err
		}},
	} {
		t.Run(string(c.endpoint), func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, p *peer, client *Client) {
				ctx, cancel := context.WithCancel(t.Context())
				p.on(c.endpoint, func(d *delivery) { cancel(); d.hold() })
				if err := c.call(ctx, client); err != context.Canceled {
					t.Error(err)
				}
				undone := p.of(wire.RollbackOperation)
				if len(undone) != 1 {
					t.Fatalf("%d rollbacks", len(undone))
				}
				q, _ := wire.Decode[wire.RollbackRequest](undone[0].body)
				if q.Member != c.endpoint || q.OperationID != p.of(c.endpoint)[0].header.Operation {
					t.Errorf("%+v", q)
				}
			})
		})
	}
}

// An instance is called under the lease that it was made under, and a forged id
// takes no neighbour's away.
func TestLeases(t *testing.T) {
	bubble(t, Options{Lease: wire.Lease{ID: "sweeper", Epoch: 3}}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Provision, func(d *delivery) { d.provisioned("i1") })
		p.on(wire.Destroy, func(d *delivery) { d.reply(200, wire.Empty{}) })
		p.on(wire.WriteFile, func(d *delivery) { d.reply(200, wire.Empty{}) })
		under := func(want wire.Lease) {
			t.Helper()
			if err := c.WriteFile(t.Context(), "i1", sandbox.FileWrite{Path: "/r/a"}); err != nil {
				t.Error(err)
			}
			calls := p.of(wire.WriteFile)
			if got := calls[len(calls)-1].header.Lease; got != want {
				t.Errorf("under %+v, want %+v", got, want)
			}
		}
		under(wire.Lease{ID: "sweeper", Epoch: 3})
		first, err := c.Provision(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		under(wire.Lease{ID: "lease", Epoch: 7})
		thief := request()
		thief.LeaseID = "thief"
		stolen, err := c.Provision(t.Context(), thief)
		if err != nil {
			t.Fatal(err)
		}
		under(wire.Lease{ID: "lease", Epoch: 7})
		if err := stolen.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		under(wire.Lease{ID: "lease", Epoch: 7})
		if err := first.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		under(wire.Lease{ID: "sweeper", Epoch: 3})
	})
}

// W38: a dispatch whose answer is lost is indeterminate; one of a transaction
// that is no longer open is refused before the marker.
func TestDispatch(t *testing.T) {
	bubble(t, Options{Deadline: time.Minute}, func(t *testing.T, p *peer, c *Client) {
		state := sandbox.JournalOpen
		say := func(d *delivery) { d.reply(200, wire.Journal{Journal: state}) }
		p.on(wire.BeginActiveWrite, say)
		p.on(wire.InspectActiveWrite, say)
		p.on(wire.DispatchActiveWrite, (*delivery).drop)
		w, err := c.BeginActiveWrite(t.Context(), "i1", []string{"/r/a"})
		if err != nil {
			t.Fatal(err)
		}
		marks := 0
		if got := failure(w.Dispatch(t.Context(), func() { marks++ })); got != "SandboxOperationFailed indeterminate" || marks != 1 {
			t.Error(got, marks)
		}
		sent := p.of(wire.DispatchActiveWrite)
		q, err := wire.Decode[wire.TransactionRequest](sent[0].body)
		if err != nil || q.TransactionID != p.of(wire.BeginActiveWrite)[0].header.Operation {
			t.Error(q, err)
		}
		state = sandbox.JournalRolledBack
		if got := failure(w.Dispatch(t.Context(), func() { marks++ })); got != "SandboxLifecycleConflict rolled_back" || marks != 1 {
			t.Error(got, marks)
		}
		state = sandbox.JournalCommitted
		if got, err := w.Inspect(t.Context()); got != sandbox.JournalCommitted || err != nil {
			t.Error(got, err)
		}
	})
}

// W40 and the like: a member that the server does not list is absent in the
// contract's words, one that it lists and does not know is a violation.
func TestMemberUnknown(t *testing.T) {
	unknown := func(d *delivery) { d.fail(&wire.Error{Tag: wire.TagMemberUnknown}) }
	snapshot := sandbox.SnapshotRequest{ExpiresAt: sandbox.At(start)}
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Snapshot, unknown)
		if _, err := c.Snapshot(t.Context(), "i1", snapshot); failure(err) != "protocol body" {
			t.Error(err)
		}
	})
	bubbleWith(t, Options{}, func(p *peer) {
		e := &p.info.Capabilities
		e.Snapshots, e.SnapshotClone, e.ListDir, e.ActiveMountWrite = false, false, false, false
		p.info.Wire.Members = wire.Members(p.info.Capabilities, sandbox.Optional{})
		p.info.Wire.Limits.OutputWindowBytes, p.info.Wire.Limits.InputBufferBytes = 0, 0
		p.digest, _ = wire.CapabilitiesDigest(p.info.Capabilities)
	}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Snapshot, unknown)
		if c.Optional() != (sandbox.Optional{}) {
			t.Error("optional members of nobody")
		}
		_, err := c.Snapshot(t.Context(), "i1", snapshot)
		if !errors.Is(err, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireSnapshots}) {
			t.Error(err)
		}
	})
}

package client

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// handed is a right answer that hands over an instance in a state.
func handed(d *delivery, state sandbox.State) string {
	i := sandbox.InstanceOf(request(), "i1", state, digestOf(request().Profile.ImageIdentity()))
	data, _ := wire.Encode(wire.InstanceHandoff{Value: i, Rollback: wire.Rollback{OperationID: d.header.Operation}})
	return string(data)
}

// adopted is a Runner's runtime over c, with an active instance of p. Its adapter
// is not told that c is remote: c says so.
func adopted(t *testing.T, p *peer, c *Client) (*sandboxruntime.Runtime, sandbox.InstanceID) {
	t.Helper()
	r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: c}}}.Attach(t.Context(), memory.DefaultTarget)
	if err != nil {
		t.Fatal(err)
	}
	p.on(wire.Provision, func(d *delivery) { d.json(200, handed(d, sandbox.StateProvisioning)) })
	p.on(wire.Activate, func(d *delivery) { d.json(200, handed(d, sandbox.StateActive)) })
	i, err := r.Provision(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Activate(t.Context(), i.InstanceID); err != nil {
		t.Fatal(err)
	}
	return r, i.InstanceID
}

// What a peer breaks is SandboxProtocolInvalid to the Runner, with the field
// that broke, and what may have been made is undone; a lost connection and a
// typed refusal stay what they are. The adapter is not told that the client is
// remote: the client says so.
func TestViolationsThroughTheRuntime(t *testing.T) {
	invalid := func(op sandbox.Operation, field string) error {
		return &sandboxruntime.Error{Kind: sandboxruntime.ProtocolInvalid, Operation: op, Field: field}
	}
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: c}}}.Attach(t.Context(), memory.DefaultTarget)
		if err != nil {
			t.Fatal(err)
		}
		for _, axis := range sandbox.Axes() {
			if r.Capabilities().Enforcement.On(axis) == sandbox.RunnerEnforced {
				t.Errorf("%s is runner_enforced", axis)
			}
		}
		provision := func(change func(string) string) error {
			p.on(wire.Provision, func(d *delivery) { d.json(200, change(handed(d, sandbox.StateProvisioning))) })
			_, err := r.Provision(t.Context(), request())
			return err
		}
		for n, err := range []error{
			provision(func(s string) string {
				return strings.Replace(s, `"lease_epoch":7`, `"lease_epoch":7,"lease_epoch":9`, 1)
			}),
			provision(func(s string) string { return strings.Replace(s, `"lease_epoch":7`, `"\u001b[2J":7`, 1) }),
		} {
			if !errors.Is(err, invalid(sandbox.OpProvision, "")) || strings.ContainsAny(err.Error(), "\x1b\n") || errors.As(err, new(*ProtocolError)) {
				t.Errorf("%T %q", err, err)
			}
			if undone := len(p.of(wire.RollbackOperation)); undone != 2 && n == 1 {
				t.Errorf("%d rollbacks", undone)
			}
		}
		refusal := sandbox.Conflict(sandbox.OpProvision, "a", "b")
		p.on(wire.Provision, func(d *delivery) { d.fail(refusal) })
		if _, err := r.Provision(t.Context(), request()); !errors.Is(err, refusal) {
			t.Errorf("%T %v", err, err)
		}
		r, id := adopted(t, p, c)
		p.on(wire.OpenProcess, func(d *delivery) {
			q, _ := wire.Decode[wire.OpenProcessRequest](d.body)
			o := opened()
			o.ProcessID = q.ProcessID
			o.Evidence = sandbox.EvidenceOf(sandbox.InstanceOf(request(), id, sandbox.StateActive, digestOf(request().Profile.ImageIdentity())), string(q.ProcessID),
				p.info.Capabilities.Enforcement, sandbox.At(start), sandbox.At(start))
			p.on(wire.ProcessStream, func(d *delivery) {
				w := d.frames()
				w.Message(wire.TypeOpen, o)
				w.Output(wire.TypeOut, 1, []byte("a byte is missing"))
				d.hold()
			})
			d.reply(200, o)
		})
		proc, err := r.OpenProcess(t.Context(), id, program())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(proc.Output()); failure(err) != "protocol offset" {
			t.Error(err)
		}
		if _, err := proc.Wait(t.Context()); !errors.Is(err, invalid(sandbox.OpOpenProcess, "offset")) {
			t.Errorf("%T %v", err, err)
		}
	})
}

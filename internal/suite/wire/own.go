package wire

import (
	"context"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// own is an active machine that was allocated by hand, under a lease whose
// epoch the probe may raise. It goes with the probe.
type own struct {
	t     *probe.T
	id    sandbox.InstanceID
	lease wire.Lease
	made  wire.OperationID // the provision
}

// provision is a provision that was not sent.
func provision(t *probe.T, s probe.Shape) (*own, request) {
	q := t.Request(s)
	o := &own{t: t, lease: wire.Lease{ID: q.LeaseID, Epoch: q.LeaseEpoch}, made: wire.NewOperationID()}
	return o, request{endpoint: wire.Provision, lease: o.lease, operation: o.made, message: wire.ProvisionRequest(q)}
}

// allocate makes a machine by hand. What it cannot name it rolls back.
func allocate(t *probe.T, s probe.Shape) *own {
	o, q := provision(t, s)
	t.Defer(func() {
		if o.id == "" {
			undo(t, o.lease, o.made, wire.Provision)
			return
		}
		o.destroy()
	})
	o.id = value[wire.InstanceHandoff](t, "provision", send(t, q)).Value.InstanceID
	return o
}

// activate seals it.
func (o *own) activate() *own {
	a := send(o.t, o.request(wire.Activate, wire.InstanceRequest{InstanceID: o.id}))
	value[wire.InstanceHandoff](o.t, "activate", a)
	return o
}

// request is a call about the machine.
func (o *own) request(e wire.Endpoint, m wire.Message) request {
	return request{endpoint: e, lease: o.lease, message: m}
}

// execute is the call that runs a script.
func (o *own) execute(script string) request {
	return o.request(wire.Execute, wire.ExecuteCall{InstanceID: o.id, Command: probe.Command(script)})
}

// destroy takes the machine away, also when the run was cancelled.
func (o *own) destroy() {
	_, _ = deliver(context.WithoutCancel(o.t.Context()), o.t, o.request(wire.Destroy, wire.InstanceRequest{InstanceID: o.id}))
}

// raise lets a Runner of the next epoch of the lease make itself known: it
// destroys an instance that nobody has.
func (o *own) raise() {
	o.lease.Epoch++
	a := send(o.t, o.request(wire.Destroy, wire.InstanceRequest{InstanceID: sandbox.InstanceID(o.t.ID("none-"))}))
	value[wire.Empty](o.t, "next-epoch", a)
}

// stale is the lease before it was raised.
func (o *own) stale() wire.Lease { return wire.Lease{ID: o.lease.ID, Epoch: o.lease.Epoch - 1} }

// open opens a live process.
func (o *own) open(script string) wire.Opened {
	return value[wire.Opened](o.t, "open", send(o.t, o.opening(wire.NewProcessID(), script)))
}

// settled is the result frame of an execute, or its error.
func settled(a answer) (r wire.ExecuteResult, out []byte, err error) {
	if err := a.failure(); err != nil {
		return r, nil, err
	}
	frames, err := split(a.body)
	if err != nil {
		return r, nil, err
	}
	for _, f := range frames {
		switch f.Type {
		case wire.TypeOut:
			_, data, err := f.Output()
			if err != nil {
				return r, out, err
			}
			out = append(out, data...)
		case wire.TypeError:
			failure, err := wire.DecodeError(f.Payload)
			if err != nil {
				return r, out, err
			}
			return r, out, failure
		case wire.TypeResult:
			r, err = wire.Decode[wire.ExecuteResult](f.Payload)
			return r, out, err
		}
	}
	return r, out, errNoResult
}

package client

import (
	"context"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// Execute runs one bounded command to completion. Where ctx has no deadline,
// the command's own timeout and 30 s bound the call. A caller that leaves ends
// the command: it is rolled back by its id.
func (c *Client) Execute(ctx context.Context, id sandbox.InstanceID, command sandbox.Command) (sandbox.Settlement, error) {
	k, err := c.newFramedCall(wire.Execute, c.leases.of(id), wire.ExecuteCall{InstanceID: id, Command: command}, command.Stdin)
	if err != nil {
		return sandbox.Settlement{}, err
	}
	most := int64((wire.MaxDeadline - patience) / time.Second)
	k.budget = time.Duration(min(max(command.TimeoutSeconds, 0), most))*time.Second + patience
	var s sandbox.Settlement
	if err := c.enter(k.op); err != nil {
		return s, err
	}
	defer c.leave()
	err = c.exchange(ctx, k, func(b *body) error {
		s = sandbox.Settlement{Stdout: []byte{}, Stderr: []byte{}}
		return frames(b, func(f wire.Frame) (bool, error) { return settlement(&s, b.endpoint, f) })
	})
	if err == nil {
		return s, nil
	}
	switch err.(type) {
	case *silence, *ProtocolError:
		// A lost connection ends nothing at the other side.
		_ = c.rollback(context.WithoutCancel(ctx), k)
	}
	return sandbox.Settlement{}, c.contract(k, err)
}

// settlement takes one frame of a command's answer.
func settlement(s *sandbox.Settlement, e wire.Endpoint, f wire.Frame) (done bool, err error) {
	switch f.Type {
	case wire.TypeOut:
		return false, output(&s.Stdout, e, f)
	case wire.TypeErr:
		return false, output(&s.Stderr, e, f)
	case wire.TypeResult:
		r, err := wire.Decode[wire.ExecuteResult](f.Payload)
		if err != nil {
			return true, err
		}
		s.Exit = sandbox.Exit{ExitCode: r.ExitCode, Signal: r.Signal}
		s.TimedOut, s.StartedAt, s.FinishedAt = r.TimedOut, r.StartedAt, r.FinishedAt
		return true, nil
	}
	return false, unexpected(f)
}

// output appends a frame that begins where the stream stands.
func output(stream *[]byte, e wire.Endpoint, f wire.Frame) error {
	offset, data, err := f.Output()
	if err != nil {
		return err
	}
	if offset != int64(len(*stream)) {
		return broken(e, "offset", strconv.Itoa(len(*stream)), strconv.FormatInt(offset, 10))
	}
	*stream = extend(*stream, data, 0)
	return nil
}

package client

import (
	"context"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// into reads a JSON answer into m.
func into[M wire.Message](m *M) func(*body) error {
	return func(b *body) error {
		got, err := decode[M](b)
		if err == nil {
			*m = got
		}
		return err
	}
}

// settled reads an answer that says nothing.
func settled(b *body) error {
	_, err := decode[wire.Empty](b)
	return err
}

func (c *Client) capabilities(ctx context.Context) (answer wire.CapabilitiesResponse, err error) {
	k, err := c.newCall(wire.Capabilities, wire.Lease{}, wire.Empty{})
	if err != nil {
		return answer, err
	}
	return answer, c.do(ctx, k, func(b *body) error {
		got, err := decode[wire.CapabilitiesResponse](b)
		if err != nil {
			return err
		}
		// The digest stands in every header; here is what it is the digest of.
		h, err := wire.ParseResponseHeader(b.response.Header)
		if err != nil {
			return violation(b.endpoint, err)
		}
		digest, err := wire.CapabilitiesDigest(got.Capabilities)
		if err != nil {
			return violation(b.endpoint, err)
		}
		if digest != h.Capabilities {
			return broken(b.endpoint, wire.HeaderCapabilities, string(digest), string(h.Capabilities))
		}
		answer = got
		return nil
	})
}

// Capabilities returns the envelope as it is advertised, overclaims and all. It
// asks each time; an envelope other than the one that Dial met is a violation.
func (c *Client) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	answer, err := c.capabilities(ctx)
	return answer.Capabilities, err
}

// Destroy tears one instance down.
func (c *Client) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	k, err := c.newCall(wire.Destroy, c.leases.ending(id), wire.InstanceRequest{InstanceID: id})
	if err != nil {
		return err
	}
	if err := c.do(ctx, k, settled); err != nil {
		return err
	}
	c.leases.drop(id)
	return nil
}

// DestroySnapshot tears one snapshot down.
func (c *Client) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	k, err := c.newCall(wire.DestroySnapshot, c.leases.otherwise, wire.DestroySnapshotRequest{SnapshotID: id})
	if err != nil {
		return err
	}
	return c.do(ctx, k, settled)
}

// Cleanup sweeps what was orphaned.
func (c *Client) Cleanup(ctx context.Context, r sandbox.CleanupRequest) (sandbox.Swept, error) {
	k, err := c.newCall(wire.Cleanup, c.leases.otherwise, wire.CleanupRequest(r))
	if err != nil {
		return sandbox.Swept{}, err
	}
	var swept wire.CleanupResult
	if err := c.do(ctx, k, into(&swept)); err != nil {
		return sandbox.Swept{}, err
	}
	for _, id := range swept.InstanceIDs {
		c.leases.drop(id)
	}
	return sandbox.Swept(swept), nil
}

package client

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// Client is a provider at the other end of a wire.
type Client struct {
	options Options
	target  target
	pool    *pool
	leases  leases
	info    wire.Info
	digest  sandbox.Digest // of the envelope, as Dial met it
	random  func() float64 // from 0 to 1, for the jitter

	// calling ends when Close begins: whoever waits for an answer stops, and
	// undoes what it cannot know.
	calling context.Context
	stop    context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // calls and streams
}

var (
	_ sandbox.Provider  = (*Client)(nil)
	_ sandbox.Remote    = (*Client)(nil)
	_ sandbox.Violation = (*ProtocolError)(nil)
)

// seam is what tests put in the place of the machine's own.
type seam struct {
	dial   func(context.Context) (net.Conn, error)
	random func() float64
}

// Dial connects to a provider, reads its envelope and holds it to itself: the
// members that it serves over this wire are those that it advertises.
//
// Blocks: at most Options.Deadline; deliveries are repeated until then.
// Errors: *OptionError; *ProtocolError; *sandbox.Error, whose cause is a
// *wire.Error with TagUnauthenticated, TagForbidden or TagUnsupported, or what
// the network said; ctx's.
func Dial(ctx context.Context, o Options) (*Client, error) { return dial(ctx, o, seam{}) }

func dial(ctx context.Context, o Options, s seam) (*Client, error) {
	o, t, err := o.settle()
	if err != nil {
		return nil, err
	}
	c := &Client{options: o, target: t, pool: newPool(o, t, s.dial), random: s.random}
	c.leases = leases{otherwise: o.Lease, held: map[sandbox.InstanceID]wire.Lease{}}
	if c.random == nil {
		c.random = rand.Float64
	}
	c.calling, c.stop = context.WithCancelCause(context.Background())
	answer, err := c.capabilities(ctx)
	if err == nil {
		c.digest, err = wire.CapabilitiesDigest(answer.Capabilities)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.info = answer.Wire
	// Longer would only be answered by a server that does not keep its word.
	c.options.Wait = min(c.options.Wait, time.Duration(c.info.Limits.MaxWaitMS)*time.Millisecond)
	return c, nil
}

// Close ends the client: calls in flight stop waiting, and what they may have
// allocated is rolled back; streams end with an error. Live processes and
// instances stay where they are. It returns when every goroutine of the client
// has ended, at the latest after the 30 s of a rollback. It may be called again.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop(ErrClosed)
	c.work.Wait()
	c.pool.shut()
	return nil
}

// enter counts one call or stream that Close has to wait for.
func (c *Client) enter(op sandbox.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return sandbox.Failed(op, sandbox.ReasonProviderError, ErrClosed)
	}
	c.work.Add(1)
	return nil
}

func (c *Client) leave() { c.work.Done() }

// Remote is true: a Runner adopts this provider as a remote adapter, so that
// nothing it claims counts as runner_enforced.
// Source: docs/divergences.md, row 15.
func (c *Client) Remote() bool { return true }

// Wire returns what the server says of its side of the wire.
func (c *Client) Wire() wire.Info {
	i := c.info
	i.Members = slices.Clone(i.Members)
	return i
}

func (c *Client) serves(op sandbox.Operation) bool { return slices.Contains(c.info.Members, op) }

// Optional offers the optional members that the server lists.
func (c *Client) Optional() sandbox.Optional {
	var o sandbox.Optional
	if c.serves(sandbox.OpReadFiles) {
		o.ReadFiles = c
	}
	if c.serves(sandbox.OpListDir) {
		o.ListDir = c
	}
	if c.serves(sandbox.OpListProjectDir) {
		o.ListProjectDir = c
	}
	if c.serves(sandbox.OpOpenProcess) {
		o.OpenProcess = c
	}
	if c.serves(sandbox.OpBeginActiveWrite) {
		o.ActiveWrite = c
	}
	return o
}

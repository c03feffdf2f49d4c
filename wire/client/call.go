package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// call is one logical call: what stays the same over all of its deliveries.
type call struct {
	endpoint wire.Endpoint
	op       sandbox.Operation // what errors name
	lease    wire.Lease
	id       wire.OperationID // of a mutating endpoint
	payload  payload
	hold     time.Duration // how long the server may hold it; < 0: the client's Wait
	budget   time.Duration // where ctx has no deadline; 0: the client's Deadline
	late     time.Duration // what headers may take beside the hold; 0: slack
	silent   bool          // waits for headers as long as the budget lasts
}

// slack is what a network may add to a hold.
const slack = 10 * time.Second

// newCall makes the call of e with request as its JSON body.
// Errors: *sandbox.Error with invalid_request for what no wire could carry.
func (c *Client) newCall(e wire.Endpoint, lease wire.Lease, request wire.Message) (call, error) {
	p, err := jsonPayload(request)
	return c.prepare(e, lease, p, err)
}

// newFramedCall likewise, with data behind the call. Data must not change while
// the call lasts.
func (c *Client) newFramedCall(e wire.Endpoint, lease wire.Lease, request wire.Message, data []byte) (call, error) {
	p, err := framedPayload(request, data)
	return c.prepare(e, lease, p, err)
}

func (c *Client) prepare(e wire.Endpoint, lease wire.Lease, p payload, err error) (call, error) {
	t, _ := e.Traits()
	if err != nil {
		return call{}, sandbox.Failed(t.Member, sandbox.ReasonInvalidRequest, err)
	}
	k := call{endpoint: e, op: t.Member, lease: lease, payload: p, hold: -1}
	// A server that cannot answer 202 holds a mutating call until it is done,
	// and so does every server with a long reading: no id, nothing to poll.
	k.silent = t.Mutating && !c.info.AsyncOperations || t.FramedResponse && !t.Mutating
	if t.Mutating {
		k.id = wire.NewOperationID()
	}
	return k, nil
}

// errRunning is a 202.
var errRunning = errors.New("still running")

// Why a delivery was given up: the end of its call's budget, or headers that
// are late.
var (
	errBudget = errors.New("no answer in time")
	errLate   = errors.New("no answer to a delivery in time")
)

// maxRefusals is how often something between may call a body too long: the next
// delivery is no shorter.
const maxRefusals = 3

// do makes one logical call and gives its 200 to read, which may see several
// of them, each from its beginning: it keeps nothing of one that it fails.
// Errors: the contract's; *ProtocolError; ctx's.
func (c *Client) do(ctx context.Context, k call, read func(*body) error) error {
	err := c.exchange(ctx, k, read)
	if err == nil {
		return nil
	}
	return c.contract(k, err)
}

// exchange is do with the wire's own errors as they came, and *silence. It
// counts as work that Close waits for and cuts short.
func (c *Client) exchange(ctx context.Context, k call, read func(*body) error) error {
	if err := c.enter(k.op); err != nil {
		return err
	}
	defer c.leave()
	bound, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.calling, func() { cancel(ErrClosed) })()
	return c.repeat(ctx, bound, k, read)
}

// repeat delivers k until it is answered or bound is done; ctx is the caller's
// own, whose end is the caller's to name.
func (c *Client) repeat(ctx, bound context.Context, k call, read func(*body) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeoutCause(bound, either(k.budget, c.options.Deadline), errBudget)
		defer cancel()
	}
	wait := backoff{random: c.random}
	polling, refusals := false, 0
	var last error
	for {
		began := time.Now()
		err := c.deliver(bound, k, polling, read)
		again := (*undelivered)(nil)
		var rest time.Duration
		switch {
		case errors.Is(err, errRunning):
			polling = true
			// A server that answers 202 at once again and again is not worth a
			// busy loop.
			if time.Since(began) < k.held(c)/2 {
				rest = wait.next(0)
			}
		case errors.As(err, &again):
			rest = wait.next(again.after)
		default:
			return err
		}
		if last == nil || !errors.Is(err, errBudget) {
			last = err // the end of the budget says less than what came before
		}
		if tooLong := (*BodyRefused)(nil); errors.As(err, &tooLong) {
			refusals++
		}
		if stranger(err) || refusals == maxRefusals {
			return unanswered(ctx, nil, err)
		}
		if why := pause(bound, rest); why != nil {
			return unanswered(ctx, why, last)
		}
	}
}

// unanswered names the end of a call that got no answer.
func unanswered(ctx context.Context, why, last error) error {
	if why == ErrClosed {
		last = ErrClosed
	}
	return &silence{ctx.Err(), last}
}

func (k call) held(c *Client) time.Duration {
	if k.hold < 0 {
		return c.options.Wait
	}
	return k.hold
}

// deliver sends k once, or asks what became of it.
func (c *Client) deliver(ctx context.Context, k call, polling bool, read func(*body) error) error {
	endpoint, p := k.endpoint, k.payload
	if polling {
		var err error
		endpoint = wire.PollOperation
		p, err = jsonPayload(wire.OperationRequest{OperationID: k.id, WaitMS: k.held(c).Milliseconds()})
		if err != nil {
			return violation(endpoint, err)
		}
	}
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrived := func() {}
	if !k.silent || polling {
		attempt, arrived = headerBound(attempt, k.held(c)+either(k.late, slack), cancel)
		defer arrived()
	}
	sent := uploads{open: p.open}
	defer sent.withdraw()
	response, err := c.pool.RoundTrip(c.request(attempt, k, endpoint, p, &sent))
	arrived()
	if err != nil {
		if ctx.Err() == nil {
			// What killed one connection often killed them all: the next delivery
			// gets a new one, and need not find out one idle connection after the
			// other.
			c.pool.CloseIdleConnections()
		}
		if why := context.Cause(attempt); why == errBudget || why == errLate {
			err = why // the transport may call it a cancellation
		}
		return lost(err)
	}
	defer response.Body.Close()
	return c.settle(response, k, endpoint, read)
}

// headerBound cancels a request whose headers do not come within d of its last
// byte: only from there on can the server be late. arrived ends that.
func headerBound(ctx context.Context, d time.Duration, cancel context.CancelCauseFunc) (_ context.Context, arrived func()) {
	var over atomic.Bool
	late := time.AfterFunc(1<<62, func() { cancel(errLate) })
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		late.Reset(d)
		if over.Load() { // an answer may be here before this is
			late.Stop()
		}
	}}
	return httptrace.WithClientTrace(ctx, trace), func() {
		over.Store(true)
		late.Stop()
	}
}

// headers is how many a request has.
const headers = 10

func (c *Client) request(ctx context.Context, k call, e wire.Endpoint, p payload, sent *uploads) *http.Request {
	first, _ := sent.next()
	r := (&http.Request{
		Method: http.MethodPost, URL: c.target.at(e), Host: c.target.url.Host, Header: make(http.Header, headers), Body: first,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	// With GetBody net/http sends again what a dead connection took not one
	// byte of, and nothing else: a POST has no Idempotency-Key here.
	r.GetBody = sent.next
	r.ContentLength = p.size
	h := wire.RequestHeader{Token: c.options.Token, Lease: k.lease, Operation: k.id, Wait: k.held(c)}
	if at, ok := ctx.Deadline(); ok {
		h.Deadline = max(time.Until(at), time.Millisecond)
	}
	h.Set(r.Header, e)
	r.Header["Content-Type"] = []string{p.media}
	r.Header["Accept-Encoding"] = []string{"identity"}
	r.Header["User-Agent"] = nil // says nothing that a provider needs
	return r
}

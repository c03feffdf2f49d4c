package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/wire"
)

// patience is how long what must come is waited for: longer than the longest
// hold of one request.
const patience = wire.MaxWaitMS*time.Millisecond + 15*time.Second

// longest bounds one exchange by hand, and one operation that is asked for again
// and again. A provider that holds a call until it is done may take as long as
// the run allows any call.
func longest(t *probe.T) time.Duration { return max(patience, t.Patience()) }

// pause lies between two questions of one kind, so that a target which holds
// nothing is not asked without end.
const pause = 20 * time.Millisecond

// breathe waits for d, or until ctx is done.
func breathe(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// of is the suite, for the lists.
const of = report.Wire

// request is one request as it is sent. What is left out is as it should be.
type request struct {
	endpoint  wire.Endpoint
	lease     wire.Lease
	operation wire.OperationID // "" is a new one, where the endpoint carries one
	message   wire.Message     // the body; nil with body set
	data      []byte           // behind the message of a framed request
	body      []byte           // instead of the two
	wait      time.Duration    // 0 is 20 s, < 0 is none
	change    func(r *http.Request)
}

// answer is one whole answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// encoded is the body of q.
// Errors: of a message that has no form.
func (q request) encoded() ([]byte, error) {
	traits, _ := q.endpoint.Traits()
	switch {
	case q.message == nil:
		return q.body, nil
	case !traits.FramedRequest:
		return wire.Encode(q.message)
	}
	body, err := wire.NewBody(q.message, q.data)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(body.Reader())
}

// http is q as net/http writes it.
func (q request) http(w *probe.Wire) (*http.Request, error) {
	body, err := q.encoded()
	if err != nil {
		return nil, err
	}
	traits, _ := q.endpoint.Traits()
	r, err := http.NewRequest(http.MethodPost, "http://"+w.Host+w.Path+q.endpoint.Path(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	h := wire.RequestHeader{Token: w.Token, Lease: q.lease, Operation: q.operation, Wait: wire.DefaultWaitMS * time.Millisecond}
	if h.Operation == "" {
		h.Operation = wire.NewOperationID()
	}
	if q.wait != 0 {
		h.Wait = max(q.wait, 0)
	}
	h.Set(r.Header, q.endpoint)
	media := wire.MediaJSON
	if traits.FramedRequest {
		media = wire.MediaFrames
	}
	r.Header.Set("Content-Type", media)
	r.Header.Set("Accept-Encoding", "identity")
	r.Header["User-Agent"] = nil
	if q.change != nil {
		q.change(r)
	}
	return r, nil
}

// begin sends q on a connection of its own and returns the response as it
// begins. Whoever reads it closes the connection.
// Errors: what the network said.
func begin(ctx context.Context, t *probe.T, q request) (*http.Response, net.Conn, error) {
	w, limit := t.Target().Wire, longest(t)
	r, err := q.http(w)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := w.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Now().Add(limit))
	// A server may refuse a request before it took it whole.
	wrote := make(chan error, 1)
	go func() { wrote <- r.Write(c) }()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	response, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		c.Close()
		return nil, nil, errors.Join(err, <-wrote)
	}
	return response, c, nil
}

// maxAnswer is more than the longest answer.
const maxAnswer = wire.MaxReadFilesBytes + 1<<20

// deliver sends q and reads the whole answer. Where that is a 202, it is what the
// operation comes to, unless q asks not to be held; and a rollback that is not
// settled within one hold comes again.
// Errors: what the network said: no response, or half of one.
func deliver(ctx context.Context, t *probe.T, q request) (answer, error) {
	if q.operation == "" {
		q.operation = wire.NewOperationID()
	}
	next := q
	for end := time.Now().Add(longest(t)); ; {
		a, err := exchange(ctx, t, next)
		wait := pause
		tag, busy := refusedBy(a)
		switch {
		case err != nil || q.wait < 0 || ctx.Err() != nil || time.Now().After(end):
			return a, err
		case a.status == http.StatusAccepted && q.endpoint != wire.PollOperation:
			next = request{endpoint: wire.PollOperation, lease: q.lease, message: wire.OperationRequest{OperationID: q.operation, WaitMS: wire.DefaultWaitMS}}
		case q.endpoint == wire.RollbackOperation && tag == wire.TagOverloaded:
			wait = time.Duration(busy.RetryAfterMS) * time.Millisecond
		default:
			return a, err
		}
		breathe(ctx, wait)
	}
}

// exchange sends q and reads the whole answer, whatever it is.
// Errors: those of deliver.
func exchange(ctx context.Context, t *probe.T, q request) (answer, error) {
	response, c, err := begin(ctx, t, q)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return answer{response.StatusCode, response.Header, body}, err
}

// send is deliver for a probe, which stops where no answer came.
func send(t *probe.T, q request) answer {
	a, err := deliver(t.Context(), t, q)
	t.Need("an-answer", err)
	return a
}

// failure is the error of an answer, nil where it is none.
func (a answer) failure() error {
	if a.status == http.StatusOK || a.status == http.StatusAccepted {
		return nil
	}
	failure, err := wire.DecodeError(a.body)
	if err != nil {
		return errors.New("status " + http.StatusText(a.status) + " without an error body")
	}
	return failure
}

// refused records whether an answer is the wire's error tag, with its status.
func refused(t *probe.T, id string, a answer, tag wire.Tag) bool {
	want := &wire.Error{Tag: tag}
	got := a.failure()
	shown := any(got)
	if got == nil {
		shown = "success"
	}
	if !t.Check(id, errors.Is(got, want), string(tag), shown) {
		return false
	}
	return t.Check(id, a.status == wire.Status(got), "the status of "+string(tag), a.status)
}

// value reads the JSON of a 200 and stops the probe where it is none.
func value[M wire.Message](t *probe.T, id string, a answer) M {
	t.Need(id, a.failure())
	m, err := wire.Decode[M](a.body)
	t.Need(id, err)
	return m
}

// errNoResult is a framed answer that just ends.
var errNoResult = errors.New("the answer ends without a result or an error")

// split reads the frames of a whole body.
// Errors: *wire.FrameError.
func split(body []byte) (all []wire.Frame, err error) {
	r := wire.NewReader(bytes.NewReader(body))
	for {
		f, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		f.Payload = bytes.Clone(f.Payload)
		all = append(all, f)
	}
}

// undo rolls an operation back, however the probe ends.
func undo(t *probe.T, l wire.Lease, id wire.OperationID, member wire.Endpoint) {
	_, _ = deliver(context.WithoutCancel(t.Context()), t,
		request{endpoint: wire.RollbackOperation, lease: l, message: wire.RollbackRequest{OperationID: id, Member: member}})
}

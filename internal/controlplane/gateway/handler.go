package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// exchange is one request and its answer.
type exchange struct {
	*Gateway
	w     http.ResponseWriter
	r     *http.Request
	conn  *http.ResponseController
	shape route.Shape
	style route.Style
	lease Lease
	watch *watch
	line  Line
	began bool // the answer's head is written
	held  int64
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{Gateway: g, w: w, r: r, conn: http.NewResponseController(w), line: Line{Kind: "request"}}
	started := g.clock.Now()
	err := x.serve()
	x.line.Millis = max(0, g.clock.Now().Sub(started).Milliseconds())
	refusal, refused := errors.AsType[*route.Refusal](err)
	if refused {
		x.line.Reason = refusal.Reason
		if !x.began {
			x.line.Status = int64(refusal.Status)
		}
	}
	x.line.Cut = x.began && err != nil
	logged := g.log.write(x.line)
	switch {
	case x.began && err != nil:
		// Nothing but a broken transfer tells every client that this is no whole
		// answer.
		panic(http.ErrAbortHandler)
	case x.began:
	case logged != nil:
		x.refuse(unaccounted())
	case refused:
		x.refuse(refusal)
	case err != nil: // the client is gone, or the gateway ends
		panic(http.ErrAbortHandler)
	}
}

// serve is the path of a request.
// Errors: *route.Refusal; once the answer has begun, whatever ended it.
func (x *exchange) serve() error {
	if x.log.broken() != nil {
		return unaccounted()
	}
	digest, err := x.admit()
	if err != nil {
		return err
	}
	up, ok := x.upstreams[x.style]
	if !ok {
		return &route.Refusal{Status: 404, Reason: route.ReasonNoRoute, Message: "no upstream is configured for the API of " + string(x.style)}
	}
	if err := x.ledger.begin(x.lease); err != nil {
		return err
	}
	defer func() {
		_ = x.ledger.hold(x.lease, -x.held)
		x.ledger.end(x.lease, x.line.Usage)
	}()
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	x.watch = &watch{gateway: x.Gateway, digest: digest, runID: x.lease.RunID, cancel: cancel, lease: x.lease}
	x.watch.start()
	defer x.watch.end()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	body, err := x.body()
	if err != nil {
		return err
	}
	a := asked{body: body}
	if x.shape.Method == "POST" {
		if a, err = inspect(x.shape, body); err != nil {
			return err
		}
	}
	x.line.Model = a.model
	if x.lease.Models != nil && x.shape.Method == "POST" && !slices.Contains(x.lease.Models, a.model) {
		return &route.Refusal{Status: 403, Reason: route.ReasonModel, Message: "this run may use the models " + strings.Join(x.lease.Models, ", ")}
	}
	return x.forward(ctx, up, a)
}

// admit checks shape, token and lease, and answers the token's digest.
// Errors: *route.Refusal. That a lease is stale is not told from that there is
// none.
func (x *exchange) admit() (digest string, err error) {
	if x.shape, err = route.Match(x.r.Method, x.r.RequestURI); err != nil {
		return "", err
	}
	x.line.Shape = x.shape.String()
	// net/http takes a header twice; whichever is read, it was the other one.
	for name, values := range x.r.Header {
		if len(values) > 1 && route.RequestHeader(strings.ToLower(name)) {
			return "", &route.Refusal{Status: 400, Reason: route.ReasonHeaders, Message: "expected each header once"}
		}
	}
	token, err := route.Credential(x.r.Header.Values)
	if err != nil {
		return "", err
	}
	digest = route.TokenDigest(token)
	x.lease, err = x.leases.Lookup(digest)
	switch {
	case errors.Is(err, ErrNoLease):
		return "", errLease
	case err != nil:
		return "", &route.Refusal{Status: 503, Reason: route.ReasonLease, Message: "the leases cannot be looked up"}
	}
	x.line.RunID, x.line.LeaseID, x.line.LeaseEpoch = x.lease.RunID, x.lease.LeaseID, x.lease.LeaseEpoch
	if !x.clock.Now().Before(x.lease.ExpiresAt) {
		return "", &route.Refusal{Status: 401, Reason: route.ReasonExpired, Message: "the lease of this run is over"}
	}
	x.style = x.shape.StyleOf(x.r.Header.Get("anthropic-version") != "")
	x.line.Style = x.style
	return digest, nil
}

// body reads the body, as it comes.
// Errors: *route.Refusal.
func (x *exchange) body() ([]byte, error) {
	most := x.limits.BodyBytes
	tooLarge := &route.Refusal{Status: 413, Reason: route.ReasonTooLarge, Message: "expected a body of at most " + strconv.FormatInt(most, 10) + " bytes"}
	switch encoding := x.r.Header.Get("Content-Encoding"); {
	case x.r.ContentLength > most:
		return nil, tooLarge
	case encoding != "" && encoding != "identity":
		return nil, &route.Refusal{Status: 415, Reason: route.ReasonBody, Message: "expected a body without content-encoding"}
	case x.shape.Method == "GET" && x.r.ContentLength != 0:
		return nil, bad("no body")
	}
	var body bytes.Buffer
	for piece := make([]byte, pieceBytes); ; {
		_ = x.conn.SetReadDeadline(time.Now().Add(bodyTime))
		n, err := x.r.Body.Read(piece)
		x.watch.move()
		if int64(body.Len()+n) > most {
			return nil, tooLarge
		}
		if held := x.ledger.hold(x.lease, int64(n)); held != nil {
			return nil, held
		}
		x.held += int64(n)
		body.Write(piece[:n])
		switch {
		case err == io.EOF:
			// The server reads on to see whether the client goes; that has no deadline.
			_ = x.conn.SetReadDeadline(time.Time{})
			return body.Bytes(), nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, &route.Refusal{Status: 408, Reason: route.ReasonTimeout, Message: "expected more of the body within " + bodyTime.String()}
		case err != nil:
			return nil, bad("a whole body, framed as announced")
		}
	}
}

// outgoing is the request as the upstream gets it: the fixed address, the shape's
// path, the headers of the list, and the key in the token's place.
func (x *exchange) outgoing(ctx context.Context, up upstream, body []byte) *http.Request {
	target := *up.url
	target.Path += x.shape.Path
	target.RawQuery = x.r.URL.RawQuery // that of the shape, or none
	out := &http.Request{Method: x.shape.Method, URL: &target, Host: target.Host, Header: http.Header{}}
	for name, values := range x.r.Header {
		if route.RequestHeader(strings.ToLower(name)) && route.HeaderValue(values[0]) {
			out.Header[name] = values
		}
	}
	out.Header.Del(route.Authorization)
	out.Header.Del(route.APIKey)
	if x.style == route.Anthropic {
		out.Header.Set(route.APIKey, up.key.secret)
	} else {
		out.Header.Set(route.Authorization, "Bearer "+up.key.secret)
	}
	out.Header.Set("User-Agent", "checkfu-gateway")
	out.Header.Set("Accept-Encoding", "identity") // what is counted must be read
	if x.shape.Method == "POST" {
		out.Header.Set("Content-Type", "application/json") // inspect has seen that it is
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return out.WithContext(ctx)
}

// forward sends the request and passes the answer on.
// Errors: as serve.
func (x *exchange) forward(ctx context.Context, up upstream, a asked) error {
	x.line.Usage.Requests = 1
	x.line.Usage.UpBytes = int64(len(a.body))
	metered := x.shape.Style != "" && !strings.HasSuffix(x.shape.Path, "/count_tokens")
	response, err := x.transport.RoundTrip(x.outgoing(ctx, up, a.body))
	if err != nil {
		if metered && ctx.Err() != nil {
			// It may have read all of it, and bill it.
			x.settle(told{}, true)
		}
		return x.unanswered(ctx, err)
	}
	defer response.Body.Close()
	x.watch.move()
	answer, err := x.readable(response)
	if err != nil {
		return err
	}
	good := response.StatusCode < 300
	m := newMeter(response.Header)
	err = x.pass(ctx, response, answer, m, a.strip && good && m.events != nil)
	if metered && good {
		x.settle(m.told, !m.told.whole)
	}
	return err
}

// settle counts an answer. Of one that was cut before it told its usage, what is
// missing is estimated from its bytes: a workload that ends each request just
// before the last event would otherwise use what nobody counts.
func (x *exchange) settle(t told, estimate bool) {
	const bytesPerToken = 4
	u := &x.line.Usage
	if estimate {
		u.Estimated = 1
		if !t.begun {
			t.input = u.UpBytes / bytesPerToken
		}
		t.output = max(t.output, u.DownBytes/bytesPerToken)
	}
	u.InputTokens, u.CachedTokens, u.OutputTokens = t.input, t.cached, t.output
}

// refuse answers a refusal. It takes what is under way of the body first: a
// relay that cannot go on writing would have no answer, and tell of a failure
// that another try may mend.
func (x *exchange) refuse(r *route.Refusal) {
	if x.r.Body != nil {
		_ = x.conn.SetReadDeadline(time.Now().Add(drainTime))
		_, _ = io.CopyN(io.Discard, x.r.Body, drainBytes)
		_ = x.conn.SetReadDeadline(time.Time{})
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("X-Should-Retry", strconv.FormatBool(r.Retry()))
	body := r.Body()
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_ = x.conn.SetWriteDeadline(time.Now().Add(replyTime))
	x.w.WriteHeader(r.Status)
	_, _ = x.w.Write(body)
}

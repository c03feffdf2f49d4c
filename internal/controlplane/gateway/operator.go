package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
)

// Operator calls the control of a gateway in another process, by its socket file.
//
// Errors: *ControlError.
// Concurrency: it can be used from many goroutines.
type Operator struct {
	Socket string // host path
}

// ControlError is a question that a gateway did not answer as asked.
type ControlError struct {
	Socket string
	Status int // of HTTP; 0 where there was no answer
	Err    error
}

// Error is one line.
func (e *ControlError) Error() string { return "model gateway " + e.Socket + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ControlError) Unwrap() error { return e.Err }

// operatorTime bounds a question: an end waits for what runs.
const operatorTime = settleTime + 5*time.Second

// maxStatusBytes bounds an answer; MaxLeases of them are below it.
const maxStatusBytes = 64 << 20

// Lease asks for a lease and its token.
func (o Operator) Lease(ctx context.Context, a Asked) (Grant, error) {
	var g Grant
	return g, o.ask(ctx, "POST", pathLease, a, &g)
}

// End ends a lease, as its holder.
func (o Operator) End(ctx context.Context, e Ending) (Ended, error) {
	var ended Ended
	return ended, o.ask(ctx, "POST", pathEnd, e, &ended)
}

// Status asks the gateway what it is and has.
func (o Operator) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, o.ask(ctx, "GET", pathStatus, nil, &s)
}

func (o Operator) ask(ctx context.Context, method, path string, question, answer any) error {
	fail := func(status int, err error) error { return &ControlError{o.Socket, status, err} }
	ctx, cancel := context.WithTimeout(ctx, operatorTime)
	defer cancel()
	var body io.Reader
	if question != nil {
		text, err := canonical.Encode(question)
		if err != nil {
			return fail(0, err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, body)
	if err != nil {
		return fail(0, err)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.Socket)
	}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fail(0, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxStatusBytes))
	if err != nil {
		return fail(response.StatusCode, err)
	}
	if response.StatusCode == http.StatusOK {
		if err := canonical.Decode(text, answer); err != nil {
			return fail(response.StatusCode, err)
		}
		return nil
	}
	var refused failure
	if err := canonical.Decode(text, &refused); err != nil {
		return fail(response.StatusCode, errors.New("it answered "+response.Status))
	}
	return fail(response.StatusCode, errors.New(strings.TrimPrefix(refused.Error, "gateway: ")))
}

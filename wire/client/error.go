package client

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// ErrClosed is a call of a closed Client; it is the cause of the
// *sandbox.Error that the call returns.
var ErrClosed = errors.New("the client is closed")

// ProtocolError says that the peer broke the wire, or says that we did: what a
// Runner reports as SandboxProtocolInvalid. It is no *sandbox.Error, because no
// provider may author it.
type ProtocolError struct {
	Endpoint wire.Endpoint
	Field    string // what broke: "body", "status", "data", a JSON name
	Expected string
	Got      string // escaped where it is the peer's own text
	Err      error  // a *wire.Error, a *wire.FrameError, or nil
}

// Error is one line.
func (e *ProtocolError) Error() string {
	s := string(e.Endpoint) + ": protocol violation"
	if e.Field != "" {
		s += ": " + printable(e.Field) + ": expected " + e.Expected + ", got " + strconv.QuoteToASCII(e.Got)
	}
	if e.Err != nil {
		s += ": " + printable(e.Err.Error())
	}
	return s
}

// printable escapes what a peer may have put into a name, so that no log shows
// more lines, or more, than were written.
func printable(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}

// said reads an error body. Operation names and messages come out in a form
// that can be printed.
// Errors: *ProtocolError.
func said(e wire.Endpoint, data []byte) (failure, err error) {
	failure, err = wire.DecodeError(data)
	if err != nil {
		return nil, violation(e, err)
	}
	switch f := failure.(type) {
	case *sandbox.Error:
		member, _ := strings.CutSuffix(string(f.Operation), wire.OperationSuffixRollback)
		if !slices.Contains(sandbox.Operations(), sandbox.Operation(member)) {
			return nil, broken(e, "operation", "a member of the contract", string(f.Operation))
		}
		if f.Err != nil {
			f.Err = remote(f.Err.Error())
		}
	case *wire.Error:
		if _, known := wire.Endpoint(f.Operation).Traits(); !known && f.Operation != "" {
			return nil, broken(e, "operation", "an endpoint", f.Operation)
		}
	}
	return failure, nil
}

// remote is text of the other side, as a cause.
type remote string

func (r remote) Error() string { return strconv.QuoteToASCII(string(r)) }

// BodyRefused says that something between this side and the provider answered
// 413: it passes no request body on that is so long. It is the cause of the
// *sandbox.Error of a call that met it three times, instead of repeating what
// cannot pass until the call's time is over.
// Source: docs/proxies.md.
type BodyRefused struct {
	Endpoint wire.Endpoint
	Bytes    int64 // of the body
}

// Error says what an operator has to change.
func (e *BodyRefused) Error() string {
	return string(e.Endpoint) + ": something between answers 413 to a request body of " + number(e.Bytes) +
		" bytes: expected a body limit of at least " + number(wire.MaxFramedRequestBytes) + " bytes there"
}

// Unwrap returns what the codec found.
func (e *ProtocolError) Unwrap() error { return e.Err }

// Violation is what a Runner needs to report it in its own words, without
// knowing this package.
func (e *ProtocolError) Violation() (field, expected, got string) {
	return e.Field, e.Expected, e.Got
}

func broken(e wire.Endpoint, field, expected, got string) *ProtocolError {
	return &ProtocolError{Endpoint: e, Field: field, Expected: expected, Got: got}
}

// violation is a rule of the codec that the peer broke.
func violation(e wire.Endpoint, err error) *ProtocolError {
	p := &ProtocolError{Endpoint: e, Field: "body", Expected: "what the wire says", Got: "something else", Err: err}
	if w := (*wire.Error)(nil); errors.As(err, &w) && w.Pointer != "" {
		p.Field = w.Pointer
	}
	return p
}

// undelivered is a delivery without an answer: the only thing that is ever
// sent again.
type undelivered struct {
	cause error
	after time.Duration // asked for by the server
}

func (u *undelivered) Error() string { return "no answer: " + u.cause.Error() }
func (u *undelivered) Unwrap() error { return u.cause }

func lost(cause error) error { return &undelivered{cause: cause} }

// fault sorts what reading a body ended with: a peer that broke a rule, or a
// connection that broke.
func fault(e wire.Endpoint, err error) error {
	frame, own, refused := (*wire.FrameError)(nil), (*ProtocolError)(nil), (*wire.Error)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own // the bound of the body, also where the codec met it inside a frame
	case errors.As(err, &frame) && frame.Reason != wire.FrameTruncation:
		return violation(e, err)
	case errors.As(err, &refused):
		return violation(e, err)
	case err == io.EOF:
		return lost(io.ErrUnexpectedEOF)
	}
	return lost(err)
}

// stranger says that the other end could not show who it is, or would not have
// us: nothing is sent, and nothing gets better by asking again.
func stranger(err error) bool {
	peer, chain, alert := (*PeerError)(nil), (*tls.CertificateVerificationError)(nil), (*net.OpError)(nil)
	return errors.As(err, &peer) || errors.As(err, &chain) ||
		errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error") // as crypto/tls names alerts
}

// silence is the end of a call that got no answer: its caller left, or the
// time was over.
type silence struct {
	interrupted error // the caller's context's own error; nil where time was over
	cause       error // what the last delivery met
}

func (s *silence) Error() string {
	if s.interrupted != nil {
		return s.interrupted.Error()
	}
	return s.cause.Error()
}

func (s *silence) Unwrap() []error { return []error{s.interrupted, s.cause} }

// contract names the end of a call that left nothing undone behind.
func (s *silence) contract(k call) error {
	if tooLong := (*BodyRefused)(nil); errors.As(s.cause, &tooLong) {
		return sandbox.Failed(k.op, sandbox.ReasonProviderError, s.cause)
	}
	return sandbox.Failed(k.op, sandbox.ReasonTimedOut, s.cause)
}

// contract says what exchange returned in the contract's words.
func (c *Client) contract(k call, err error) error {
	switch e := err.(type) {
	case *silence:
		switch {
		case e.interrupted != nil:
			return e.interrupted
		case stranger(e.cause):
			return sandbox.Failed(k.op, sandbox.ReasonProviderError, e.cause)
		case k.id != "":
			// It may have been done, it may be done yet: a status shows nothing.
			return sandbox.Failed(k.op, sandbox.ReasonIndeterminate, e.cause)
		}
		return e.contract(k)
	case *wire.Error:
		return c.translate(k, e)
	}
	return err
}

// translate says one of the wire's own errors in the contract's words.
func (c *Client) translate(k call, w *wire.Error) error {
	if a := w.Adapter(k.op); a != nil {
		return a
	}
	switch {
	case w.Tag == wire.TagMemberUnknown && !c.serves(k.op):
		// It said so before: the member is absent, which is safe.
		return absent(k.op, w)
	case w.Tag == wire.TagOperationUnknown:
		// The journal is gone, and with it what became of the operation.
		return sandbox.Failed(k.op, sandbox.ReasonIndeterminate, w)
	case w.Violation():
		p := violation(k.endpoint, w)
		p.Expected, p.Got = "an answer", string(w.Tag)
		return p
	}
	return sandbox.Failed(k.op, sandbox.ReasonProviderError, w)
}

// absent says that a member is not there, in the words that a provider in this
// process would use.
func absent(op sandbox.Operation, cause error) error {
	requirement := map[sandbox.Operation]sandbox.Requirement{
		sandbox.OpSnapshot: sandbox.RequireSnapshots, sandbox.OpResume: sandbox.RequireSnapshots,
		sandbox.OpCloneSnapshot: sandbox.RequireSnapshotClone, sandbox.OpBeginActiveWrite: sandbox.RequireActiveMountWrite,
	}[op]
	var e *sandbox.Error
	if requirement != "" {
		e = sandbox.Unavailable(op, requirement, "true", "false")
	} else {
		e = sandbox.Conflict(op, string(op), string(op)+"_unsupported")
	}
	e.Err = cause
	return e
}

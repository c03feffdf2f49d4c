package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Header names, in the form in which net/http keeps them.
const (
	HeaderAuthorization = "Authorization"
	HeaderWire          = "Checkfu-Wire"
	HeaderLeaseID       = "Checkfu-Lease-Id"
	HeaderLeaseEpoch    = "Checkfu-Lease-Epoch"
	HeaderOperationID   = "Checkfu-Operation-Id"
	HeaderDeadline      = "Checkfu-Deadline-Ms"
	HeaderWait          = "Checkfu-Wait-Ms"
	HeaderCapabilities  = "Checkfu-Capabilities-Digest"
	HeaderBoot          = "Checkfu-Boot-Id"
)

// MaxDeadline is the longest budget that a request may name.
const MaxDeadline = 7 * 24 * time.Hour

// Lease is what fences a call: the lease that its caller holds, and the epoch
// in which it got it. A provider keeps the highest epoch of each lease.
type Lease struct {
	ID    string // an identity of the contract: 1 to 255 printable ASCII bytes
	Epoch int64  // 0 to 2^53-1
}

// RequestHeader is what the headers of one request say.
type RequestHeader struct {
	Token     string        // the bearer token, "" where there is none
	Lease     Lease         // on every endpoint but capabilities
	Operation OperationID   // on every mutating endpoint
	Deadline  time.Duration // what is left of the caller's budget; 0: not said
	Wait      time.Duration // the longest hold before a 202; 0 means at once
}

// Set puts h into header, which is an http.Header, for a call of e. Fields that
// e does not carry are left out, a deadline is cut to MaxDeadline.
// Preconditions: h is what ParseRequestHeader would return.
func (h RequestHeader) Set(header map[string][]string, e Endpoint) {
	t, _ := e.Traits()
	set := setter(header)
	set(HeaderWire, Revision)
	if h.Token != "" {
		set(HeaderAuthorization, "Bearer "+h.Token)
	}
	if t.Lease {
		set(HeaderLeaseID, h.Lease.ID)
		set(HeaderLeaseEpoch, strconv.FormatInt(h.Lease.Epoch, 10))
	}
	if t.Mutating {
		set(HeaderOperationID, string(h.Operation))
	}
	if h.Deadline > 0 {
		// A budget under a millisecond is still a budget.
		set(HeaderDeadline, strconv.FormatInt(max(1, min(h.Deadline, MaxDeadline).Milliseconds()), 10))
	}
	set(HeaderWait, strconv.FormatInt(h.Wait.Milliseconds(), 10))
}

// setter sets headers whose values share one allocation.
func setter(header map[string][]string) func(name, value string) {
	values := make([]string, 0, 7)
	return func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
}

// ParseRequestHeader reads the headers of a request to e. A header given twice
// is refused, because two readers would take two different values of it, and so
// is one that e does not carry.
// Errors: *Error with TagUnauthenticated, TagUnsupported or TagMalformed, in
// that order of checking.
func ParseRequestHeader(header map[string][]string, e Endpoint) (RequestHeader, error) {
	var h RequestHeader
	t, ok := e.Traits()
	if !ok {
		return h, &Error{Tag: TagMemberUnknown}
	}
	token, err := ParseToken(header)
	if err != nil {
		return h, err
	}
	if err := parseWire(header); err != nil {
		return h, err
	}
	r := headerReader{header: header}
	h.Token = token
	if id, ok := r.one(HeaderLeaseID, t.Lease, t.Lease); ok {
		h.Lease.ID = id
		if sandbox.CheckInstanceID("", sandbox.InstanceID(id)) != nil {
			r.refuse(HeaderLeaseID, "1 to 255 printable ASCII bytes without space, quote or backslash")
		}
	}
	h.Lease.Epoch = r.integer(HeaderLeaseEpoch, t.Lease, t.Lease, 0, maxOffset)
	if id, ok := r.one(HeaderOperationID, t.Mutating, t.Mutating); ok {
		if h.Operation = OperationID(id); !h.Operation.Valid() {
			r.refuse(HeaderOperationID, "op_ and 32 lower-case hex digits")
		}
	}
	h.Deadline = time.Duration(r.integer(HeaderDeadline, true, false, 1, MaxDeadline.Milliseconds())) * time.Millisecond
	h.Wait = DefaultWaitMS * time.Millisecond
	if len(header[HeaderWait]) > 0 {
		h.Wait = time.Duration(r.integer(HeaderWait, true, true, 0, MaxWaitMS)) * time.Millisecond
	}
	if r.err != nil {
		return RequestHeader{}, r.err
	}
	return h, nil
}

// ResponseHeader is what the headers of one response say.
type ResponseHeader struct {
	Capabilities sandbox.Digest // of the envelope; a change within a revision is a violation
	Boot         BootID
}

// Set puts h into header, which is an http.Header. On a framed response it also
// asks every intermediary to pass on each frame at once.
func (h ResponseHeader) Set(header map[string][]string, framed bool) {
	set := setter(header)
	set(HeaderWire, Revision)
	set(HeaderCapabilities, string(h.Capabilities))
	set(HeaderBoot, string(h.Boot))
	set("Content-Type", MediaJSON)
	if framed {
		set("Content-Type", MediaFrames)
		set("Cache-Control", "no-store, no-transform")
		set("X-Accel-Buffering", "no")
		set("Incremental", "?1")
	}
}

// ParseResponseHeader reads the headers of a response that speaks this wire.
// Whatever lacks them was not written by a provider.
// Errors: *Error with TagUnsupported or TagMalformed.
func ParseResponseHeader(header map[string][]string) (ResponseHeader, error) {
	if err := parseWire(header); err != nil {
		return ResponseHeader{}, err
	}
	r := headerReader{header: header}
	digest, _ := r.one(HeaderCapabilities, true, true)
	boot, _ := r.one(HeaderBoot, true, true)
	h := ResponseHeader{Capabilities: sandbox.Digest(digest), Boot: BootID(boot)}
	if !h.Capabilities.Valid() {
		r.refuse(HeaderCapabilities, "sha256: and 64 lower-case hex digits")
	}
	if !h.Boot.Valid() {
		r.refuse(HeaderBoot, "bt_ and 32 lower-case hex digits")
	}
	if r.err != nil {
		return ResponseHeader{}, r.err
	}
	return h, nil
}

// CheckMedia holds the Content-Type to media, without parameters, and refuses
// any Content-Encoding: nothing is ever inflated.
// Errors: *Error with TagMalformed.
func CheckMedia(header map[string][]string, media string) error {
	r := headerReader{header: header}
	if got, ok := r.one("Content-Type", true, true); ok && got != media {
		r.refuse("Content-Type", media)
	}
	if got, ok := r.one("Content-Encoding", true, false); ok && got != "identity" {
		r.refuse("Content-Encoding", "none")
	}
	if r.err != nil {
		return r.err
	}
	return nil
}

func parseWire(header map[string][]string) error {
	if v := header[HeaderWire]; len(v) != 1 || v[0] != Revision {
		return &Error{Tag: TagUnsupported, Supported: []string{Revision}}
	}
	return nil
}

// headerReader keeps the first refusal.
type headerReader struct {
	header map[string][]string
	err    *Error
}

func (r *headerReader) refuse(name, expected string) {
	if r.err == nil {
		r.err = &Error{Tag: TagMalformed, Pointer: strings.ToLower(name), Message: "expected " + expected}
	}
}

// one returns the only value of a header.
func (r *headerReader) one(name string, allowed, required bool) (string, bool) {
	switch v := r.header[name]; {
	case len(v) == 0 && !required:
	case len(v) > 0 && !allowed:
		r.refuse(name, "no such header on this endpoint")
	case len(v) != 1:
		r.refuse(name, "the header once")
	case len(v[0]) > maxHeaderValueBytes:
		r.refuse(name, "at most 1024 bytes")
	default:
		return v[0], true
	}
	return "", false
}

func (r *headerReader) integer(name string, allowed, required bool, low, high int64) int64 {
	text, ok := r.one(name, allowed, required)
	if !ok {
		return 0
	}
	n, ok := decimal(text)
	if !ok || n < low || n > high {
		r.refuse(name, "a plain decimal integer from "+strconv.FormatInt(low, 10)+" to "+strconv.FormatInt(high, 10))
	}
	return n
}

// decimal reads ^(0|[1-9][0-9]{0,15})$: one number has one form.
func decimal(s string) (int64, bool) {
	if len(s) == 0 || len(s) > 16 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

package policy

import "strconv"

// Reason says why the guard let a request not through, one of a closed set. It
// is itself an error so that errors.Is(err, ReasonLiteral) matches.
type Reason string

// The reasons, in the order in which a request meets them. This package gives
// those of target, list and addresses; the guard gives the others.
const (
	ReasonMalformed          Reason = "malformed"            // the head is no head
	ReasonMethod             Reason = "method"               // a method other than CONNECT
	ReasonBody               Reason = "body"                 // a CONNECT that announces a body
	ReasonHostHeaderMismatch Reason = "host_header_mismatch" // the Host header names another target
	ReasonHostSyntax         Reason = "host_syntax"          // the host is no name in its one spelling
	ReasonLiteral            Reason = "literal"              // the host is an address, however spelled
	ReasonPortSyntax         Reason = "port_syntax"          // no port, or one that is not 1 to 65535 in plain decimal
	ReasonNotAllowlisted     Reason = "not_allowlisted"      // the host is not listed
	ReasonPortNotAllowlisted Reason = "port_not_allowlisted" // the host is listed, with other ports
	ReasonResolveFailed      Reason = "resolve_failed"       // no usable answer
	ReasonAnswerNotPublic    Reason = "answer_not_public"    // one address of the answer is not public, or there are too many
	ReasonAnswerNotPinned    Reason = "answer_not_pinned"    // one address of the answer lies outside the pin of its host
	ReasonInfraAddress       Reason = "infra_address"        // one address of the answer is our own machinery's
	ReasonConnectNotPublic   Reason = "connect_not_public"   // the address dialled or connected is not the one that was judged
	ReasonUpstreamFailed     Reason = "upstream_failed"      // no address could be connected
	ReasonSNIMismatch        Reason = "sni_mismatch"         // the ClientHello names another host
	ReasonSNIMissing         Reason = "sni_missing"          // the ClientHello names none, or there is none
	ReasonECH                Reason = "ech"                  // the ClientHello hides a name
	ReasonLimit              Reason = "limit"                // a bound of the guard is reached
	ReasonExpired            Reason = "expired"              // the lease is over
)

// Reasons lists the closed set.
func Reasons() []Reason {
	return []Reason{
		ReasonMalformed, ReasonMethod, ReasonBody, ReasonHostHeaderMismatch,
		ReasonHostSyntax, ReasonLiteral, ReasonPortSyntax, ReasonNotAllowlisted,
		ReasonPortNotAllowlisted, ReasonResolveFailed, ReasonAnswerNotPublic,
		ReasonAnswerNotPinned, ReasonInfraAddress, ReasonConnectNotPublic, ReasonUpstreamFailed,
		ReasonSNIMismatch, ReasonSNIMissing, ReasonECH, ReasonLimit, ReasonExpired,
	}
}

// Error returns the reason as text.
func (r Reason) Error() string { return string(r) }

// The two statuses of HTTP that this package answers with.
const (
	StatusSyntax = 400 // the request is not in the one form
	StatusPolicy = 403 // it is, and the rule says no
)

// Refusal is why one request was refused. It is for the log: Expected and Got
// never go to the workload, to which Status alone is said.
type Refusal struct {
	Reason   Reason
	Status   int    // of the answer; what the guard itself refuses may have others, 0 is none
	Field    string // "host", "port", "answers" or "address"
	Expected string
	Got      string // at most 200 bytes of it, raw
}

// Error is "reason: field: expected …, got …".
func (r *Refusal) Error() string {
	text := string(r.Reason)
	if r.Field != "" {
		text += ": " + r.Field
	}
	if r.Expected != "" {
		text += ": expected " + r.Expected + ", got " + strconv.Quote(r.Got)
	}
	return text
}

// Unwrap gives the reason to errors.Is.
func (r *Refusal) Unwrap() error { return r.Reason }

func refuse(reason Reason, status int, field, expected, got string) *Refusal {
	const most = 200 // a hostile target makes no hostile log line
	if len(got) > most {
		got = got[:most]
	}
	return &Refusal{Reason: reason, Status: status, Field: field, Expected: expected, Got: got}
}

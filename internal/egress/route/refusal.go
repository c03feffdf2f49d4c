package route

import "encoding/json"

// Reason is why a request was not served, one of a closed set.
type Reason string

// The reasons.
const (
	ReasonMalformed Reason = "malformed"        // no HTTP/1.1 request of ours
	ReasonMethod    Reason = "method"           //
	ReasonPath      Reason = "path"             //
	ReasonHost      Reason = "host"             // the relay has another name
	ReasonHeaders   Reason = "headers"          // too many, twice, or one that is not carried out
	ReasonBody      Reason = "body"             // no JSON of the API, or framed badly
	ReasonTooLarge  Reason = "too_large"        //
	ReasonToken     Reason = "token"            // none, or not this run's
	ReasonLease     Reason = "lease"            // stale or unknown
	ReasonExpired   Reason = "expired"          // the lease is over
	ReasonModel     Reason = "model"            // not one of the lease's
	ReasonCeiling   Reason = "ceiling"          // the lease's amount is used up
	ReasonLimit     Reason = "limit"            // too much at once
	ReasonTimeout   Reason = "timeout"          // the workload is too slow
	ReasonGateway   Reason = "gateway_failed"   // the relay has no answer of it
	ReasonUpstream  Reason = "upstream_failed"  // the gateway has no answer of it
	ReasonLate      Reason = "upstream_timeout" //
	ReasonKey       Reason = "upstream_key"     // it refuses the gateway's key
	ReasonNoRoute   Reason = "no_upstream"      // none is configured for this style
)

// Refusal is a request that is not served. Nothing in it is the request's.
type Refusal struct {
	Status  int
	Reason  Reason
	Message string
}

// Error is one line.
func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Message }

// types are the words that both APIs have for a status.
var types = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
	404: "not_found_error", 405: "invalid_request_error", 411: "invalid_request_error",
	413: "request_too_large", 415: "invalid_request_error", 429: "rate_limit_error",
	503: "overloaded_error", 504: "timeout_error",
}

// Body is the refusal as JSON. One body has the form of both APIs: the SDKs of
// Anthropic read type, error.type and error.message, those of OpenAI
// error.message, error.type, error.param and error.code.
func (r *Refusal) Body() []byte {
	type inner struct {
		Type    string  `json:"type"`
		Message string  `json:"message"`
		Param   *string `json:"param"`
		Code    Reason  `json:"code"`
	}
	kind := types[r.Status]
	if kind == "" {
		kind = "api_error"
	}
	data, err := json.Marshal(struct {
		Type  string `json:"type"`
		Error inner  `json:"error"`
	}{"error", inner{kind, "checkfu: " + r.Message, nil, r.Reason}})
	if err != nil { // strings only
		return []byte(`{"type":"error","error":{"type":"api_error","message":"checkfu"}}`)
	}
	return data
}

// Retry says what the header x-should-retry tells an SDK: whether the same
// request may do better later. Only a full house and a failure beyond it pass.
func (r *Refusal) Retry() bool {
	switch r.Reason {
	case ReasonLimit, ReasonGateway, ReasonUpstream, ReasonLate:
		return true
	}
	return false
}

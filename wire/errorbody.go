package wire

import (
	"errors"

	"github.com/checkfu/checkfu/sandbox"
)

// An error body is {"error": {"_tag", "operation", fields of the tag,
// "message"?}}. It is told by its body alone: a status is only a hint for the
// intermediaries, which answer with statuses of their own.
// Source: contract "Errors"; docs/divergences.md, row 26.

// EncodeError gives the body of failure, which is or wraps a *sandbox.Error or a
// *Error, and the HTTP status that goes with it. A *FrameError is a
// TagMalformed about the body. Local causes do not travel.
// Errors: any other failure, a kind that a provider may not author, a text over
// 4,096 bytes; the caller then has a defect to report.
func EncodeError(failure error) (body []byte, status int, err error) {
	var fields errorFields
	switch e := (*Error)(nil); {
	case errors.As(failure, &e):
		fields = wireFields(e)
	default:
		a := (*sandbox.Error)(nil)
		frame := (*FrameError)(nil)
		switch {
		case errors.As(failure, &a):
			fields = adapterFields(a)
		case errors.As(failure, &frame):
			fields = wireFields(&Error{Tag: TagMalformed, Pointer: "body", Message: frame.Error()})
		default:
			return nil, 0, errors.New("neither an adapter error nor a wire error")
		}
	}
	body, err = Encode(errorBody{fields})
	if err != nil {
		return nil, 0, err
	}
	if len(body) > MaxErrorBytes {
		return nil, 0, tooLarge(MaxErrorBytes)
	}
	return body, rules[fields.Tag].status, nil
}

// DecodeError reads an error body. The failure is a *sandbox.Error or a *Error.
// Remote text of an adapter's message becomes its local cause.
// Errors: *Error with TagMalformed where data is no error body: an unknown tag
// (the three that only a Runner may author among them), a field of another tag,
// one that is missing.
func DecodeError(data []byte) (failure, err error) {
	if len(data) > MaxErrorBytes {
		return nil, tooLarge(MaxErrorBytes)
	}
	body, err := Decode[errorBody](data)
	if err != nil {
		return nil, err
	}
	return body.Error.failure(), nil
}

// Status is the HTTP status that goes with failure; 500 where it is neither of
// the two kinds.
func Status(failure error) int {
	if e := (*Error)(nil); errors.As(failure, &e) {
		if r, ok := rules[string(e.Tag)]; ok {
			return r.status
		}
	} else if a := (*sandbox.Error)(nil); errors.As(failure, &a) {
		if r, ok := rules[string(a.Kind)]; ok {
			return r.status
		}
	} else if f := (*FrameError)(nil); errors.As(failure, &f) {
		return 400
	}
	return 500
}

// ErrorShape says what an error body with this tag holds beside _tag, operation
// and an optional message: the fields that it must and those that it may have,
// in JSON names, and its status. ok is false for an unknown tag.
func ErrorShape(tag string) (status int, must, may []string, ok bool) {
	r, ok := rules[tag]
	add := func(bit fieldSet, key string) {
		switch {
		case r.must&bit != 0:
			must = append(must, key)
		case r.may&bit != 0:
			may = append(may, key)
		}
	}
	var f errorFields
	for _, t := range f.text() {
		add(t.bit, t.key)
	}
	for _, n := range f.numbers() {
		add(n.bit, n.key)
	}
	add(hasSupported, "supported")
	return r.status, must, may, ok
}

type errorBody struct {
	Error errorFields `json:"error"`
}

// errorFields is the union of all tags. A nil pointer is an absent field.
type errorFields struct {
	Tag          string    `json:"_tag"`
	Operation    string    `json:"operation"`
	Requirement  *string   `json:"requirement,omitzero"`
	Expected     *string   `json:"expected,omitzero"`
	Actual       *string   `json:"actual,omitzero"`
	Reason       *string   `json:"reason,omitzero"`
	Path         *string   `json:"path,omitzero"`
	InstanceID   *string   `json:"instance_id,omitzero"`
	SnapshotID   *string   `json:"snapshot_id,omitzero"`
	Stream       *string   `json:"stream,omitzero"`
	LimitBytes   *int64    `json:"limit_bytes,omitzero"`
	MaximumBytes *int64    `json:"maximum_bytes,omitzero"`
	Pointer      *string   `json:"pointer,omitzero"`
	Supported    *[]string `json:"supported,omitzero"`
	LeaseEpoch   *int64    `json:"lease_epoch,omitzero"`
	InputOffset  *int64    `json:"input_offset,omitzero"`
	InputCredit  *int64    `json:"input_credit,omitzero"`
	Cause        *string   `json:"cause,omitzero"`
	LowWater     *int64    `json:"low_water,omitzero"`
	End          *int64    `json:"end,omitzero"`
	RetryAfterMS *int64    `json:"retry_after_ms,omitzero"`
	Message      *string   `json:"message,omitzero"`
}

type fieldSet uint32

const (
	hasRequirement fieldSet = 1 << iota
	hasExpected
	hasActual
	hasReason
	hasPath
	hasInstance
	hasSnapshot
	hasStream
	hasLimit
	hasMaximum
	hasPointer
	hasSupported
	hasEpoch
	hasOffset
	hasCredit
	hasCause
	hasLowWater
	hasEnd
	hasRetry
)

// rule is what one tag carries: every field of must, any of may.
type rule struct {
	status    int
	must, may fieldSet
}

var rules = map[string]rule{
	string(sandbox.CapabilityUnavailable): {422, hasRequirement, hasExpected | hasActual},
	string(sandbox.FileTooLarge):          {413, hasPath | hasMaximum, 0},
	string(sandbox.InstanceNotFound):      {404, hasInstance, 0},
	string(sandbox.SnapshotNotFound):      {404, hasSnapshot, 0},
	string(sandbox.LifecycleConflict):     {409, hasExpected | hasActual, 0},
	string(sandbox.OperationFailed):       {500, hasReason, hasPath},
	string(sandbox.OutputLimitExceeded):   {422, hasStream | hasLimit, 0},
	string(sandbox.SnapshotForbidden):     {403, 0, hasInstance},
	string(TagUnauthenticated):            {401, 0, 0},
	string(TagForbidden):                  {403, 0, 0},
	string(TagMalformed):                  {400, hasPointer, 0},
	string(TagUnsupported):                {400, hasSupported, 0},
	string(TagMemberUnknown):              {404, 0, 0},
	string(TagOperationUnknown):           {404, 0, 0},
	string(TagProcessNotFound):            {404, 0, 0},
	string(TagPayloadTooLarge):            {413, hasMaximum, 0},
	string(TagLeaseFenced):                {409, hasEpoch, 0},
	string(TagOperationMismatch):          {422, 0, 0},
	string(TagOperationRolledBack):        {409, 0, 0},
	string(TagInputBufferFull):            {429, hasOffset | hasCredit, 0},
	string(TagInputGap):                   {409, hasOffset | hasCredit, 0},
	string(TagInputClosed):                {409, hasOffset | hasCredit | hasCause, 0},
	string(TagOutputTruncated):            {410, hasLowWater, 0},
	string(TagCursorAhead):                {409, hasEnd, 0},
	string(TagOverloaded):                 {503, hasRetry, 0},
}

// text and number list the fields, so that checks are written once.
func (f *errorFields) text() []struct {
	bit   fieldSet
	key   string
	value **string
} {
	return []struct {
		bit   fieldSet
		key   string
		value **string
	}{
		{hasRequirement, "requirement", &f.Requirement}, {hasExpected, "expected", &f.Expected},
		{hasActual, "actual", &f.Actual}, {hasReason, "reason", &f.Reason}, {hasPath, "path", &f.Path},
		{hasInstance, "instance_id", &f.InstanceID}, {hasSnapshot, "snapshot_id", &f.SnapshotID},
		{hasStream, "stream", &f.Stream}, {hasPointer, "pointer", &f.Pointer}, {hasCause, "cause", &f.Cause},
	}
}

func (f *errorFields) numbers() []struct {
	bit   fieldSet
	key   string
	value **int64
} {
	return []struct {
		bit   fieldSet
		key   string
		value **int64
	}{
		{hasLimit, "limit_bytes", &f.LimitBytes}, {hasMaximum, "maximum_bytes", &f.MaximumBytes},
		{hasEpoch, "lease_epoch", &f.LeaseEpoch}, {hasOffset, "input_offset", &f.InputOffset},
		{hasCredit, "input_credit", &f.InputCredit}, {hasLowWater, "low_water", &f.LowWater},
		{hasEnd, "end", &f.End}, {hasRetry, "retry_after_ms", &f.RetryAfterMS},
	}
}

func (b errorBody) form() error { return within("error", b.Error.form()) }

func (f errorFields) form() error {
	r, known := rules[f.Tag]
	if !known {
		return refuse("_tag", "one of the eight adapter errors or the seventeen of the wire")
	}
	if len(f.Operation) > MaxErrorTextBytes {
		return refuse("operation", "at most 4096 bytes")
	}
	if f.Message != nil && len(*f.Message) > MaxMessageBytes {
		return refuse("message", "at most 1024 bytes")
	}
	belongs := func(bit fieldSet, key string, present bool) error {
		switch {
		case present && (r.must|r.may)&bit == 0:
			return refuse(key, "no such field of "+f.Tag)
		case !present && r.must&bit != 0:
			return refuse(key, "present in "+f.Tag)
		}
		return nil
	}
	for _, t := range f.text() {
		if err := belongs(t.bit, t.key, *t.value != nil); err != nil {
			return err
		}
		if *t.value != nil && len(**t.value) > MaxErrorTextBytes {
			return refuse(t.key, "at most 4096 bytes")
		}
	}
	for _, n := range f.numbers() {
		if err := belongs(n.bit, n.key, *n.value != nil); err != nil {
			return err
		}
		if *n.value != nil && **n.value < 0 {
			return refuse(n.key, "an integer of at least 0")
		}
	}
	if err := belongs(hasSupported, "supported", f.Supported != nil); err != nil {
		return err
	}
	return f.closed()
}

// closed checks the values that the wire itself closes.
func (f errorFields) closed() error {
	if f.Supported != nil {
		if len(*f.Supported) > maxSupportedRevisions {
			return refuse("supported", "at most 16 revisions")
		}
		for i, s := range *f.Supported {
			if len(s) > maxSupportedTextLength {
				return refuse(at("supported", i), "at most 128 bytes")
			}
		}
	}
	if f.Cause != nil && *f.Cause != CauseEnded && *f.Cause != CauseGuestClosed && *f.Cause != CauseExited {
		return refuse("cause", "ended, guest_closed or exited")
	}
	if f.RetryAfterMS != nil && *f.RetryAfterMS > MaxRetryAfterMS {
		return refuse("retry_after_ms", "at most 60000")
	}
	if f.InputCredit != nil && *f.InputCredit > MaxInputBufferBytes {
		return refuse("input_credit", "at most 4194304")
	}
	return nil
}

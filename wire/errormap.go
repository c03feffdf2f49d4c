package wire

import (
	"errors"

	"github.com/checkfu/checkfu/sandbox"
)

// set keeps of the given values only those that the tag carries.
func (f *errorFields) set(bits fieldSet, text map[fieldSet]string, numbers map[fieldSet]int64) {
	for _, t := range f.text() {
		if v, ok := text[t.bit]; ok && bits&t.bit != 0 {
			*t.value = &v
		}
	}
	for _, n := range f.numbers() {
		if v, ok := numbers[n.bit]; ok && bits&n.bit != 0 {
			*n.value = &v
		}
	}
}

func adapterFields(e *sandbox.Error) errorFields {
	f := errorFields{Tag: string(e.Kind), Operation: string(e.Operation)}
	r := rules[f.Tag]
	bits := r.must
	// What a tag may carry travels where it says something.
	for bit, said := range map[fieldSet]bool{hasExpected: e.Expected != "", hasActual: e.Actual != "", hasPath: e.Path != "", hasInstance: e.ID != ""} {
		if said {
			bits |= r.may & bit
		}
	}
	f.set(bits, map[fieldSet]string{
		hasRequirement: string(e.Requirement), hasExpected: e.Expected, hasActual: e.Actual, hasReason: e.Reason,
		hasPath: e.Path, hasInstance: e.ID, hasSnapshot: e.ID, hasStream: string(e.Stream),
	}, map[fieldSet]int64{hasLimit: e.Limit, hasMaximum: e.Limit})
	return f
}

func wireFields(e *Error) errorFields {
	f := errorFields{Tag: string(e.Tag), Operation: e.Operation}
	bits := rules[f.Tag].must
	f.set(bits, map[fieldSet]string{hasPointer: e.Pointer, hasCause: e.Cause}, map[fieldSet]int64{
		hasMaximum: e.MaximumBytes, hasEpoch: e.LeaseEpoch, hasOffset: e.InputOffset, hasCredit: e.InputCredit,
		hasLowWater: e.LowWater, hasEnd: e.End, hasRetry: e.RetryAfterMS,
	})
	if bits&hasSupported != 0 {
		supported := append([]string{}, e.Supported...)
		f.Supported = &supported
	}
	if e.Message != "" {
		message := cut(e.Message, MaxMessageBytes)
		f.Message = &message
	}
	return f
}

// failure is the error that a valid body stands for.
func (f errorFields) failure() error {
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	number := func(p *int64) int64 {
		if p == nil {
			return 0
		}
		return *p
	}
	message := text(f.Message)
	for _, kind := range sandbox.Kinds() {
		if string(kind) != f.Tag {
			continue
		}
		e := &sandbox.Error{
			Kind: kind, Operation: sandbox.Operation(f.Operation), Requirement: sandbox.Requirement(text(f.Requirement)),
			Expected: text(f.Expected), Actual: text(f.Actual), Reason: text(f.Reason), Path: text(f.Path),
			ID: text(f.InstanceID) + text(f.SnapshotID), Stream: sandbox.Stream(text(f.Stream)),
			Limit: number(f.LimitBytes) + number(f.MaximumBytes),
		}
		if message != "" {
			e.Err = errors.New(message)
		}
		return e
	}
	e := &Error{
		Tag: Tag(f.Tag), Operation: f.Operation, Pointer: text(f.Pointer), MaximumBytes: number(f.MaximumBytes),
		LeaseEpoch: number(f.LeaseEpoch), InputOffset: number(f.InputOffset), InputCredit: number(f.InputCredit),
		Cause: text(f.Cause), LowWater: number(f.LowWater), End: number(f.End), RetryAfterMS: number(f.RetryAfterMS),
		Message: message,
	}
	if f.Supported != nil {
		e.Supported = *f.Supported
	}
	return e
}

package report

import (
	"bytes"
	"errors"

	"github.com/checkfu/checkfu/internal/canonical"
)

// The names of the files of a run.
const (
	EvidenceFile   = "evidence.json"
	TranscriptFile = "transcript.ndjson"
	JUnitFile      = "junit.xml"
	MarkdownFile   = "report.md"
)

// Encode gives the canonical JSON of evidence.json. Every text of it is
// Printable, every list is there, its content has its digest beside it, and
// Decode accepts it.
// Ownership: r is not changed.
// Errors: *InvalidError for a report that contradicts itself; that is a defect
// of whoever filled it in.
// Source: RFC 8785; contract "Conformance".
func Encode(r Report) ([]byte, error) {
	body, err := content(r)
	if err != nil {
		return nil, err
	}
	r = clean(r)
	r.ContentDigest = canonical.Digest(body)
	data, err := canonical.Encode(r)
	if err != nil {
		return nil, inEvidence(err)
	}
	return data, nil
}

// content is what the digest of the content is of.
func content(r Report) ([]byte, error) {
	r = clean(r)
	r.ContentDigest = ""
	if err := r.validate(); err != nil {
		return nil, inEvidence(err)
	}
	data, err := canonical.Encode(r)
	if err != nil {
		return nil, inEvidence(err)
	}
	return data, nil
}

// Decode reads what Encode wrote and nothing else, byte for byte: evidence that
// can be spelt in two ways has two digests.
// Bounds: linear in len(data), which the caller bounds.
// Errors: *InvalidError with the first field that is wrong.
func Decode(data []byte) (Report, error) {
	var r Report
	if err := canonical.Decode(data, &r); err != nil {
		return Report{}, inEvidence(err)
	}
	body, err := content(r)
	if err != nil {
		return Report{}, err
	}
	if digest := canonical.Digest(body); r.ContentDigest != digest {
		return Report{}, &InvalidError{File: EvidenceFile, Field: "content_sha256", Expected: digest, Got: Printable(r.ContentDigest)}
	}
	r.ContentDigest = ""
	again, err := Encode(r)
	if err != nil {
		return Report{}, err
	}
	if !bytes.Equal(again, data) {
		return Report{}, &InvalidError{File: EvidenceFile, Expected: "canonical JSON of printable text", Got: "another spelling of it"}
	}
	return r, nil
}

// inEvidence gives an error the file's name.
func inEvidence(err error) error {
	if e, ok := errors.AsType[*InvalidError](err); ok {
		e.File = EvidenceFile
		return e
	}
	return undecodable(EvidenceFile, 0, err)
}

// undecodable is what canonical refused.
func undecodable(file string, line int64, err error) *InvalidError {
	out := &InvalidError{File: file, Line: line, Expected: "canonical JSON", Got: Printable(err.Error())}
	if e, ok := errors.AsType[*canonical.Error](err); ok {
		out.Field, out.Got = Printable(e.Path), string(e.Reason)
		if e.Got != "" {
			out.Got += " " + e.Got
		}
		if e.Expected != "" {
			out.Expected = e.Expected
		}
	}
	return out
}

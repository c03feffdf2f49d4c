package authorkit

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// Scenario is one golden vector: one file. Which fields it has depends on its
// kind; wire/vectors/README.md says what each of them means.
type Scenario struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Says string `json:"says"`

	Schema    string          `json:"schema,omitempty"`
	Endpoint  string          `json:"endpoint,omitempty"`
	Text      string          `json:"text,omitempty"` // the bytes as text, where they are UTF-8
	Hex       string          `json:"hex,omitempty"`
	Digest    sandbox.Digest  `json:"digest,omitempty"`
	Decoded   json.RawMessage `json:"decoded,omitempty"`
	Canonical string          `json:"canonical,omitempty"` // hex

	// message: the strings of which the escaped and the raw form differ.
	Escapes []Escape `json:"escapes,omitempty"`

	// error
	Tag       string          `json:"tag,omitempty"`
	Status    int             `json:"status,omitempty"`
	Must      []string        `json:"must,omitempty"`
	May       []string        `json:"may,omitempty"`
	Adapter   json.RawMessage `json:"adapter,omitempty"`
	Retryable *bool           `json:"retryable,omitempty"`
	Violation *bool           `json:"violation,omitempty"`

	// refused
	Pointer     *string `json:"pointer,omitempty"`
	Reason      string  `json:"reason,omitempty"`
	Expressible *bool   `json:"schema_refuses,omitempty"`

	// frames and streams
	Frames  []FrameOf `json:"frames,omitempty"`
	Cursor  *int64    `json:"cursor,omitempty"`
	Outcome *Outcome  `json:"outcome,omitempty"`

	// exchange
	Request  *Half `json:"request,omitempty"`
	Response *Half `json:"response,omitempty"`

	// crosscheck
	Holds   json.RawMessage `json:"holds,omitempty"`
	Refusal *Refusal        `json:"refusal,omitempty"`

	// disposition
	Given  *Given `json:"given,omitempty"`
	Action string `json:"action,omitempty"`

	// header
	Headers [][2]string `json:"headers,omitempty"`
	Accept  *bool       `json:"accept,omitempty"`
}

// Escape is one text in its two forms.
type Escape struct {
	Raw     string `json:"raw_hex"`
	Escaped string `json:"escaped_hex"`
}

// FrameOf is one frame, taken apart.
type FrameOf struct {
	Type    wire.Type       `json:"type"`
	Name    string          `json:"name"`
	Payload string          `json:"payload_hex"`
	Decoded json.RawMessage `json:"decoded,omitempty"`
	Offset  *int64          `json:"offset,omitempty"` // out and err
	Bytes   string          `json:"bytes_hex,omitempty"`
}

// Half is a request or a response.
type Half struct {
	Method  string          `json:"method,omitempty"`
	Path    string          `json:"path,omitempty"`
	Status  int             `json:"status,omitempty"`
	Headers [][2]string     `json:"headers"`
	Body    string          `json:"body_hex"`
	Digest  sandbox.Digest  `json:"digest"`
	Schema  string          `json:"schema,omitempty"`
	JSON    json.RawMessage `json:"json,omitempty"`
	Frames  []FrameOf       `json:"frames,omitempty"`
}

// Refusal is what a Runner says of an answer that does not agree.
type Refusal struct {
	Number   int    `json:"number"`
	Check    string `json:"check"`
	Field    string `json:"field"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// literal is canonical JSON as a part of a scenario.
func literal(data []byte) json.RawMessage { return json.RawMessage(data) }

func encode(m wire.Message) []byte {
	data, err := wire.Encode(m)
	if err != nil {
		panic("authorkit: " + err.Error())
	}
	return data
}

func ref[T any](v T) *T { return &v }

// plain is data as text where a reader of it sees what it is.
func plain(data []byte) string {
	if !utf8.Valid(data) || slices.ContainsFunc(data, func(c byte) bool { return c < 0x20 || c == 0x7f }) || strings.ContainsAny(string(data), "\u2028\u2029\ufeff") {
		return ""
	}
	return string(data)
}

// jsonText is a scenario whose bytes are a text of JSON.
func (s Scenario) jsonText(data []byte) Scenario {
	s.Text, s.Hex, s.Digest = plain(data), hex.EncodeToString(data), digest(data)
	return s
}

// takeApart reads frames until their end. It panics on broken ones.
func takeApart(data []byte, response bool) (frames []FrameOf) {
	r := wire.NewReader(strings.NewReader(string(data)))
	for {
		f, err := r.Next()
		if err != nil {
			return frames
		}
		one := FrameOf{Type: f.Type, Name: FrameName(f.Type, response), Payload: hex.EncodeToString(f.Payload)}
		switch f.Type {
		case wire.TypeData, wire.TypePing:
		case wire.TypeOut, wire.TypeErr:
			offset, bytes, err := f.Output()
			if err != nil {
				panic("authorkit: " + err.Error())
			}
			one.Offset, one.Bytes = &offset, hex.EncodeToString(bytes)
		default:
			if json.Valid(f.Payload) { // a call in pieces is not
				one.Decoded = slices.Clone(f.Payload)
			}
		}
		frames = append(frames, one)
	}
}

// Scenarios returns every golden vector.
func Scenarios() []Scenario {
	var all []Scenario
	for _, kind := range [][]Scenario{
		messages(), exchanges(), errorBodies(), frameScenarios(), identities(), snapshots(), clones(), evidences(),
		refusedMessages(), refusedRequests(), refusedFrames(), escapes(), canonicals(), timestamps(), headerScenarios(), dispositions(), streams(),
	} {
		all = append(all, kind...)
	}
	return all
}

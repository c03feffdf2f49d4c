package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
)

// told is what an answer said of its usage so far.
type told struct {
	input, cached, output int64
	begun                 bool // the input was told
	whole                 bool // the usage of the whole answer was told
}

// mostTokens bounds what one answer may claim, so that no sum overflows.
const mostTokens = 1 << 40

// take takes over one usage object of either API; first says that it is the one
// of an Anthropic stream's beginning. Numbers are running totals, and some
// are told again later, so of each the largest counts.
func (t *told) take(text []byte, first bool) {
	var wire struct {
		Input        *int64 `json:"input_tokens"`
		Prompt       *int64 `json:"prompt_tokens"`
		Output       *int64 `json:"output_tokens"`
		Completion   *int64 `json:"completion_tokens"`
		Written      *int64 `json:"cache_creation_input_tokens"`
		Read         *int64 `json:"cache_read_input_tokens"`
		InputDetails *struct {
			Cached *int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		PromptDetails *struct {
			Cached *int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	// A member of another type is no number, and the others still count.
	if err := json.Unmarshal(text, &wire); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
			return
		}
	}
	number := func(all ...*int64) (sum int64) {
		for _, n := range all {
			if n != nil {
				sum += min(max(*n, 0), mostTokens)
			}
		}
		return sum
	}
	cached := number(wire.Read)
	for _, d := range []*struct {
		Cached *int64 `json:"cached_tokens"`
	}{wire.InputDetails, wire.PromptDetails} {
		if d != nil {
			cached += number(d.Cached)
		}
	}
	t.input = max(t.input, number(wire.Input, wire.Prompt, wire.Written, wire.Read))
	t.cached = max(t.cached, cached)
	t.output = max(t.output, number(wire.Output, wire.Completion))
	t.begun = t.begun || wire.Input != nil || wire.Prompt != nil
	t.whole = t.whole || !first && (wire.Output != nil || wire.Completion != nil)
}

// scanner finds the usage objects in JSON that comes in pieces, without keeping
// it: an answer may be as long as it likes. They stand at the top, or in the
// member message or response there. It judges no JSON; what is none has no usage.
type scanner struct {
	told *told

	depth    int
	object   [3]bool   // whether what lies open at depth 1 and 2 is an object
	key      [3]string // and its member there
	isKey    bool      // a string that begins now is a key
	inString bool
	inKey    bool
	escaped  bool
	text     []byte // of a key; of at most len("response")+1 bytes
	taking   int    // the depth at which the usage object lies that is being taken, or 0
	taken    []byte
}

// mostUsage bounds a usage object, in bytes.
const mostUsage = 8 << 10

func (s *scanner) reset() { *s = scanner{told: s.told, text: s.text[:0], taken: s.taken[:0]} }

// Write scans a piece. It never fails.
func (s *scanner) Write(p []byte) (int, error) {
	for i := 0; i < len(p); i++ {
		if s.inString && !s.inKey && !s.escaped && s.taking == 0 {
			// Most of an answer lies in strings that say nothing here.
			next := bytes.IndexAny(p[i:], `"\`)
			if next < 0 {
				break
			}
			i += next
		}
		s.next(p[i])
	}
	return len(p), nil
}

func (s *scanner) next(b byte) {
	if s.taking > 0 && len(s.taken) <= mostUsage {
		s.taken = append(s.taken, b)
	}
	if s.inString {
		switch {
		case s.escaped:
			s.escaped = false
		case b == '\\':
			s.escaped = true
		case b == '"':
			if s.inKey {
				s.key[s.depth] = string(s.text)
			}
			s.inString, s.inKey = false, false
			return
		}
		if s.inKey && len(s.text) <= len("response") {
			s.text = append(s.text, b)
		}
		return
	}
	switch b {
	case '"':
		s.inString = true
		s.inKey = s.isKey && s.depth >= 1 && s.depth <= 2 && s.object[s.depth]
		s.text = s.text[:0]
	case ':':
		s.isKey = false
	case ',':
		s.isKey = true
	case '{', '[':
		if b == '{' && s.taking == 0 && s.atUsage() {
			s.taking, s.taken = s.depth+1, append(s.taken[:0], b)
		}
		s.depth++
		s.isKey = b == '{'
		if s.depth <= 2 {
			s.object[s.depth], s.key[s.depth] = b == '{', ""
		}
	case '}', ']':
		if s.taking > 0 && s.taking == s.depth {
			if len(s.taken) <= mostUsage {
				s.told.take(s.taken, s.depth == 3 && s.key[1] == "message")
			}
			s.taking = 0
		}
		s.depth = max(s.depth-1, 0)
	}
}

// atUsage reports whether a value that begins now is one of the usage.
func (s *scanner) atUsage() bool {
	switch s.depth {
	case 1:
		return s.object[1] && s.key[1] == "usage"
	case 2:
		return s.object[1] && s.object[2] && s.key[2] == "usage" && (s.key[1] == "message" || s.key[1] == "response")
	}
	return false
}

// events scans the data of server-sent events that come in pieces.
type events struct {
	scan scanner
	n    int  // bytes of this line up to where it is known what it is
	data bool // the line is one of data, and past its name
	skip bool // the line is another one
	cr   bool // the byte before was a CR
	// between reports whether the last event is whole and no other has begun.
	between bool
}

const dataField = "data:"

// Write scans a piece. It never fails.
func (e *events) Write(p []byte) (int, error) {
	for i := 0; i < len(p); i++ {
		b := p[i]
		if b == '\n' && e.cr {
			e.cr = false
			continue
		}
		e.cr = b == '\r'
		switch {
		case b == '\n' || b == '\r':
			if e.n == 0 {
				e.scan.reset()
				e.between = true
			}
			e.n, e.data, e.skip = 0, false, false
		case e.data, e.skip:
			end := bytes.IndexAny(p[i:], "\r\n")
			if end < 0 {
				end = len(p) - i
			}
			if e.data {
				_, _ = e.scan.Write(p[i : i+end])
			}
			i += end - 1
		default:
			e.between = false
			e.skip = dataField[e.n] != b
			e.n++
			e.data = e.n == len(dataField) && !e.skip
		}
	}
	return len(p), nil
}

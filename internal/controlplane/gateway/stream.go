package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
)

// meter follows an answer and finds its usage.
type meter struct {
	told   told
	events *events // nil where the answer is plain JSON
	io.Writer
}

// newMeter reads an answer of this media type.
func newMeter(header http.Header) *meter {
	m := &meter{}
	if isEventStream(header) {
		m.events = &events{scan: scanner{told: &m.told}, between: true}
		m.Writer = m.events
	} else {
		m.Writer = &scanner{told: &m.told}
	}
	return m
}

func isEventStream(h http.Header) bool { return mediaType(h) == "text/event-stream" }

func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// stripper takes one event out of a stream of chat completions: the one with the
// usage, which the workload had not asked for and whose empty list of choices
// would surprise it.
type stripper struct {
	held    []byte // of an event that is not whole
	passing bool   // the event is too long to be it
}

// mostHeld bounds what is held back, in bytes.
const mostHeld = 16 << 10

// pass answers what of the stream may go on, now that p came. The answer is good
// until the next call.
func (s *stripper) pass(p []byte) (out []byte) {
	s.held = append(s.held, p...)
	for {
		end := eventEnd(s.held)
		if end < 0 {
			break
		}
		if s.passing || !usageOnly(s.held[:end]) {
			out = append(out, s.held[:end]...)
		}
		s.passing = false
		s.held = append(s.held[:0], s.held[end:]...)
	}
	if s.passing || len(s.held) > mostHeld {
		// The last bytes may be the first of the empty line that ends it.
		keep := min(len(s.held), 3)
		out = append(out, s.held[:len(s.held)-keep]...)
		s.held = append(s.held[:0], s.held[len(s.held)-keep:]...)
		s.passing = true
	}
	return out
}

// rest is what the stream ends with.
func (s *stripper) rest() []byte { return s.held }

// eventEnd is where the first event of text ends, or -1.
func eventEnd(text []byte) int {
	for at := 0; ; {
		i := bytes.IndexByte(text[at:], '\n')
		if i < 0 {
			return -1
		}
		at += i + 1
		switch rest := text[at:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return at + 1
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return at + 2
		}
	}
}

// usageOnly reports whether an event has usage and no choice.
func usageOnly(event []byte) bool {
	var data []byte
	for line := range bytes.Lines(event) {
		if rest, ok := bytes.CutPrefix(line, []byte(dataField)); ok {
			data = append(data, rest...)
		}
	}
	var chunk struct {
		Choices *[]json.RawMessage `json:"choices"`
		Usage   json.RawMessage    `json:"usage"`
	}
	return json.Unmarshal(data, &chunk) == nil && chunk.Choices != nil && len(*chunk.Choices) == 0 && bytes.HasPrefix(chunk.Usage, []byte("{"))
}

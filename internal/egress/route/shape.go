package route

import "strings"

// Style is whose form of a model API a request has, one of a closed set.
type Style string

// The styles.
const (
	Anthropic Style = "anthropic"
	OpenAI    Style = "openai"
)

// Shape is one request that may pass.
type Shape struct {
	Method string
	Path   string
	// Query is the one query that may follow the path, or "" for none. A closed
	// query keeps the request line from carrying anything out.
	Query string
	// Style is whose form it has; "" where both have this path, and StyleOf tells.
	Style Style
}

// String is the shape as logs and documents write it.
func (s Shape) String() string { return s.Method + " " + s.Path }

// shapes are all that SDKs need to converse, to count and to choose a model.
// None of them reads what an earlier request stored: the runs share a key.
var shapes = [...]Shape{
	{"POST", "/v1/messages", "beta=true", Anthropic},
	{"POST", "/v1/messages/count_tokens", "beta=true", Anthropic},
	{"POST", "/v1/chat/completions", "", OpenAI},
	{"POST", "/v1/responses", "", OpenAI},
	{"GET", "/v1/models", "", ""},
}

// Shapes are the five shapes; the caller owns the slice.
// Source: concept "Network posture", which counts and does not list them.
func Shapes() []Shape { return append([]Shape(nil), shapes[:]...) }

// Match finds the shape of a request line, byte for byte: nothing is decoded,
// folded or cleaned, so no second reading of the target exists.
// Errors: *Refusal, 404 for another target and 405 for another method.
func Match(method, target string) (Shape, error) {
	path, query, asked := strings.Cut(target, "?")
	for _, s := range shapes {
		if s.Path != path || asked && (s.Query == "" || s.Query != query) {
			continue
		}
		if s.Method != method {
			return Shape{}, &Refusal{405, ReasonMethod, "expected " + s.Method + " for " + s.Path}
		}
		return s, nil
	}
	if method != "GET" && method != "POST" {
		return Shape{}, &Refusal{405, ReasonMethod, "expected GET or POST"}
	}
	return Shape{}, &Refusal{404, ReasonPath, "expected one of the five paths of the model route"}
}

// StyleOf is the style of a request with this shape, where versioned says
// whether it has the header anthropic-version.
func (s Shape) StyleOf(versioned bool) Style {
	switch {
	case s.Style != "":
		return s.Style
	case versioned:
		return Anthropic
	}
	return OpenAI
}

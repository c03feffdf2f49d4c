package route

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for line, status := range map[string]int{
		"POST /v1/messages":                          0,
		"POST /v1/messages?beta=true":                0,
		"POST /v1/messages/count_tokens":             0,
		"POST /v1/messages/count_tokens?beta=true":   0,
		"POST /v1/chat/completions":                  0,
		"POST /v1/responses":                         0,
		"GET /v1/models":                             0,
		"GET /v1/messages":                           405,
		"post /v1/messages":                          405,
		"POST /v1/models":                            405,
		"CONNECT allowed.test:443":                   405,
		"CONNECT /v1/messages":                       405,
		"OPTIONS *":                                  405,
		"TRACE /v1/models":                           405,
		"GET /":                                      404,
		"POST /v1/messages?":                         404,
		"POST /v1/messages?beta=true&x=1":            404,
		"POST /v1/messages?beta=false":               404,
		"GET /v1/models?limit=1":                     404,
		"GET /v1/models/claude":                      404,
		"POST /v1/messages/":                         404,
		"POST //v1/messages":                         404,
		"POST /v1/./messages":                        404,
		"POST /v1/x/../messages":                     404,
		"POST /v1/%6dessages":                        404,
		"POST /V1/messages":                          404,
		"POST /v1/messages#x":                        404,
		"POST /v1/messages;x":                        404,
		"POST http://127.0.0.1/v1/messages":          404,
		"POST https://api.anthropic.com/v1/messages": 404,
		"GET /v1/responses/resp_1":                   404,
		"POST /v1/files":                             404,
	} {
		method, target, _ := strings.Cut(line, " ")
		_, err := Match(method, target)
		var refusal *Refusal
		switch {
		case status == 0 && err != nil, status != 0 && (!errors.As(err, &refusal) || refusal.Status != status):
			t.Errorf("%s: %v", line, err)
		}
	}
	if len(Shapes()) != 5 {
		t.Errorf("%d shapes: the documents say five", len(Shapes()))
	}
}

// What matches is a plain path for any reader of URLs, and so the same one.
func FuzzMatch(f *testing.F) {
	for _, s := range Shapes() {
		f.Add(s.Method, s.Path)
		f.Add(s.Method, s.Path+"?"+s.Query)
	}
	f.Add("CONNECT", "a:443")
	f.Add("POST", "/v1/messages?beta=true#")
	f.Fuzz(func(t *testing.T, method, target string) {
		s, err := Match(method, target)
		if err != nil {
			if refusal := new(Refusal); !errors.As(err, &refusal) || refusal.Status != 404 && refusal.Status != 405 {
				t.Fatal(err)
			}
			return
		}
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" || u.Path != s.Path || u.RawQuery != "" && u.RawQuery != s.Query || method != s.Method {
			t.Fatalf("%q %q is %v: %v", method, target, s, u)
		}
	})
}

func TestCredential(t *testing.T) {
	token, other := NewToken(), NewToken()
	type headers map[string][]string
	for what, c := range map[string]struct {
		h    headers
		good bool
	}{
		"bearer":          {headers{Authorization: {"Bearer " + token}}, true},
		"another case":    {headers{Authorization: {"bearer " + token}}, true},
		"key":             {headers{APIKey: {token}}, true},
		"both":            {headers{APIKey: {token}, Authorization: {"Bearer " + token}}, true},
		"none":            {headers{}, false},
		"empty":           {headers{APIKey: {""}}, false},
		"basic":           {headers{Authorization: {"Basic " + token}}, false},
		"two":             {headers{APIKey: {token}, Authorization: {"Bearer " + other}}, false},
		"twice":           {headers{APIKey: {token, other}}, false},
		"a provider's":    {headers{APIKey: {"sk-ant-api03-" + strings.Repeat("x", 38)}}, false},
		"short":           {headers{APIKey: {token[:len(token)-1]}}, false},
		"long":            {headers{APIKey: {token + "A"}}, false},
		"spaces":          {headers{Authorization: {"Bearer  " + token}}, false},
		"a list of them":  {headers{APIKey: {token + ", " + token}}, false},
		"prefix only":     {headers{APIKey: {TokenPrefix}}, false},
		"bearer and junk": {headers{APIKey: {token}, Authorization: {"Bearer x"}}, false},
	} {
		got, err := Credential(func(name string) []string { return c.h[name] })
		if c.good && (err != nil || got != token) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if refusal := new(Refusal); !c.good && (!errors.As(err, &refusal) || refusal.Status != 401 || got != "") {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if token == other || TokenDigest(token) == TokenDigest(other) || !SameDigest(TokenDigest(token), TokenDigest(token)) {
		t.Error("tokens are not told apart")
	}
}

func TestBody(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 413, 429, 502, 503, 504} {
		r := &Refusal{status, ReasonCeiling, `a "message"`}
		var body struct {
			Type  string
			Error struct{ Type, Message, Code string }
		}
		if err := json.Unmarshal(r.Body(), &body); err != nil || body.Type != "error" || body.Error.Type == "" ||
			body.Error.Message != `checkfu: a "message"` || body.Error.Code != "ceiling" {
			t.Errorf("%d: %s, %v", status, r.Body(), err)
		}
	}
}

func TestHeaders(t *testing.T) {
	for name, want := range map[string][2]bool{
		"accept": {true, false}, "content-type": {true, true}, "x-api-key": {true, false},
		"cookie": {}, "set-cookie": {}, "location": {}, "upgrade": {}, "connection": {}, "expect": {},
		"x-forwarded-for": {}, "host": {}, "content-length": {}, "transfer-encoding": {},
		"content-encoding": {}, "accept-encoding": {}, "openai-organization": {}, "idempotency-key": {},
		"retry-after": {false, true}, "anthropic-ratelimit-requests-limit": {}, "openai-organization-id": {},
	} {
		if got := [2]bool{RequestHeader(name), ResponseHeader(name)}; got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for value, want := range map[string]bool{"a b~": true, "a\tb": false, "a\nb": false, "é": false, strings.Repeat("x", MaxHeaderValue+1): false} {
		if HeaderValue(value) != want {
			t.Errorf("%.20q", value)
		}
	}
}

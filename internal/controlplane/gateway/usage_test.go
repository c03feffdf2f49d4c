package gateway

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// reference finds the usage in whole JSON with the standard library.
func reference(text []byte) (t told) {
	var top map[string]json.RawMessage
	if json.Unmarshal(text, &top) != nil {
		return t
	}
	take := func(raw json.RawMessage, first bool) {
		if strings.HasPrefix(string(raw), "{") && len(raw) <= mostUsage {
			t.take(raw, first)
		}
	}
	take(top["usage"], false)
	for _, name := range []string{"message", "response"} {
		var inner map[string]json.RawMessage
		if json.Unmarshal(top[name], &inner) == nil {
			take(inner["usage"], name == "message")
		}
	}
	return t
}

// plainKeys reports whether no object has a key twice or an escape in a key, and
// none but ours is a key that the library would read another way.
func plainKeys(text []byte) bool {
	d := json.NewDecoder(strings.NewReader(string(text)))
	var walk func() bool
	walk = func() bool {
		t, err := d.Token()
		if err != nil {
			return false
		}
		delim, ok := t.(json.Delim)
		if !ok {
			return true
		}
		seen := map[string]bool{}
		for d.More() {
			if delim == '{' {
				k, err := d.Token()
				key, ok := k.(string)
				if err != nil || !ok || seen[key] {
					return false
				}
				seen[key] = true
			}
			if !walk() {
				return false
			}
		}
		_, err = d.Token()
		return err == nil
	}
	return walk() && !strings.Contains(string(text), `\`)
}

// FuzzScanner holds the scanner, fed in two pieces, to the standard library.
func FuzzScanner(f *testing.F) {
	for _, e := range []string{anthropicStart, anthropicUsage, chatUsage, chatDelta, responseDone} {
		f.Add([]byte(e[strings.Index(e, dataField)+len(dataField):]), 30)
	}
	f.Add([]byte(`{"usage":{"input_tokens":1,"output_tokens":{"usage":{}}},"x":[{"usage":{"output_tokens":9}}]}`), 10)
	f.Add([]byte(`{"a":"\\","usage":{"output_tokens":-1,"input_tokens":99999999999999999999}}`), 5)
	f.Add([]byte(`[{"usage":{"output_tokens":9}}]`), 5)
	f.Add([]byte(`{"message":[{"usage":{"output_tokens":9}}]}`), 5)
	f.Add([]byte(`}}}{"usage":{"output_tokens":9}}`), 5)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		var got told
		s := &scanner{told: &got}
		at = min(max(at, 0), len(text))
		_, _ = s.Write(text[:at])
		_, _ = s.Write(text[at:])
		if len(s.taken) > mostUsage+1 || len(s.text) > len("response")+1 {
			t.Fatal("it keeps too much")
		}
		if got.input < 0 || got.output < 0 || got.cached < 0 || got.input > 4*mostTokens || got.output > 2*mostTokens {
			t.Fatalf("%+v", got)
		}
		if json.Valid(text) && plainKeys(text) {
			if want := reference(text); got != want {
				t.Fatalf("%q: %+v, want %+v", text, got, want)
			}
		}
	})
}

// FuzzEvents: where pieces end makes no difference.
func FuzzEvents(f *testing.F) {
	f.Add(anthropicStart+anthropicDelta+anthropicUsage+anthropicStop, 3)
	f.Add(strings.ReplaceAll(chatDelta+chatUsage+chatDone, "\n", "\r\n"), 7)
	f.Add(strings.ReplaceAll(responseDelta+responseDone, "\n", "\r"), 1)
	f.Add("data\ndata:\ndatax: {\n\ndata:{\"usage\":\ndata: {\"output_tokens\":5}}\n\n", 2)
	f.Fuzz(func(t *testing.T, text string, size int) {
		size = max(1, min(size, 100))
		var whole, pieces told
		e := &events{scan: scanner{told: &whole}, between: true}
		_, _ = e.Write([]byte(text))
		p := &events{scan: scanner{told: &pieces}, between: true}
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			_, _ = p.Write([]byte(rest[:min(size, len(rest))]))
		}
		if whole != pieces || e.between != p.between {
			t.Fatalf("%q: %+v, in pieces %+v", text, whole, pieces)
		}
	})
}

func TestEvents(t *testing.T) {
	for text, want := range map[string]told{
		anthropicStart: {input: 30, cached: 5, output: 1, begun: true},
		anthropicStart + anthropicDelta + anthropicUsage + anthropicStop: {30, 5, 15, true, true},
		strings.ReplaceAll(chatDelta+chatUsage+chatDone, "\n", "\r\n"):   {30, 5, 15, true, true},
		strings.ReplaceAll(responseDelta+responseDone, "\n", "\r"):       {30, 5, 15, true, true},
		"data:{\"usage\":\ndata: {\"output_tokens\":5}}\n\n":             {output: 5, whole: true},
		": {\"usage\":{\"output_tokens\":5}}\n\n":                        {},
		"event: {\"usage\":{\"output_tokens\":5}}\n\n":                   {},
		"data: {\"usage\":{\"output_tokens\":5\n\ndata: }}\n\n":          {},
		"data: {\"usage\":{\"output_tokens\":\"x\",\"input_tokens\":5}}": {input: 5, begun: true, whole: true},
	} {
		var got told
		e := &events{scan: scanner{told: &got}}
		_, _ = e.Write([]byte(text))
		if got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// FuzzInspect: what is changed in a body is stream_options and nothing else, and
// for the standard library it has the model that we judged.
func FuzzInspect(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream":true}`))
	f.Add([]byte(`{"model":"m","stream":true,"stream_options":{"x":1},"b":[1.50,"\u0000"]}`))
	f.Add([]byte(`{"stream":true,"stream_options":null}`))
	f.Add([]byte(`{"model":"a","Model":"b","stream":true}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		shape, err := route.Match("POST", "/v1/chat/completions")
		if err != nil {
			t.Fatal(err)
		}
		a, err := inspect(shape, body)
		if err != nil {
			if _, ok := errors.AsType[*route.Refusal](err); !ok {
				t.Fatal(err)
			}
			return
		}
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal(body, &before); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if err := json.Unmarshal(a.body, &after); err != nil {
			t.Fatalf("%q became %q: %v", body, a.body, err)
		}
		var model struct {
			Model  string
			Stream bool
		}
		if err := json.Unmarshal(a.body, &model); err != nil || model.Model != a.model {
			t.Fatalf("%q: %+v, %v", a.body, model, err)
		}
		var asks struct {
			IncludeUsage bool `json:"include_usage"`
		}
		if err := json.Unmarshal(after["stream_options"], &asks); model.Stream && (err != nil || !asks.IncludeUsage) {
			t.Fatalf("%q: %v", a.body, err)
		}
		delete(before, "stream_options")
		delete(after, "stream_options")
		if len(before) != len(after) {
			t.Fatalf("%q became %q", body, a.body)
		}
		for name, raw := range before {
			if string(after[name]) != string(raw) {
				t.Fatalf("%q became %q", body, a.body)
			}
		}
	})
}

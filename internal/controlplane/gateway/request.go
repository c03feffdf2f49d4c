package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// asked is what the gateway must know of a request's body.
type asked struct {
	model string // "" where the body names none
	body  []byte // what goes upstream
	// strip says that the upstream was asked, by us, to tell the usage of a stream,
	// and that the workload did not ask for that event.
	strip bool
}

// read are the members that are read here. A member that stands twice, or under
// a name that differs in case only, is another one for another reader: a model
// could pass the lease under one and be run under the other.
var read = []string{"model", "stream", "stream_options"}

// inspect reads a body of a shape.
// Errors: *route.Refusal 400.
func inspect(s route.Shape, body []byte) (asked, error) {
	members, order, err := object(body)
	if err != nil {
		return asked{}, err
	}
	a := asked{body: body}
	if raw, ok := members["model"]; ok {
		if json.Unmarshal(raw, &a.model) != nil || a.model == "" || len(a.model) > MaxModelBytes || !route.HeaderValue(a.model) {
			return asked{}, bad("the name of a model in model")
		}
	}
	if s.Path != "/v1/chat/completions" {
		return a, nil // the other three tell their usage always
	}
	var stream bool
	if raw, ok := members["stream"]; ok && json.Unmarshal(raw, &stream) != nil {
		return asked{}, bad("true or false in stream")
	}
	if !stream {
		return a, nil
	}
	options := map[string]json.RawMessage{}
	if raw, ok := members["stream_options"]; ok && string(raw) != "null" {
		if options, _, err = object(raw); err != nil {
			return asked{}, err
		}
		if string(options["include_usage"]) == "true" {
			return a, nil
		}
	}
	// A stream whose usage is not told could not be counted, and a workload would
	// use as much as it likes.
	options["include_usage"] = json.RawMessage("true")
	told, err := json.Marshal(options)
	if err != nil {
		return asked{}, bad("an object in stream_options")
	}
	members["stream_options"] = told
	var out bytes.Buffer
	out.Grow(len(body) + len(told) + len(`,"stream_options":`))
	out.WriteByte('{')
	for i, name := range append(order, "stream_options") {
		raw, ok := members[name]
		if !ok {
			continue // it was written before
		}
		delete(members, name)
		if i > 0 {
			out.WriteByte(',')
		}
		key, _ := json.Marshal(name) // a string is always one
		out.Write(key)
		out.WriteByte(':')
		out.Write(raw)
	}
	out.WriteByte('}')
	a.body, a.strip = out.Bytes(), true
	return a, nil
}

// object splits a JSON object into its members, and their order.
// Errors: *route.Refusal 400.
func object(text []byte) (members map[string]json.RawMessage, order []string, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, bad("a JSON object")
	}
	members = map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, nil, bad("a JSON object")
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, nil, bad("a JSON object")
		}
		if _, twice := members[name]; twice {
			return nil, nil, bad("each member once")
		}
		for _, known := range read {
			if name != known && strings.EqualFold(name, known) {
				return nil, nil, bad(known + " in lower case")
			}
		}
		members[name] = raw
		order = append(order, name)
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return nil, nil, bad("a JSON object")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, bad("a JSON object and nothing behind it")
	}
	return members, order, nil
}

func bad(expected string) error {
	return &route.Refusal{Status: 400, Reason: route.ReasonBody, Message: "expected " + expected}
}

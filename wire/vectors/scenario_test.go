package vectors_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/authorkit"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func TestMessages_AreTheCodecs(t *testing.T) {
	for _, s := range scenarios(t, "message") {
		data := raw(t, s.Hex)
		m, _ := authorkit.MessageNamed(s.Schema)
		value, err := m.Decode(data)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		again, err := wire.Encode(value)
		if err != nil || !bytes.Equal(again, data) || wire.RequestDigest(data) != s.Digest {
			t.Errorf("%s: %s, %v", s.Name, again, err)
		}
	}
}

func TestErrors_AreTheCodecs(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios(t, "error") {
		seen[s.Tag] = true
		failure, err := wire.DecodeError(raw(t, s.Hex))
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		status, must, may, _ := wire.ErrorShape(s.Tag)
		if status != s.Status || wire.Status(failure) != s.Status || !slices.Equal(must, s.Must) || !slices.Equal(may, s.May) {
			t.Errorf("%s: status %d, must %v, may %v", s.Name, status, must, may)
		}
		body, _, err := wire.EncodeError(failure)
		if err != nil || hex.EncodeToString(body) != s.Hex {
			t.Errorf("%s: %s, %v", s.Name, body, err)
		}
		w, ours := failure.(*wire.Error)
		if ours && (w.Retryable() != *s.Retryable || w.Violation() != *s.Violation || (w.Adapter(sandbox.OpExecute) == nil) != (s.Adapter == nil)) {
			t.Errorf("%s: what becomes of it", s.Name)
		}
	}
	for _, tag := range wire.Tags() {
		if !seen[string(tag)] {
			t.Errorf("%s has no scenario", tag)
		}
	}
	for _, kind := range sandbox.Kinds() {
		if !seen[string(kind)] {
			t.Errorf("%s has no scenario", kind)
		}
	}
}

func headers(list [][2]string) map[string][]string {
	out := map[string][]string{}
	for _, h := range list {
		out[h[0]] = append(out[h[0]], h[1])
	}
	return out
}

func TestExchanges_AreTheCodecs(t *testing.T) {
	for _, s := range scenarios(t, "exchange") {
		e, ok := wire.ParsePath(s.Request.Path)
		traits, _ := e.Traits()
		if !ok || string(e) != s.Endpoint {
			t.Errorf("%s: path %s", s.Name, s.Request.Path)
		}
		h, err := wire.ParseRequestHeader(headers(s.Request.Headers), e)
		if err != nil || traits.Mutating != (h.Operation != "") {
			t.Errorf("%s: %+v, %v", s.Name, h, err)
		}
		body := raw(t, s.Request.Body)
		if wire.RequestDigest(body) != s.Request.Digest {
			t.Errorf("%s: digest of the request", s.Name)
		}
		media := wire.MediaJSON
		if traits.FramedRequest {
			media = wire.MediaFrames
			readFramed(t, s.Name, authorkit.SpeechOf(e).Request, body)
		}
		if s.Request.Method == "POST" {
			if err := wire.CheckMedia(headers(s.Request.Headers), media); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
		if _, err := wire.ParseResponseHeader(headers(s.Response.Headers)); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		framed := s.Response.Frames != nil
		if framed != (traits.FramedResponse && s.Response.Status == 200) {
			t.Errorf("%s: a framed response: %v", s.Name, framed)
		}
		if s.Response.Status >= 400 {
			if failure, err := wire.DecodeError(raw(t, s.Response.Body)); err != nil || wire.Status(failure) != s.Response.Status {
				t.Errorf("%s: %v, %v", s.Name, failure, err)
			}
		}
	}
}

// readFramed reads a framed request as a server does.
func readFramed(t *testing.T, name, message string, body []byte) {
	t.Helper()
	r := wire.NewReader(bytes.NewReader(body))
	var call wire.Message
	var err error
	switch message {
	case "FileCall":
		call, err = wire.ReadCall[wire.FileCall](r)
	case "StageCall":
		call, err = wire.ReadCall[wire.StageCall](r)
	case "ExecuteCall":
		call, err = wire.ReadCall[wire.ExecuteCall](r)
	case "InputCall":
		call, err = wire.ReadCall[wire.InputCall](r)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	data, err := wire.ReadData(r, 0, sandbox.MaxFileBytes)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	again, err := wire.NewBody(call, data)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if bytes, _ := io.ReadAll(again.Reader()); string(bytes) != string(body) {
		t.Errorf("%s: written again it is another body", name)
	}
}

func TestFrames_AreTheCodecs(t *testing.T) {
	seen := map[wire.Type]bool{}
	for _, s := range scenarios(t, "frame", "refused-frame") {
		r := wire.NewReader(bytes.NewReader(raw(t, s.Hex)))
		n := 0
		var err error
		for {
			var f wire.Frame
			if f, err = r.Next(); err != nil {
				break
			}
			if f.Type == wire.TypeOut || f.Type == wire.TypeErr {
				if _, _, err = f.Output(); err != nil {
					break
				}
			}
			if n >= len(s.Frames) || s.Frames[n].Type != f.Type || s.Frames[n].Payload != hex.EncodeToString(f.Payload) {
				t.Errorf("%s: frame %d is %+v", s.Name, n, f)
			}
			seen[f.Type] = true
			n++
		}
		var broken *wire.FrameError
		refused := errors.As(err, &broken)
		if n != len(s.Frames) || refused != (s.Kind == "refused-frame") || refused && string(broken.Reason) != s.Reason || !refused && err != io.EOF {
			t.Errorf("%s: %d frames, then %v", s.Name, n, err)
		}
	}
	if len(seen) != len(wire.Types()) {
		t.Errorf("%d types of %d", len(seen), len(wire.Types()))
	}
}

func TestEscapes_AreTheCodecs(t *testing.T) {
	for _, s := range scenarios(t, "escape") {
		pair := s.Escapes[0]
		got, ok := wire.Unescape(string(raw(t, pair.Escaped)))
		if ok != *s.Accept || ok && (hex.EncodeToString([]byte(got)) != pair.Raw || wire.Escape(got) != string(raw(t, pair.Escaped))) {
			t.Errorf("%s: %q, %v", s.Name, got, ok)
		}
		if !ok {
			continue
		}
		body, err := wire.Encode(wire.InstanceRequest{InstanceID: sandbox.InstanceID(raw(t, pair.Raw))})
		if err != nil || string(body) != `{"instance_id":`+string(raw(t, s.Hex))+`}` {
			t.Errorf("%s: %s, %v", s.Name, body, err)
		}
	}
}

// types are what the texts of the canonical scenarios are read into.
func types() []reflect.Type {
	deep := reflect.TypeFor[bool]()
	for range 16 {
		deep = reflect.SliceOf(deep)
	}
	return []reflect.Type{
		reflect.TypeFor[string](), reflect.TypeFor[[]int64](), reflect.TypeFor[[]string](), reflect.TypeFor[[]bool](), reflect.TypeFor[struct{}](),
		reflect.TypeFor[map[string]int64](), reflect.TypeFor[map[string][]int64](), deep, reflect.TypeFor[sandbox.Capabilities](),
		reflect.TypeFor[struct {
			A bool `json:"a"`
			Z struct {
				Y []struct {
					A []bool `json:"a"`
					B int64  `json:"b"`
				} `json:"y"`
			} `json:"z"`
		}](),
		reflect.TypeFor[struct {
			BaseImage string            `json:"base_image"`
			Packages  []sandbox.Package `json:"packages"`
		}](),
	}
}

func TestCanonicalForms_AreOurs(t *testing.T) {
	for _, s := range scenarios(t, "canonical") {
		read := false
		for _, typ := range types() {
			value := reflect.New(typ)
			if canonical.Decode(raw(t, s.Hex), value.Interface()) != nil {
				continue
			}
			read = true
			form, err := canonical.Encode(value.Elem().Interface())
			if err != nil || hex.EncodeToString(form) != s.Canonical || sandbox.Digest(canonical.Digest(form)) != s.Digest {
				t.Errorf("%s: %s, %v", s.Name, form, err)
			}
		}
		if !read {
			t.Errorf("%s: nothing here reads it", s.Name)
		}
	}
}

func TestTimestamps_AreTheContracts(t *testing.T) {
	all := scenarios(t, "timestamp")
	for _, s := range all {
		if sandbox.Timestamp(s.Text).Valid() != *s.Accept {
			t.Errorf("%s: %s", s.Name, s.Text)
		}
	}
	if len(all) != 23 {
		t.Errorf("%d timestamps", len(all))
	}
}

func TestHeaders_AreTheCodecs(t *testing.T) {
	for _, s := range scenarios(t, "header") {
		_, err := wire.ParseRequestHeader(headers(s.Headers), wire.Endpoint(s.Endpoint))
		if (err == nil) != *s.Accept {
			t.Errorf("%s: %v", s.Name, err)
		}
		var e *wire.Error
		if err != nil && (!errors.As(err, &e) || string(e.Tag) != s.Tag || e.Pointer != *s.Pointer || wire.Status(e) != s.Status) {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

// TestStreams_EndAsTheySay, and so does every beginning of them: a connection
// may break at any byte, and what a reader has by then is the same.
func TestStreams_EndAsTheySay(t *testing.T) {
	for _, s := range scenarios(t, "stream") {
		prefix, data := raw(t, s.Outcome.Prefix), raw(t, s.Hex)
		if got := authorkit.Read(prefix, data); got.End != s.Outcome.End || got.Output != s.Outcome.Output || got.Why != s.Outcome.Why {
			t.Errorf("%s: %+v", s.Name, got)
		}
		if s.Outcome.End == "violation" {
			continue
		}
		for cut := range len(data) {
			got := authorkit.Read(prefix, data[:cut])
			if got.End != "dropped" || !strings.HasPrefix(s.Outcome.Output, got.Output) {
				t.Fatalf("%s cut at byte %d: %+v", s.Name, cut, got)
			}
			have := raw(t, got.Output)
			if again := authorkit.Read(have, data); again.End != s.Outcome.End || again.Output != s.Outcome.Output {
				t.Fatalf("%s cut at byte %d and replayed: %+v", s.Name, cut, again)
			}
		}
	}
}

func TestKinds_AreAllHereAndExplained(t *testing.T) {
	readme, err := fs.ReadFile(vectorsFiles, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fs.ReadDir(vectorsFiles, "scenario")
	if err != nil || len(entries) != 17 {
		t.Fatalf("%d kinds, %v", len(entries), err)
	}
	for _, e := range entries {
		if !bytes.Contains(readme, []byte("`"+e.Name()+"`")) {
			t.Errorf("README.md does not explain %s", e.Name())
		}
	}
	for _, s := range scenarios(t, "disposition") {
		if !bytes.Contains(readme, []byte("| `"+s.Action+"` |")) {
			t.Errorf("README.md does not explain %s", s.Action)
		}
	}
}

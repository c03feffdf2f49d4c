package vectors_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/authorkit"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server"
)

const vectorToken = "example-token-of-thirty-two-chars"

// provider serves the reference provider as any author would serve theirs.
func provider(t *testing.T) http.Handler {
	t.Helper()
	now := memory.NewManual(time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC))
	s, err := server.New(server.Options{Provider: memory.New(memory.Options{Seed: "vectors", Clock: now}), Tokens: []string{vectorToken}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return s
}

// post sends one request with headers as they stand, and reads its error.
func post(t *testing.T, h http.Handler, e wire.Endpoint, header map[string][]string, body []byte) (status int, failure error) {
	t.Helper()
	r := httptest.NewRequest("POST", e.Path(), bytes.NewReader(body))
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	answer, _ := io.ReadAll(w.Result().Body)
	if w.Code < 400 {
		return w.Code, nil
	}
	failure, err := wire.DecodeError(answer)
	if err != nil {
		t.Fatalf("%s: %d %q: %v", e, w.Code, answer, err)
	}
	return w.Code, failure
}

func right(e wire.Endpoint) map[string][]string {
	header := map[string][]string{}
	wire.RequestHeader{Token: vectorToken, Lease: wire.Lease{ID: "lease-1", Epoch: 7}, Operation: wire.NewOperationID(), Wait: 20 * time.Second}.Set(header, e)
	header["Content-Type"] = []string{wire.MediaJSON}
	if traits, _ := e.Traits(); traits.FramedRequest {
		header["Content-Type"] = []string{wire.MediaFrames}
	}
	return header
}

// endpointOf is the first endpoint that is asked with a message.
func endpointOf(message string) (wire.Endpoint, bool) {
	for _, e := range wire.Endpoints() {
		if authorkit.SpeechOf(e).Request == message {
			return e, true
		}
	}
	return "", false
}

// TestProvider_RefusesWhatTheVectorsRefuse: our own server answers each refused
// message that is a request by the field, and does nothing.
func TestProvider_RefusesWhatTheVectorsRefuse(t *testing.T) {
	h := provider(t)
	n := 0
	for _, s := range scenarios(t, "refused-message", "refused-request") {
		e, ok := endpointOf(s.Schema)
		if !ok || len(s.Hex) == 0 {
			continue
		}
		body, _ := hex.DecodeString(s.Hex)
		if traits, _ := e.Traits(); traits.FramedRequest {
			body = wire.AppendFrame(nil, wire.Frame{Type: wire.TypeCall, Payload: body})
		}
		status, failure := post(t, h, e, right(e), body)
		var w *wire.Error
		var a *sandbox.Error
		switch {
		case s.Kind == "refused-message":
			n++
			if !errors.As(failure, &w) || w.Tag != wire.TagMalformed || w.Pointer != *s.Pointer || status != 400 {
				t.Errorf("%s: %d %v, want %q", s.Name, status, failure, *s.Pointer)
			}
		case e == wire.Provision || e == wire.Cleanup:
			n++
			lease := strings.HasPrefix(*s.Pointer, "lease_id") // also not that of the headers
			if !lease && (!errors.As(failure, &a) || string(a.Kind) != s.Tag || a.Reason+string(a.Requirement) != s.Reason) {
				t.Errorf("%s: %d %v, want %s %s for %s", s.Name, status, failure, s.Tag, s.Reason, *s.Pointer)
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d were requests", n)
	}
}

func TestProvider_ReadsHeadersAsTheVectorsSay(t *testing.T) {
	h := provider(t)
	for _, s := range scenarios(t, "header") {
		e := wire.Endpoint(s.Endpoint)
		header := headers(s.Headers)
		header["Content-Type"] = []string{wire.MediaJSON}
		status, failure := post(t, h, e, header, []byte("{}"))
		var w *wire.Error
		switch {
		case *s.Accept && header[wire.HeaderAuthorization] == nil: // here tokens are asked for
		case *s.Accept:
			if errors.As(failure, &w) && strings.HasPrefix(w.Pointer, "checkfu-") {
				t.Errorf("%s: %v", s.Name, failure)
			}
		case !errors.As(failure, &w) || string(w.Tag) != s.Tag || w.Pointer != *s.Pointer || status != s.Status:
			t.Errorf("%s: %d %v, want %s %q", s.Name, status, failure, s.Tag, *s.Pointer)
		}
	}
}

// TestProvider_AnswersAsTheExchangesSay of what needs nothing that lives.
func TestProvider_AnswersAsTheExchangesSay(t *testing.T) {
	h := provider(t)
	for _, s := range scenarios(t, "exchange") {
		switch s.Name {
		case "destroy", "destroy-snapshot", "rollback", "operation-unknown", "execute-not-found":
		default:
			continue
		}
		e := wire.Endpoint(s.Endpoint)
		status, failure := post(t, h, e, right(e), raw(t, s.Request.Body))
		if status != s.Response.Status {
			t.Errorf("%s: %d %v", s.Name, status, failure)
		}
		if s.Response.Status < 400 {
			continue
		}
		if want, _ := wire.DecodeError(raw(t, s.Response.Body)); failure == nil || failure.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", s.Name, failure, want)
		}
	}
}

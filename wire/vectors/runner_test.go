package vectors_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/authorkit"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// script is a provider that answers one endpoint as a vector says.
type script struct {
	t        *testing.T
	endpoint wire.Endpoint
	answer   *authorkit.Half // of the first delivery
	short    int             // bytes that are announced and do not come

	mu      sync.Mutex
	bodies  [][]byte // of the deliveries
	headers []http.Header
	undone  bool
}

// minted is the operation id of the vectors; a real one is put in its place.
const minted = "op_0123456789abcdef0123456789abcdef"

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	e, _ := wire.ParsePath(r.URL.Path)
	half := s.answer
	switch {
	case e == wire.Capabilities:
		half = s.golden("capabilities")
	case e == wire.RollbackOperation:
		s.undone = true
		half = s.golden("rollback")
	case e != s.endpoint:
		half = s.golden("operation-unknown")
	default:
		if s.bodies = append(s.bodies, body); len(s.bodies) > 1 {
			half = s.golden("snapshot-forbidden") // enough: an answer that ends any call
		}
		s.headers = append(s.headers, r.Header)
	}
	data, _ := hex.DecodeString(half.Body)
	data = bytes.ReplaceAll(data, []byte(minted), []byte(r.Header.Get(wire.HeaderOperationID)))
	for _, h := range half.Headers {
		w.Header()[h[0]] = []string{h[1]}
	}
	if half == s.answer && s.short > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)+s.short))
	}
	w.WriteHeader(half.Status)
	w.Write(data)
}

func (s *script) golden(name string) *authorkit.Half {
	for _, e := range scenarios(s.t, "exchange") {
		if e.Name == name {
			return e.Response
		}
	}
	s.t.Errorf("no exchange is called %s", name)
	return &authorkit.Half{Status: 500}
}

// dial connects the Runner's own client to s.
func (s *script) dial() *client.Client {
	s.t.Helper()
	h := httptest.NewServer(s)
	s.t.Cleanup(h.Close)
	c, err := client.Dial(s.t.Context(), client.Options{Base: h.URL, Token: "example-token-of-thirty-two-chars", Lease: wire.Lease{ID: "lease-1", Epoch: 7}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// single reports whether a call of e is one method of the contract: what is left
// is tested by wire/client itself.
func single(e wire.Endpoint) bool {
	t, _ := e.Traits()
	return string(t.Member) == string(e) && e != wire.Capabilities && e != wire.BeginActiveWrite && e != wire.OpenProcess
}

// ask makes the call of an exchange of a single endpoint.
func ask(ctx context.Context, c *client.Client, e wire.Endpoint, request *authorkit.Half) error {
	body, _ := hex.DecodeString(request.Body)
	var data []byte
	if request.Frames != nil {
		body = nil
		for _, f := range request.Frames {
			payload, _ := hex.DecodeString(f.Payload)
			if f.Type == wire.TypeCall {
				body = append(body, payload...)
			} else {
				data = append(data, payload...)
			}
		}
	}
	m, _ := authorkit.MessageNamed(authorkit.SpeechOf(e).Request)
	message, err := m.Decode(body)
	if err != nil {
		return err
	}
	switch r := message.(type) {
	case wire.ProvisionRequest:
		_, err = c.Provision(ctx, sandbox.ProvisionRequest(r))
	case wire.InstanceRequest:
		if e == wire.Destroy {
			err = c.Destroy(ctx, r.InstanceID)
		} else {
			_, err = c.Activate(ctx, r.InstanceID)
		}
	case wire.FileCall:
		err = c.WriteFile(ctx, r.InstanceID, sandbox.FileWrite{Path: r.Path, Content: data, Executable: r.Executable, Symlink: r.Symlink})
	case wire.ExecuteCall:
		r.Command.Stdin = data
		_, err = c.Execute(ctx, r.InstanceID, r.Command)
	case wire.ReadFileRequest:
		_, err = c.ReadFile(ctx, r.InstanceID, sandbox.FileRead{Path: r.Path, AllowedRoot: r.AllowedRoot, MaximumBytes: r.MaximumBytes})
	case wire.ReadFilesRequest:
		_, err = c.ReadFiles(ctx, r.InstanceID, sandbox.FilesRead{AllowedRoot: r.AllowedRoot, Files: r.Files, AggregateMaximumBytes: r.AggregateMaximumBytes})
	case wire.ListRequest:
		if l := (sandbox.Listing{Root: r.Root, MaxEntries: r.MaxEntries}); e == wire.ListDir {
			_, err = c.ListDir(ctx, r.InstanceID, l)
		} else {
			_, err = c.ListProjectDir(ctx, r.InstanceID, l)
		}
	case wire.SnapshotRequest:
		_, err = c.Snapshot(ctx, r.InstanceID, sandbox.SnapshotRequest{ExpiresAt: r.ExpiresAt})
	case wire.CloneRequest:
		_, err = c.CloneSnapshot(ctx, sandbox.CloneRequest(r))
	case wire.ReleaseRequest:
		_, err = c.Release(ctx, r.InstanceID, sandbox.ReleaseRequest{ExpiresAt: r.ExpiresAt})
	case wire.ResumeRequest:
		_, err = c.Resume(ctx, sandbox.ResumeRequest(r))
	case wire.DestroySnapshotRequest:
		err = c.DestroySnapshot(ctx, r.SnapshotID)
	case wire.CleanupRequest:
		_, err = c.Cleanup(ctx, sandbox.CleanupRequest(r))
	}
	return err
}

// TestRunner_SpeaksAsTheExchangesSay: its requests are the golden ones, byte for
// byte, and it takes the golden answers.
func TestRunner_SpeaksAsTheExchangesSay(t *testing.T) {
	asked := 0
	for _, x := range scenarios(t, "exchange") {
		e := wire.Endpoint(x.Endpoint)
		if !single(e) || x.Response.Status == http.StatusAccepted {
			continue
		}
		t.Run(x.Name, func(t *testing.T) {
			s := &script{t: t, endpoint: e, answer: x.Response}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := ask(ctx, s.dial(), e, x.Request)
			asked++
			failed := x.Response.Status != http.StatusOK || len(x.Response.Frames) > 0 && x.Response.Frames[len(x.Response.Frames)-1].Type == wire.TypeError
			if (err != nil) != failed {
				t.Errorf("%v", err)
			}
			if len(s.bodies) != 1 || hex.EncodeToString(s.bodies[0]) != x.Request.Body {
				t.Fatalf("%d deliveries, first %q", len(s.bodies), s.bodies)
			}
			for _, h := range x.Request.Headers {
				got, ok := s.headers[0].Get(h[0]), false
				switch h[0] {
				case wire.HeaderOperationID:
					ok = wire.OperationID(got).Valid() && got != minted
				case wire.HeaderDeadline, wire.HeaderWait, "Content-Length":
					ok = got != "" || h[0] == "Content-Length" // net/http keeps that one elsewhere
				default:
					ok = got == h[1]
				}
				if !ok {
					t.Errorf("%s: %q, want %q", h[0], got, h[1])
				}
			}
		})
	}
	if asked < 20 {
		t.Errorf("only %d exchanges were had", asked)
	}
}

// TestRunner_DoesAsTheDispositionsSay.
func TestRunner_DoesAsTheDispositionsSay(t *testing.T) {
	requests := map[string]*authorkit.Half{}
	headers := map[bool][][2]string{}
	for _, x := range scenarios(t, "exchange") {
		if x.Name == strings.ReplaceAll(x.Endpoint, "_", "-") {
			requests[x.Endpoint] = x.Request
			headers[x.Response.Frames != nil] = x.Response.Headers
		}
	}
	done := 0
	for _, d := range scenarios(t, "disposition") {
		e := wire.Endpoint(d.Given.Endpoint)
		if !single(e) || d.Given.Status == 0 || d.Action == "poll" || requests[d.Given.Endpoint] == nil || d.Name == "wrong-identity" {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			answer := &authorkit.Half{Status: d.Given.Status, Body: d.Given.Body, Headers: [][2]string{{"Content-Type", d.Given.Media}}}
			for _, h := range headers[d.Given.Media == wire.MediaFrames] {
				if h[0] != "Content-Type" && (d.Given.Media == wire.MediaJSON || d.Given.Media == wire.MediaFrames || d.Given.Status < 400) {
					answer.Headers = append(answer.Headers, h)
				}
			}
			if d.Given.Encoding != "" {
				answer.Headers = append(answer.Headers, [2]string{"Content-Encoding", d.Given.Encoding})
			}
			s := &script{t: t, endpoint: e, answer: answer}
			if d.Given.Outcome == "truncated" {
				s.short = 100
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := ask(ctx, s.dial(), e, requests[d.Given.Endpoint])
			done++
			deliveries := 1
			var adapter *sandbox.Error
			var violation *client.ProtocolError
			switch d.Action {
			case "retry":
				deliveries = 2
			case "violate", "unwind":
				if !errors.As(err, &violation) {
					t.Errorf("no violation: %v", err)
				}
				if traits, _ := e.Traits(); traits.Handoff && d.Given.Status == http.StatusOK && !s.undone {
					t.Error("nothing was undone")
				}
			case "fail", "stop":
				var want struct{ Kind, Reason, Actual string }
				if err := json.Unmarshal(d.Adapter, &want); err != nil {
					t.Fatal(err)
				}
				if !errors.As(err, &adapter) || string(adapter.Kind) != want.Kind || adapter.Reason != want.Reason || want.Actual != "" && adapter.Actual != want.Actual {
					t.Errorf("%v, want %+v", err, want)
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.bodies) != deliveries {
				t.Errorf("%d deliveries, want %d: %v", len(s.bodies), deliveries, err)
			}
		})
	}
	if done < 25 {
		t.Errorf("only %d dispositions were tried", done)
	}
}

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// scripted is an upstream of both APIs, which does what the model's name says.
func scripted(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Model  string
		Stream bool
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	w.Header().Set("Content-Type", "application/json")
	if q.Model == "limited" {
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"type":"error","error":{"type":"rate_limit_error","message":"quota"}}`)
		return
	}
	switch _, path, _ := strings.Cut(r.URL.Path, "/v1/"); path {
	case "messages/count_tokens":
		fmt.Fprint(w, `{"input_tokens":7}`)
		return
	case "models":
		fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model"}]}`)
		return
	case "messages":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, anthropicStart+"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"+anthropicDelta)
		if q.Model == "cut" {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"+anthropicUsage+anthropicStop)
	case "chat/completions":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, chatDelta+chatDelta+chatUsage+chatDone)
	case "responses":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, responseDelta+responseDelta+responseDone)
	}
}

// The SDKs as agents use them, behind relay and gateway: streams, errors as they
// show them, and a run token in the key's place.
func TestSDKs(t *testing.T) {
	if testing.Short() {
		t.Skip("it fetches the SDKs")
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no " + program + ", which fetches and runs the SDKs")
		}
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	fetch := exec.CommandContext(ctx, "npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline",
		"--fetch-retries=0", "--fetch-timeout=20000", "@anthropic-ai/sdk@0.65.0", "openai@6.1.0")
	fetch.Dir, fetch.WaitDelay = dir, time.Second
	if out, err := fetch.CombinedOutput(); err != nil {
		t.Skipf("the SDKs cannot be fetched: %v: %.300s", err, out)
	}
	script, err := os.ReadFile("testdata/sdk.mjs")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "sdk.mjs")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		t.Fatal(err)
	}
	s := begin(t, scripted, func(_ *Options, l *Lease) { l.Models = []string{"m", "cut", "limited"} })
	run := exec.CommandContext(ctx, "node", file, throughRelay(t, s), s.token)
	run.Dir, run.Env = dir, []string{"PATH=" + os.Getenv("PATH")}
	run.WaitDelay = time.Second
	text, err := run.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"message": "15", "beta": "15", "count": "7", "chunks": "2", "response": "aa.", "models": "[m]",
		"limited":   "RateLimitError 429 429 {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"quota\"}}",
		"cut":       "broke off its answer",
		"forbidden": "PermissionDeniedError 403 403 checkfu: this run may use the models m, cut, limited",
		"stale":     "AuthenticationError 401 401 checkfu: expected the token of this run",
		"path":      "NotFoundError 404 404 checkfu: expected one of the five paths",
	} {
		if said := fmt.Sprint(got[what]); !strings.Contains(said, want) {
			t.Errorf("%s: %s", what, said)
		}
	}
	if u := s.used("run_1"); u.OutputTokens < 4*15 || u.Requests != 8 {
		t.Errorf("%+v", u)
	}
}

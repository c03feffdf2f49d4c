package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/controlplane/gateway"
)

// What an upstream streams, in the events of both APIs.
const (
	messageBegins = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":11,\"output_tokens\":1}}}\n\n"
	messageEnds   = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"streamed\"}}\n\n" +
		"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	completion = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"str\"}}]}\n\n" +
		"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"eamed\"}}]}\n\n" +
		"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n" +
		"data: [DONE]\n\n"
)

// models is a gateway of the product, in a process of its own, and the provider of
// models behind it, which takes nothing but the real key.
type models struct {
	name     string
	key      string // the real one
	flags    []string
	process  *exec.Cmd // the gateway
	operator gateway.Operator
	goOn     chan struct{} // a token lets one message end that has begun

	mu    sync.Mutex
	asked []string // paths, of requests with the right key
	wrong int      // requests with anything else
}

func (m *models) requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wrong > 0 {
		return -m.wrong
	}
	return len(m.asked)
}

func (m *models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	m.mu.Lock()
	if r.Header.Get("X-Api-Key") == m.key || r.Header.Get("Authorization") == "Bearer "+m.key {
		m.asked = append(m.asked, r.URL.Path)
	} else {
		m.wrong++
	}
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	if r.URL.Path == "/v1/chat/completions" {
		_, _ = io.WriteString(w, completion)
		return
	}
	_, _ = io.WriteString(w, messageBegins)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-m.goOn:
		_, _ = io.WriteString(w, messageEnds)
	case <-r.Context().Done():
	}
}

// serveModels starts both. They end with the test.
func serveModels(t *testing.T) *models {
	t.Helper()
	// The canary: a key like no other, which is in the gateway's process and here.
	m := &models{name: "e2e-" + strings.ToLower(rand.Text()[:12]), key: "sk-canary-" + rand.Text(), goOn: make(chan struct{}, 8)}
	upstream := httptest.NewServer(m)
	t.Cleanup(upstream.Close)
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, m.key+"\n", 0o600)
	m.flags = []string{"--anthropic-key-file", key, "--openai-key-file", key, "--anthropic-url", upstream.URL, "--openai-url", upstream.URL}
	m.serve(t)
	return m
}

// askModel is a shell line that asks for a message with a token, and says what came.
func askModel(token string) string {
	return `wget -q -Y off -O - --header "X-Api-Key: ` + token + `" --header 'Anthropic-Version: 2023-06-01' --header 'Content-Type: application/json' --post-data '{"model":"m","stream":true}' $ANTHROPIC_BASE_URL/v1/messages 2>&1 | grep -o -e '[45][0-9][0-9] [A-Z].*' -e streamed; true`
}

// serve starts the gateway, which ends with the test, if it has not ended before.
func (m *models) serve(t *testing.T) {
	t.Helper()
	cmd := command(t, append([]string{"model", "serve", "--name", m.name, "--json"}, m.flags...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState != nil {
			return // it was killed
		}
		kill(cmd, syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the gateway: %v: %s", err, errs.String())
		}
	})
	m.process = cmd
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var ready struct{ Control string }
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	m.operator.Socket = ready.Control
}

// built is where the agent lies, built once.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// agent is a directory with a static program that uses the SDKs of both APIs as
// their vendors ship them. It has a module of its own: the product needs neither.
func agent(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		built.dir = filepath.Join(filepath.Dir(state), "agent")
		cmd := exec.Command("go", "build", "-C", "testdata/agent", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(built.dir, "agent"), ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
		if text, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build the agent, whose SDKs are fetched as any module is: %w: %s", err, text)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// live is the lease that the gateway has and that has not ended; of several, the
// one of a run that is not among others.
func (m *models) live(t *testing.T, others ...string) gateway.Leased {
	t.Helper()
	s, err := m.operator.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range s.Leases {
		if l.Live && !strings.Contains(strings.Join(others, " "), l.RunID) {
			return l
		}
	}
	t.Fatalf("no live lease: %+v", s)
	return gateway.Leased{}
}

// attendant is the process of a name among the children of another.
func attendant(t *testing.T, parent int, name string) int {
	t.Helper()
	for _, pid := range children(parent) {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(line), name+"\x00") {
			return pid
		}
	}
	t.Fatalf("%d has no %s", parent, name)
	return 0
}

// bounded is a context for what searches memory.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/canary"
	"github.com/checkfu/checkfu/internal/egress/relay"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// relayTo is the configuration of a relay for one token, and its listener.
func relayTo(t *testing.T, gateway, token string, expires time.Time) (relay.Config, net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return relay.Config{
		V: 1, Instance: "ins_1", Hosts: []string{l.Addr().String()}, Gateway: gateway,
		TokenDigest: sandbox.Digest(route.TokenDigest(token)), ExpiresAt: sandbox.At(expires),
		Limits: relay.Limits{Requests: 1024},
	}, l
}

// throughRelay puts a relay in front of a gateway, in this process.
func throughRelay(t *testing.T, s *standing) (url string) {
	t.Helper()
	c, l := relayTo(t, strings.TrimPrefix(s.url, "http://"), s.token, s.lease.ExpiresAt)
	r, err := relay.New(relay.Options{Config: c, Log: io.Discard, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// A thousand streams at once, through relay and gateway, in bounded memory: all
// five ends of each are in this process.
func TestManyStreams(t *testing.T) {
	const many, mostEach = 1000, 300 << 10
	goOn := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, anthropicStart)
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, anthropicUsage+anthropicStop)
	}))
	defer upstream.Close()
	s := begin(t, nil, func(o *Options, _ *Lease) {
		o.Upstreams = []Upstream{{route.Anthropic, upstream.URL}}
		o.Limits.RunRequests = many
	})
	url := throughRelay(t, s)
	before := memory()
	var open []*http.Response
	for range many {
		r := s.request("POST", "/v1/messages", `{"model":"m","stream":true}`)
		r.URL.Host = strings.TrimPrefix(url, "http://")
		r.Host = r.URL.Host
		response, err := plain.RoundTrip(r)
		if err != nil || response.StatusCode != 200 {
			t.Fatal(response, err)
		}
		defer response.Body.Close()
		if _, err := io.ReadFull(response.Body, make([]byte, len(anthropicStart))); err != nil {
			t.Fatal(err)
		}
		open = append(open, response)
	}
	each := int64(memory()-before) / many
	t.Logf("%d KiB for each of %d streams, client and upstream included", each>>10, many)
	if each > mostEach {
		t.Errorf("%d bytes for each stream", each)
	}
	close(goOn)
	for _, response := range open {
		if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != anthropicUsage+anthropicStop {
			t.Fatalf("%q, %v", rest, err)
		}
	}
	s.log.line(t, many)
	if u := s.used("run_1"); u.OutputTokens != 15*many || u.Requests != many {
		t.Errorf("%+v", u)
	}
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// The children of TestKeyIsNowhereElse: a gateway that reads its key from a
// descriptor, and a relay.
func runChild(name string) int {
	if name == "store" {
		return storeChild()
	}
	if name == "holder" {
		return holderChild()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }()
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return 3
	}
	if name == "relay" {
		text, err := io.ReadAll(os.NewFile(4, "config"))
		if err != nil {
			return 4
		}
		c, err := relay.ParseConfig(text)
		if err != nil {
			return 5
		}
		r, err := relay.New(relay.Options{Config: c, Log: os.Stdout})
		if err != nil || r.Serve(ctx, l) != nil {
			return 6
		}
		return 0
	}
	k, err := ReadKey(os.NewFile(4, "key"), "descriptor 4")
	if err != nil {
		return 7
	}
	leases, err := OpenStore(os.Args[2], nil)
	if err != nil {
		return 11
	}
	defer leases.Close()
	token, err := leases.Grant(Lease{RunID: "r", LeaseID: "l", LeaseEpoch: 1, ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		return 8
	}
	g, err := New(Options{Upstreams: []Upstream{{route.Anthropic, os.Args[1]}}, Keys: map[route.Style]Key{route.Anthropic: k}, Leases: leases, Counts: leases, Log: io.Discard})
	if err != nil {
		return 9
	}
	fmt.Println(token)
	if g.Serve(ctx, l) != nil {
		return 10
	}
	return 0
}

// child starts one of them, and answers its pid and its output.
func child(t *testing.T, name string, l net.Listener, input []byte, args ...string) (int, *bufio.Reader) {
	t.Helper()
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(w, bytes.NewReader(input)); err != nil { // less than a pipe holds
		t.Fatal(err)
	}
	w.Close()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{"CHECKFU_TEST_CHILD=" + name}
	cmd.ExtraFiles = []*os.File{listener, r}
	life, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		life.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return cmd.Process.Pid, bufio.NewReader(out)
}

// A10: while a request streams, the key is in the gateway's memory, which shows
// that the scan can find it, and in nothing else: not in its environment or
// arguments, and nowhere in the relay.
func TestKeyIsNowhereElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it reads the memory of processes")
	}
	secret := "canary-" + strings.TrimPrefix(route.NewToken(), route.TokenPrefix)
	goOn := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != secret {
			t.Error("not with the key")
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, anthropicStart)
		_ = http.NewResponseController(w).Flush()
		<-goOn
	}))
	defer upstream.Close()
	gl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gateway := gl.Addr().String()
	gatewayPID, out := child(t, "gateway", gl, []byte(secret+"\n"), upstream.URL, t.TempDir())
	token, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	token = strings.TrimSpace(token)
	config, rl := relayTo(t, gateway, token, time.Now().Add(time.Hour))
	text, err := config.Encode()
	if err != nil {
		t.Fatal(err)
	}
	address := rl.Addr().String()
	relayPID, out := child(t, "relay", rl, text)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/v1/messages", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", token)
	response, err := plain.RoundTrip(r)
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, len(anthropicStart))); err != nil {
		t.Fatal(err)
	}
	scan := func(pid int) canary.Hits {
		hits, err := canary.Scan(t.Context(), pid, []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		return hits
	}
	if h := scan(gatewayPID); h.Memory == 0 || h.Environ+h.Cmdline+h.Names+h.Files != 0 {
		t.Errorf("the gateway: %+v", h)
	}
	if h := scan(relayPID); h.Memory+h.Environ+h.Cmdline+h.Names+h.Files != 0 || h.Scanned == 0 {
		t.Errorf("the relay: %+v", h)
	}
	close(goOn)
	_, _ = io.Copy(io.Discard, response.Body)
}

// A refusal of a long body reaches the workload through a relay that is still
// writing: it is the gateway's word, and not a failure that one tries again.
func TestRefusalOfALongBody(t *testing.T) {
	s := begin(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }, nil)
	url := throughRelay(t, s)
	if err := s.leases.Revoke(s.lease.LeaseID, 1); err != nil {
		t.Fatal(err)
	}
	r := s.request("POST", "/v1/messages", strings.Repeat(" ", 4<<20))
	r.URL.Host = strings.TrimPrefix(url, "http://")
	r.Host = r.URL.Host
	if status, _, body, err := s.ask(r); err != nil || status != 401 || code(body) != route.ReasonLease {
		t.Errorf("%d %q, %v", status, body, err)
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/canary"
	"github.com/checkfu/checkfu/internal/egress/confine"
	"github.com/checkfu/checkfu/internal/egress/launch"
	"github.com/checkfu/checkfu/internal/egress/relay"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// The test binary is the relay where it is started as one.
func TestMain(m *testing.M) {
	if os.Args[0] == string(launch.RelayProgram) {
		main()
	}
	os.Exit(m.Run())
}

// gateway is one that streams events until it is told to go on, over TCP or a
// socket file that the relay's user may use.
func gateway(t *testing.T, network string) (address string, more chan bool) {
	t.Helper()
	at := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("/tmp", "relay")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		at = filepath.Join(dir, "gateway")
	}
	l, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	if network == "unix" {
		address = "unix:" + at
		if err := os.Chmod(at, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	more = make(chan bool)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for n := 0; ; n++ {
			fmt.Fprintf(w, "data: %d of %d\n\n", n, len(asked))
			w.(http.Flusher).Flush()
			if !<-more {
				return
			}
		}
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return address, more
}

// start starts a relay on a socket file, as a machine has it.
func start(t *testing.T, gateway, token string) (p *launch.Process, path string, log *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	defer l.Close()
	listener, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	config, err := relay.Config{
		V: 1, Instance: "ins_relay", Hosts: []string{"127.0.0.1:3129"}, Gateway: gateway,
		TokenDigest: sandbox.Digest(route.TokenDigest(token)), ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if p, err = (launch.Launcher{Executable: exe}).Relay(t.Context(), config, listener, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil || p.Err() != nil || p.Said() != "" {
			t.Error(err, p.Err(), p.Said())
		}
	})
	return p, path, log
}

// ask sends a request, and answers what comes back from its status on.
func ask(t *testing.T, path, token, target string) *bufio.Reader {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	const body = `{"model":"m"}`
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:3129\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", target, token, len(body), body)
	return bufio.NewReader(c)
}

// A confined relay carries a stream, piece by piece, over either way to its
// gateway, and nothing else; and the run's token is in no place that lasts.
func TestAConfinedRelayServes(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			token := route.NewToken()
			address, more := gateway(t, network)
			p, path, log := start(t, address, token)
			if got, err := canary.Scan(t.Context(), p.PID, []byte(token)); err != nil || got.Total() != 0 {
				t.Errorf("before: %+v, %v", got, err)
			}

			in := ask(t, path, token, "/v1/messages")
			response, err := http.ReadResponse(in, nil)
			if err != nil || response.StatusCode != 200 {
				t.Fatal(response, err)
			}
			events := bufio.NewReader(response.Body)
			for n := range 3 {
				if line, err := events.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d of 13\n", n) {
					t.Fatalf("%q, %v", line, err)
				}
				if _, err := events.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				more <- n < 2
			}
			if rest, err := io.ReadAll(events); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v", rest, err)
			}

			for target, want := range map[string]int{"/v1/files": 404, "/v1/messages": 401} {
				response, err := http.ReadResponse(ask(t, path, route.NewToken(), target), nil)
				if err != nil || response.StatusCode != want {
					t.Errorf("%s: %v, %v", target, response, err)
				}
			}
			after, err := canary.Scan(t.Context(), p.PID, []byte(token))
			if err != nil || after.Total() != after.Memory {
				t.Errorf("after: %+v, %v", after, err)
			}

			text, err := os.ReadFile(log.Name())
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
			var first relay.Line
			if err := json.Unmarshal(lines[0], &first); err != nil || len(lines) != 4 {
				t.Fatalf("%s, %v", text, err)
			}
			if len(first.Notes) != 3 || os.Geteuid() == 0 && first.Notes[0] != fmt.Sprint("user ", launch.RelayUID) {
				t.Errorf("notes %q", first.Notes)
			}
		})
	}
}

func TestABadConfigurationStartsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	_, err = launch.Launcher{Executable: exe}.Relay(t.Context(), []byte(`{"v":1,"allow":[]}`), listener, log)
	if failed, ok := errors.AsType[*launch.StartError](err); !ok || !strings.Contains(failed.Said, "checkfu-relay: canonical: allow: ") {
		t.Errorf("%v", err)
	}
}

func TestNeeds(t *testing.T) {
	for gateway, want := range map[string]confine.Needs{
		"unix:/run/gateway": {Files: 64 + 256 + 128, Unix: true},
		"[2a00::1]:8080":    {Files: 64 + 256 + 128, Ports: []uint16{8080}},
	} {
		if got := needs(relay.Config{Gateway: gateway}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", gateway, got)
		}
	}
	if got := needs(relay.Config{Gateway: "10.0.0.1:1", Limits: relay.Limits{Requests: 1}}).Files; got != 64+256+2 {
		t.Errorf("%d files", got)
	}
}

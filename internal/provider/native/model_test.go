package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/relay"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// relayMain is the relay of these tests: the real one, as a process that is not
// confined.
func relayMain(config []byte, stubborn bool) {
	c, err := relay.ParseConfig(config)
	childFailed(err)
	listener, err := net.FileListener(os.NewFile(5, "listener"))
	childFailed(err)
	os.NewFile(5, "listener").Close()
	r, err := relay.New(relay.Options{Config: c, Log: io.MultiWriter(os.NewFile(4, "log"), os.Stdout)})
	childFailed(err)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		if !stubborn {
			stop()
		}
	}()
	childFailed(r.Serve(ctx, listener))
	os.Exit(0)
}

// leased is what the gateway of a test saw.
type leased struct {
	token string
	ends  atomic.Int64
	last  *Lease
}

// routed gives p's machines a model route to a gateway that answers every request
// with the credential that it came with.
func routed(t *testing.T, p *Provider) *leased {
	t.Helper()
	l := &leased{token: route.NewToken()}
	dir, err := os.MkdirTemp(shared.dir, "gateway-")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	gateway := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // as the real one: an answer before it may be lost
		fmt.Fprintf(w, "%s %s", r.URL.Path, r.Header.Get("X-Api-Key"))
	})}
	go gateway.Serve(listener)
	t.Cleanup(func() { gateway.Close() })
	p.opt.Model = &Model{
		Start: testGuard(p.opt.Dir, "relay").Start,
		Lease: func(context.Context, sandbox.ProvisionRequest) (*Lease, error) {
			l.last = &Lease{Gateway: "unix:" + path, Token: l.token, End: func(context.Context) { l.ends.Add(1) }}
			return l.last, nil
		},
	}
	return l
}

// askModel is a shell line that asks the relay for a message with the machine's own
// key, and prints the answer. This wget does not know no_proxy.
const askModel = `wget -q -Y off -O - --header "X-Api-Key: $ANTHROPIC_API_KEY" --header 'Content-Type: application/json' --post-data '{}' "$ANTHROPIC_BASE_URL/v1/messages"; echo " status $?"`

// A model route is there in every network mode, and beside a guard: a port and a
// token, and no other way out. It ends with the machine, and the lease with it.
func TestModel_BesideEveryNetwork(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		guarded(p, "plain")
		l := routed(t, p)
		for i, r := range []sandbox.ProvisionRequest{request(p), allowing(p, listed)} {
			id := activate(t, p, r)
			through, proxy := "403", ""
			sockets := "relay.sock"
			if i == 1 {
				through, proxy, sockets = "200", "http://127.0.0.1:3128", "guard.sock relay.sock"
			}
			for _, c := range []struct{ script, want string }{
				{askModel, "/v1/messages " + l.token + " status 0\n"},
				{"echo $ANTHROPIC_BASE_URL $OPENAI_BASE_URL $NO_PROXY $no_proxy $https_proxy", strings.TrimSpace("http://127.0.0.1:3129 http://127.0.0.1:3129/v1 localhost,127.0.0.1,::1 localhost,127.0.0.1,::1 "+proxy) + "\n"},
				{"echo $ANTHROPIC_API_KEY $OPENAI_API_KEY", l.token + " " + l.token + "\n"},
				{"echo $(ls /run/checkfu/egress); touch /run/checkfu/egress/x 2>/dev/null || echo sealed", sockets + "\nsealed\n"},
				{"nc -w 2 8.8.8.8 53 </dev/null 2>/dev/null || echo unreachable", "unreachable\n"},
			} {
				if s := sh(t, p, id, c.script); string(s.Stdout) != c.want {
					t.Errorf("%s:\ngot  %q\nwant %q\n%s", c.script, s.Stdout, c.want, s.Stderr)
				}
			}
			if s := sh(t, p, id, ask("allowed.test:443")); strings.Contains(string(s.Stdout), " 200 ") != (through == "200") {
				t.Errorf("the guard: %q", s.Stdout)
			}
			if n := l.ends.Load(); n != int64(i) {
				t.Errorf("%d leases ended before their machine", n)
			}
			if _, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{}); err != nil {
				t.Error(err)
			}
			if n := l.ends.Load(); n != int64(i+1) {
				t.Errorf("%d leases ended, want %d", n, i+1)
			}
			if left := census(t, p); len(left) > 0 {
				t.Errorf("left:\n%s", strings.Join(left, "\n"))
			}
		}
	})
}

// Each attendant dies for itself: without the relay egress goes on and models are
// dead, without the guard the other way round.
func TestModel_TheOtherAttendantLives(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		l := routed(t, guarded(p, "plain"))
		for _, dead := range []string{"relay", "guard"} {
			id := activate(t, p, allowing(p, listed))
			in, err := p.find(sandbox.OpExecute, id)
			if err != nil {
				t.Fatal(err)
			}
			victim := in.relay
			if dead == "guard" {
				victim = in.guard
			}
			reach := func() (guard, model bool) {
				return strings.Contains(string(sh(t, p, id, ask("allowed.test:443")).Stdout), " 200 "),
					strings.Contains(string(sh(t, p, id, askModel).Stdout), "status 0")
			}
			if guard, model := reach(); !guard || !model {
				t.Fatalf("before: guard %v, model %v", guard, model)
			}
			if err := unix.Kill(victim.PID(), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			ended(t, victim)
			if guard, model := reach(); guard != (dead == "relay") || model != (dead == "guard") {
				t.Errorf("without the %s: guard %v, model %v", dead, guard, model)
			}
			if err := p.Destroy(t.Context(), id); err != nil || l.last.RelayEnded != (dead == "relay") {
				t.Errorf("%v; the relay ended before its machine: %v", err, l.last.RelayEnded)
			}
		}
	})
}

// A key of the caller's own would be one that the workload holds, and a base URL a
// way around the relay. The refusal does not repeat it.
func TestModel_TheCallerSetsNoKey(t *testing.T) {
	p := newProvider(t, "runc")
	routed(t, p)
	id := activate(t, p, request(p))
	for _, key := range ModelKeys() {
		c := shell("true")
		c.Environment = map[string]string{key: "sk-secret"}
		_, err := p.Execute(t.Context(), id, c)
		_, openErr := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{Executable: "/bin/true", Arguments: []string{}, WorkingDirectory: "/", Environment: c.Environment})
		for _, err := range []error{err, openErr} {
			if invalid, ok := errors.AsType[*sandbox.Invalid](err); !ok || invalid.Field != "environment."+key || strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

// What the image sets of either API is gone; beside a route it would be another
// way, or another key.
func TestModel_TheImageSetsNoKey(t *testing.T) {
	in := &instance{lease: &Lease{Token: "cfu_run_x"}, env: []string{"ANTHROPIC_AUTH_TOKEN=sk-a", "OPENAI_API_KEY=sk-b", "http_proxy=http://10.0.0.1:1", "NO_PROXY=x"}}
	got := strings.Join(in.environment(nil), "\n")
	for _, bad := range []string{"sk-", "AUTH_TOKEN", "NO_PROXY=x"} {
		if strings.Contains(got, bad) {
			t.Errorf("%s in %s", bad, got)
		}
	}
	if in.lease = nil; !strings.Contains(strings.Join(in.environment(nil), "\n"), "OPENAI_API_KEY=sk-b") {
		t.Error("without a route the image's own is gone")
	}
}

// A gateway that leases nothing is no machine, and nothing is made.
func TestModel_NoLeaseNoMachine(t *testing.T) {
	p := newProvider(t, "runc")
	p.opt.Model = &Model{Lease: func(context.Context, sandbox.ProvisionRequest) (*Lease, error) { return nil, errors.New("no gateway") }}
	var failed *sandbox.Error
	if _, err := p.Provision(t.Context(), request(p)); !errors.As(err, &failed) || failed.Reason != "model_route" {
		t.Errorf("%v", err)
	}
	l := routed(t, p)
	p.opt.Model.Start = testGuard(p.opt.Dir, "missing").Start
	id := provision(t, p, request(p))
	if _, err := p.Activate(t.Context(), id); err == nil || !strings.Contains(err.Error(), "start the model relay") {
		t.Errorf("%v", err)
	}
	if err := p.Destroy(t.Context(), id); err != nil || l.ends.Load() == 0 {
		t.Errorf("%v, %d", err, l.ends.Load())
	}
	if left := census(t, p); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

// A gateway that does not answer holds up no dismantling: its machine is gone
// before the lease has ended, and the removal ends after both.
func TestModel_TheLeaseEndsBesideTheMachine(t *testing.T) {
	p := newProvider(t, "runc")
	l := routed(t, p)
	id := provision(t, p, request(p))
	removed, over := make(chan struct{}), false
	p.opt.Step = func(step string) {
		if step == "removed" {
			close(removed)
		}
	}
	l.last.End = func(context.Context) {
		select {
		case <-removed:
		case <-time.After(30 * time.Second):
			t.Error("the machine waits for its lease")
		}
		over = true
	}
	if err := p.Destroy(t.Context(), id); err != nil || !over {
		t.Errorf("%v, the lease has ended: %v", err, over)
	}
}

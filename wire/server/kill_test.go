package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

// killedDir makes the test binary a server that is to be killed.
const killedDir = "CHECKFU_TEST_SERVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedDir); dir != "" {
		if err := serveUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serveUntilKilled serves a provider that writes down everything it does before
// it answers.
func serveUntilKilled(dir string) error {
	effects, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	note := func(what string) error {
		_, err := effects.WriteString(what + "\n")
		return err
	}
	h := &hooked{Provider: memory.New(memory.Options{Seed: strconv.Itoa(os.Getpid()), Clock: memory.NewManual(start)})}
	h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		if err := note("provision " + r.RunID); err != nil {
			return sandbox.Handoff[sandbox.Instance]{}, err
		}
		return h.Provider.Provision(ctx, r)
	}
	h.execute = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		if err := note("execute " + c.Arguments[1]); err != nil {
			return sandbox.Settlement{}, err
		}
		return h.Provider.Execute(ctx, id, c)
	}
	s, err := New(Options{Provider: h, Journal: logstore.At(filepath.Join(dir, "state")), Authenticate: Anybody, Clock: newThenClock()})
	if err != nil {
		return err
	}
	l, err := Listen(context.Background(), "unix:"+filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	return Serve(context.Background(), l, s, nil)
}

// victim is a server in another process.
type victim struct {
	dir  string
	cmd  *exec.Cmd
	http *http.Client
}

func (v *victim) start(t *testing.T) {
	t.Helper()
	v.cmd = exec.Command(os.Args[0])
	v.cmd.Env = append(os.Environ(), killedDir+"="+v.dir)
	v.cmd.Stderr = os.Stderr
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(v.dir, "s")
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // another process's start has no event
	}
	v.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
	v.http.CloseIdleConnections()
}

// call makes one call, which fails where the server was killed in the middle.
func (v *victim) call(e wire.Endpoint, op wire.OperationID, m wire.Message) (status int, body []byte, err error) {
	t, _ := e.Traits()
	media := wire.MediaJSON
	if t.FramedRequest {
		b, err := wire.NewBody(m, nil)
		if err != nil {
			return 0, nil, err
		}
		if body, err = io.ReadAll(b.Reader()); err != nil {
			return 0, nil, err
		}
		media = wire.MediaFrames
	} else if body, err = wire.Encode(m); err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequest(http.MethodPost, "http://unix"+e.Path(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	wire.RequestHeader{Lease: wire.Lease{ID: "l", Epoch: 1}, Operation: op, Wait: 20 * time.Second}.Set(r.Header, e)
	r.Header.Set("Content-Type", media)
	resp, err := v.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// A server is killed again and again in the middle of many calls, each of which
// is repeated under its id until it is answered. No effect happens twice, and
// what was answered is answered again.
func TestW34AKilledServerDoublesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	const kills, workers = 12, 8
	v := &victim{dir: t.TempDir()}
	v.start(t)
	defer func() { v.kill() }()
	var mu sync.RWMutex // held by the killer
	var answers sync.Map
	stop := make(chan struct{})
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("%d.%d", w, n)
				op := wire.NewOperationID()
				r := provisionRequest()
				r.RunID = name
				var id sandbox.InstanceID
				again := func(e wire.Endpoint, op wire.OperationID, m wire.Message) []byte {
					for {
						mu.RLock()
						status, body, err := v.call(e, op, m)
						mu.RUnlock()
						if err == nil && status != 503 {
							if op != "" && !mayRunAgain[e] {
								answers.Store(op, answer{status: status, body: body})
							}
							return body
						}
					}
				}
				if h, err := wire.Decode[wire.InstanceHandoff](again(wire.Provision, op, r)); err == nil {
					id = h.Value.InstanceID
					again(wire.Activate, wire.NewOperationID(), wire.InstanceRequest{InstanceID: id})
					again(wire.Execute, wire.NewOperationID(), wire.ExecuteCall{InstanceID: id, Command: command("echo " + name)})
					pr := wire.NewProcessID()
					again(wire.OpenProcess, wire.NewOperationID(), wire.OpenProcessRequest{InstanceID: id, ProcessID: pr, Process: sandbox.ProcessRequest{
						Executable: "cat", Arguments: []string{}, WorkingDirectory: "/", Environment: map[string]string{},
					}})
					for range 3 {
						body := again(wire.ProcessWait, "", wire.WaitRequest{InstanceID: id, ProcessID: pr, WaitMS: 5})
						if w, err := wire.Decode[wire.Waited](body); err == nil && w.Exit != nil {
							t.Errorf("an exit of a process that never ends: %s", body)
						}
					}
					again(wire.Destroy, wire.NewOperationID(), wire.InstanceRequest{InstanceID: id})
				}
			}
		})
	}
	for range kills {
		time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond) // chance is the point
		_ = v.cmd.Process.Kill()
		mu.Lock() // every call has failed by now
		v.kill()
		v.start(t)
		mu.Unlock()
	}
	close(stop)
	group.Wait()
	seen := map[string]int{}
	log, err := os.ReadFile(filepath.Join(v.dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		seen[line]++
	}
	for line, n := range seen {
		if n != 1 {
			t.Errorf("%d times: %s", n, line)
		}
	}
	if len(seen) < kills {
		t.Errorf("only %d effects", len(seen))
	}
	counts := map[int]int{}
	answers.Range(func(op, first any) bool {
		status, body, err := v.call(wire.PollOperation, "", wire.OperationRequest{OperationID: op.(wire.OperationID)})
		want := first.(answer)
		counts[want.status]++
		// An answer that nobody had to be sure of may be lost with the machine's
		// last moments, but never be another one.
		lost := status == 500 && bytes.Contains(body, []byte("indeterminate"))
		unknown := status == 404 && want.status != 200
		if err != nil || !lost && !unknown && (status != want.status || !bytes.Equal(body, want.body)) {
			t.Errorf("%s: answered %d %s, then %d %s, %v", op, want.status, want.body, status, body, err)
		}
		return true
	})
	t.Logf("%d effects, answers by status: %v", len(seen), counts)
}

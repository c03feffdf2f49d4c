package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
	"github.com/checkfu/checkfu/wire/server"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

// victimDir makes the test binary a server that is to be killed.
const victimDir = "CHECKFU_TEST_VICTIM"

func serveUntilKilled(dir string) int {
	go func() { // a test that is killed itself leaves no server behind
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	err := func() error {
		h, err := newHost(dir)
		if err != nil {
			return err
		}
		s, err := server.New(server.Options{Provider: h, Journal: logstore.At(filepath.Join(dir, "state")), Authenticate: server.Anybody})
		if err != nil {
			return err
		}
		l, err := server.Listen(context.Background(), "unix:"+filepath.Join(dir, "s"))
		if err != nil {
			return err
		}
		return server.Serve(context.Background(), l, s, nil)
	}()
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// victim is a server in a process of its own.
type victim struct {
	*testing.T
	dir string
	cmd *exec.Cmd
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{T: t, dir: socketDir(t)}
	v.start()
	t.Cleanup(v.kill)
	return v
}

func (v *victim) start() {
	v.Helper()
	v.cmd = exec.Command(os.Args[0])
	v.cmd.Env = append(os.Environ(), victimDir+"="+v.dir)
	v.cmd.Stderr = os.Stderr
	if _, err := v.cmd.StdinPipe(); err != nil {
		v.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		v.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		c, err := net.Dial("unix", filepath.Join(v.dir, "s"))
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			v.Fatal(err)
		}
		time.Sleep(time.Millisecond) // another process's start has no event
	}
}

// kill is the end of the server at whatever it does.
func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

func (v *victim) dial() *client.Client {
	v.Helper()
	c, err := client.Dial(v.Context(), client.Options{Base: "unix:" + filepath.Join(v.dir, "s"), Lease: lease, Heartbeat: time.Second})
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(func() { c.Close() })
	return c
}

// effects counts what the provider was asked to do.
func (v *victim) effects() map[string]int {
	v.Helper()
	data, err := os.ReadFile(filepath.Join(v.dir, "effects"))
	if err != nil {
		v.Fatal(err)
	}
	all := map[string]int{}
	for line := range strings.Lines(string(data)) {
		all[strings.TrimSpace(line)]++
	}
	return all
}

// instances names what the provider has on its disk.
func (v *victim) instances() map[sandbox.InstanceID]bool {
	v.Helper()
	list, err := os.ReadDir(filepath.Join(v.dir, "instances"))
	if err != nil {
		v.Fatal(err)
	}
	all := map[sandbox.InstanceID]bool{}
	for _, e := range list {
		all[sandbox.InstanceID(e.Name())] = true
	}
	return all
}

// nothing fails the test where the provider has anything left once orphans were
// swept.
func (v *victim) nothing(c *client.Client) {
	v.Helper()
	late := sandbox.At(time.Now().Add(2 * time.Hour))
	if _, err := c.Cleanup(v.Context(), sandbox.CleanupRequest{Now: late, OrphanedBefore: late}); err != nil {
		v.Error(err)
	}
	if all := v.instances(); len(all) > 0 {
		v.Errorf("instances are left: %v", all)
	}
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		pids := left(v.dir)
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			v.Fatalf("processes are left: %v", pids)
		}
	}
}

func hostRequest(run string) sandbox.ProvisionRequest {
	r := provision(run)
	r.RunID, r.Profile.RetentionMode = run, sandbox.RetentionEphemeralZDR
	r.ExpiresAt = sandbox.At(time.Now().Add(time.Hour))
	return r
}

// unknown says that nobody knows whether a call had its effect: the one thing
// that a call under which a server dies may say, beside its answer.
func unknown(err error) bool {
	return errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonIndeterminate})
}

// A server is killed at random points during 200 lifecycles. No instance is
// lost or doubled, no command runs twice, and what a Runner was told is so.
func TestW34AServerKilledDuringLifecycles(t *testing.T) {
	settled(t)
	v := newVictim(t)
	c := v.dial()
	workers, each := 10, 20
	if testing.Short() {
		each = 5
	}
	var mu sync.Mutex
	kept := map[sandbox.InstanceID]string{}
	var whole, unclear atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for n := range each {
				run := fmt.Sprintf("run.%d.%d", w, n)
				id, sure, err := lifecycle(ctx, c, run)
				switch {
				case err != nil:
					t.Errorf("%s: %v", run, err)
				case !sure:
					unclear.Add(1)
				default:
					whole.Add(1)
				}
				if id == "" {
					continue
				}
				if n%5 == 0 { // lives on
					mu.Lock()
					kept[id] = run
					mu.Unlock()
				} else if err := c.Destroy(ctx, id); err != nil {
					t.Errorf("%s: destroy: %v", run, err)
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { group.Wait(); close(over) }()
	random, kills := rand.New(rand.NewPCG(1, 2)), 0
	for running := true; running; {
		// The moment is what matters, so chance has to choose it.
		after := time.NewTimer(time.Duration(15+random.IntN(60)) * time.Millisecond)
		select {
		case <-over:
			running = false
		case <-after.C:
			v.kill()
			v.start()
			kills++
		}
		after.Stop()
	}
	for what, n := range v.effects() {
		if n > 1 {
			t.Errorf("%d times: %s", n, what)
		}
	}
	there := v.instances()
	for id, run := range kept {
		if !there[id] {
			t.Errorf("%s is lost", run)
			continue
		}
		s, err := c.Execute(ctx, id, command("echo $((6 * 7))"))
		if err != nil || string(s.Stdout) != "42\n" {
			t.Errorf("%s: %q %v", run, s.Stdout, err)
		}
		if err := c.Destroy(ctx, id); err != nil {
			t.Error(err)
		}
	}
	orphans := len(v.instances())
	t.Logf("%d kills; %d lifecycles whole, %d with a call of unknown outcome; %d kept, %d orphans", kills, whole.Load(), unclear.Load(), len(kept), orphans)
	if orphans > int(unclear.Load()) {
		t.Errorf("%d orphans, but only %d calls of unknown outcome", orphans, unclear.Load())
	}
	if kills < each/4 || whole.Load() < int64(workers*each/10) {
		t.Errorf("%d kills, %d whole", kills, whole.Load())
	}
	v.nothing(c)
}

// lifecycle takes one instance from its beginning to a command that ran. sure
// says that every call had an answer; an id says that the instance is there.
func lifecycle(ctx context.Context, c *client.Client, run string) (id sandbox.InstanceID, sure bool, err error) {
	h, err := c.Provision(ctx, hostRequest(run))
	if err != nil {
		if unknown(err) {
			err = nil
		}
		return "", false, err
	}
	id, sure = h.Value.InstanceID, true
	if h.Value.RunID != run {
		return id, false, fmt.Errorf("another one's instance: %s", h.Value.RunID)
	}
	if err := c.WriteFile(ctx, id, sandbox.FileWrite{Path: "/mnt/rw/runs", Content: []byte(run + "\n")}); err != nil {
		return id, false, fmt.Errorf("write: %w", err)
	}
	if _, err := c.Activate(ctx, id); err != nil {
		if unknown(err) {
			// Whoever cannot take it over active does not use it.
			return "", false, c.Destroy(ctx, id)
		}
		return id, false, fmt.Errorf("activate: %w", err)
	}
	s, err := c.Execute(ctx, id, command("echo ran >>runs; cat runs"))
	if err != nil {
		if !unknown(err) {
			return id, false, fmt.Errorf("execute: %w", err)
		}
		sure = false
	} else if want := run + "\nran\n"; string(s.Stdout) != want {
		return id, false, fmt.Errorf("execute: %q", s.Stdout)
	}
	got, err := c.ReadFile(ctx, id, sandbox.FileRead{Path: "/mnt/rw/runs", AllowedRoot: "/mnt/rw", MaximumBytes: 1 << 10})
	if err != nil {
		return id, false, fmt.Errorf("read: %w", err)
	}
	if ran := strings.Count(string(got), "ran\n"); ran > 1 || ran == 0 && sure || !strings.HasPrefix(string(got), run+"\n") {
		return id, false, fmt.Errorf("read: %q", got)
	}
	return id, sure, nil
}

// A server is killed at random points under 20 live processes, again and again.
// Each of them ends by name: what came before is what was said, no exit is
// invented, and nothing of them runs on.
func TestW94AServerKilledUnderLiveProcesses(t *testing.T) {
	settled(t)
	v := newVictim(t)
	c := v.dial()
	const processes = 20
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	var ids []sandbox.InstanceID
	for n := range processes {
		h, err := c.Provision(t.Context(), hostRequest(fmt.Sprint("live.", n)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Activate(t.Context(), h.Value.InstanceID); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, h.Value.InstanceID)
	}
	random := rand.New(rand.NewPCG(3, 4))
	var lines, opened atomic.Int64
	for round := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var group sync.WaitGroup
		killed := make(chan struct{})
		for n, id := range ids {
			group.Go(func() {
				said, err := talk(ctx, c, id, killed)
				lines.Add(int64(said))
				if said > 0 {
					opened.Add(1)
				}
				if err != nil {
					t.Errorf("round %d, process %d: %v", round, n, err)
				}
			})
		}
		after := time.NewTimer(time.Duration(random.IntN(150)) * time.Millisecond)
		<-after.C // chance has to choose the moment
		v.kill()
		close(killed)
		v.start()
		group.Wait()
		cancel()
		for end := time.Now().Add(10 * time.Second); len(left(v.dir)) > 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("still running: %v", left(v.dir))
			}
		}
	}
	t.Logf("%d rounds of %d processes: %d of them spoke, %d lines", rounds, processes, opened.Load(), lines.Load())
	if opened.Load() < processes {
		t.Errorf("only %d spoke", opened.Load())
	}
	for what, n := range v.effects() {
		if n > 1 {
			t.Errorf("%d times: %s", n, what)
		}
	}
	// Every instance has room for a process again, and its exit is its own.
	for _, id := range ids {
		p, err := c.OpenProcess(t.Context(), id, string(wire.NewProcessID()), process("cat; exit 7"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p.Input(), "end")
		p.Input().Close()
		out, err := io.ReadAll(p.Output())
		exit, werr := p.Wait(t.Context())
		if string(out) != "end" || err != nil || werr != nil || exit.ExitCode == nil || *exit.ExitCode != 7 {
			t.Errorf("%q %v, %+v %v", out, err, exit, werr)
		}
		if err := c.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	v.nothing(c)
}

// talk speaks with a live process until its server is killed, and says how many
// lines came back. One that the next server opened is destroyed instead.
func talk(ctx context.Context, c *client.Client, id sandbox.InstanceID, killed <-chan struct{}) (lines int, err error) {
	lost := &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonProcessLost}
	p, err := c.OpenProcess(ctx, id, string(wire.NewProcessID()), process("while read A; do echo got $A; done"))
	if err != nil {
		if unknown(err) || errors.Is(err, lost) {
			err = nil
		}
		return 0, err
	}
	out := bufio.NewReader(p.Output())
	for since := 0; ; lines++ {
		select {
		case <-killed:
			since++
		default:
		}
		if since > 3 { // one line may have been on its way
			err := p.Destroy(ctx)
			if exit, werr := p.Wait(ctx); err != nil || werr != nil || exit.Signal != "SIGKILL" {
				return lines, fmt.Errorf("destroyed: %w, %+v %w", err, exit, werr)
			}
			return lines, nil
		}
		_, werr := fmt.Fprintln(p.Input(), "line", lines)
		line, rerr := out.ReadString('\n')
		want := fmt.Sprintln("got line", lines)
		if rerr == nil && werr == nil && line == want {
			continue
		}
		if rerr == nil && line == want { // the answer to a write that was taken, and not acknowledged
			line, rerr = out.ReadString('\n')
			want = ""
		}
		if !strings.HasPrefix(want, line) || !errors.Is(rerr, lost) {
			return lines, fmt.Errorf("line %d: %q, read %w, write %w", lines, line, rerr, werr)
		}
		break
	}
	for range 2 {
		if exit, err := p.Wait(ctx); !errors.Is(err, lost) {
			return lines, fmt.Errorf("an exit out of nothing: %+v, %w", exit, err)
		}
	}
	if err := p.Destroy(ctx); err != nil && !errors.Is(err, lost) {
		return lines, fmt.Errorf("destroy: %w", err)
	}
	return lines, nil
}

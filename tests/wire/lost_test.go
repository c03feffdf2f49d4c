package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// counted is a provider that counts what reaches it, by operation.
type counted struct {
	*memory.Provider
	mu    sync.Mutex
	calls map[string]int
}

func newCounted() *counted {
	return &counted{Provider: memory.New(memory.Options{Seed: "lost"}), calls: map[string]int{}}
}

func (c *counted) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[what]++
}

func (c *counted) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	c.count("provision")
	h, err := c.Provider.Provision(ctx, r)
	return undoing(c, "provision", h), err
}

func (c *counted) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	c.count("activate")
	h, err := c.Provider.Activate(ctx, id)
	return undoing(c, "activate", h), err
}

func (c *counted) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	c.count("write_file")
	return c.Provider.WriteFile(ctx, id, w)
}

func (c *counted) Execute(ctx context.Context, id sandbox.InstanceID, k sandbox.Command) (sandbox.Settlement, error) {
	c.count("execute")
	return c.Provider.Execute(ctx, id, k)
}

func (c *counted) Snapshot(ctx context.Context, id sandbox.InstanceID, r sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	c.count("snapshot")
	h, err := c.Provider.Snapshot(ctx, id, r)
	return undoing(c, "snapshot", h), err
}

func (c *counted) CloneSnapshot(ctx context.Context, r sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	c.count("clone_snapshot")
	h, err := c.Provider.CloneSnapshot(ctx, r)
	return undoing(c, "clone_snapshot", h), err
}

func (c *counted) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	c.count("release")
	h, err := c.Provider.Release(ctx, id, r)
	return undoing(c, "release", h), err
}

func (c *counted) Resume(ctx context.Context, r sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	c.count("resume")
	h, err := c.Provider.Resume(ctx, r)
	return undoing(c, "resume", h), err
}

func (c *counted) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	c.count("destroy")
	return c.Provider.Destroy(ctx, id)
}

func (c *counted) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	c.count("destroy_snapshot")
	return c.Provider.DestroySnapshot(ctx, id)
}

func (c *counted) Cleanup(ctx context.Context, r sandbox.CleanupRequest) (sandbox.Swept, error) {
	c.count("cleanup")
	return c.Provider.Cleanup(ctx, r)
}

func (c *counted) Optional() sandbox.Optional {
	o := c.Provider.Optional()
	o.OpenProcess, o.ActiveWrite = c, c
	return o
}

func (c *counted) OpenProcess(ctx context.Context, id sandbox.InstanceID, process string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	c.count("open_process")
	p, err := c.Provider.OpenProcess(ctx, id, process, r)
	if err != nil {
		return nil, err
	}
	return countedProcess{p, c}, nil
}

type countedProcess struct {
	sandbox.Process
	c *counted
}

func (p countedProcess) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	p.c.count("process_signal")
	return p.Process.Signal(ctx, s)
}

func (c *counted) BeginActiveWrite(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
	c.count("begin_active_write")
	w, err := c.Provider.BeginActiveWrite(ctx, id, targets)
	if err != nil {
		return nil, err
	}
	return countedWrite{w, c}, nil
}

type countedWrite struct {
	sandbox.ActiveWrite
	c *counted
}

func (w countedWrite) Stage(ctx context.Context, f sandbox.FileWrite) error {
	w.c.count("stage_active_write")
	return w.ActiveWrite.Stage(ctx, f)
}

func (w countedWrite) Dispatch(ctx context.Context, marker func()) error {
	w.c.count("dispatch_active_write")
	return w.ActiveWrite.Dispatch(ctx, marker)
}

func (w countedWrite) Abort(ctx context.Context) error {
	w.c.count("abort_active_write")
	return w.ActiveWrite.Abort(ctx)
}

// undoing counts the compensation of a handoff.
func undoing[T any](c *counted, what string, h sandbox.Handoff[T]) sandbox.Handoff[T] {
	if undo := h.Rollback; undo != nil {
		h.Rollback = func(ctx context.Context) error {
			c.count("rollback of " + what)
			return undo(ctx)
		}
	}
	return h
}

// everything calls every member that changes something, once or a few times,
// and tells what it saw.
func everything(ctx context.Context, p sandbox.Provider) (saw []string, err error) {
	see := func(what string, value any) { saw = append(saw, fmt.Sprintf("%s: %+v", what, value)) }
	fail := func(what string, err error) ([]string, error) { return saw, fmt.Errorf("%s: %w", what, err) }
	later := sandbox.At(epoch.Add(2 * time.Hour))

	h, err := p.Provision(ctx, provision("a"))
	if err != nil {
		return fail("provision", err)
	}
	see("provisioned", h.Value)
	id := h.Value.InstanceID
	if err := p.WriteFile(ctx, id, sandbox.FileWrite{Path: "/mnt/rw/f", Content: []byte("content\n")}); err != nil {
		return fail("write", err)
	}
	a, err := p.Activate(ctx, id)
	if err != nil {
		return fail("activate", err)
	}
	see("activated", a.Value)
	s, err := p.Execute(ctx, id, command("echo line >> /mnt/rw/f; cat /mnt/rw/f; echo e >&2"))
	if err != nil {
		return fail("execute", err)
	}
	see("executed", fmt.Sprintf("%q %q %+v", s.Stdout, s.Stderr, *s.Exit.ExitCode))

	w, err := p.Optional().ActiveWrite.BeginActiveWrite(ctx, id, []string{"/mnt/rw/g"})
	if err != nil {
		return fail("begin", err)
	}
	if err := w.Stage(ctx, sandbox.FileWrite{Path: "/mnt/rw/g", Content: []byte("staged\n")}); err != nil {
		return fail("stage", err)
	}
	marks := 0
	if err := w.Dispatch(ctx, func() { marks++ }); err != nil {
		return fail("dispatch", err)
	}
	state, err := w.Inspect(ctx)
	see("dispatched", fmt.Sprint(marks, state, err))
	if w, err = p.Optional().ActiveWrite.BeginActiveWrite(ctx, id, []string{"/mnt/rw/h"}); err != nil {
		return fail("begin again", err)
	}
	if err := w.Abort(ctx); err != nil {
		return fail("abort", err)
	}

	live, err := p.Optional().OpenProcess.OpenProcess(ctx, id, "pr_"+strings.Repeat("a", 32), process("read A; echo $A >> /mnt/rw/f; cat"))
	if err != nil {
		return fail("open", err)
	}
	if _, err := io.WriteString(live.Input(), "typed\nmore\n"); err != nil {
		return fail("input", err)
	}
	echo := make([]byte, 5)
	if _, err := io.ReadFull(live.Output(), echo); err != nil {
		return fail("output", err)
	}
	if err := live.Signal(ctx, sandbox.SignalTerminate); err != nil {
		return fail("signal", err)
	}
	exit, err := live.Wait(ctx)
	see("signalled", fmt.Sprintf("%q %+v %v", echo, exit.Signal, err))
	if live, err = p.Optional().OpenProcess.OpenProcess(ctx, id, "pr_"+strings.Repeat("b", 32), process("cat")); err != nil {
		return fail("open again", err)
	}
	if err := live.Destroy(ctx); err != nil {
		return fail("destroy process", err)
	}
	exit, err = live.Wait(ctx)
	see("destroyed", fmt.Sprintf("%+v %v", exit.Signal, err))

	snap, err := p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
	if err != nil {
		return fail("snapshot", err)
	}
	see("snapshot", snap.Value)
	clone, err := p.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: snap.Value, TargetSessionID: "b"})
	if err != nil {
		return fail("clone", err)
	}
	see("clone", clone.Value)
	r := provision("b")
	r.LeaseEpoch = 1
	back, err := p.Resume(ctx, sandbox.ResumeRequest{Request: r, Snapshot: clone.Value})
	if err != nil {
		return fail("resume", err)
	}
	s, err = p.Execute(ctx, back.Value.InstanceID, command("cat /mnt/rw/f /mnt/rw/g"))
	if err != nil {
		return fail("execute again", err)
	}
	see("resumed", fmt.Sprintf("%q", s.Stdout))
	released, err := p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
	if err != nil {
		return fail("release", err)
	}
	see("released", *released.Value.Snapshot)
	if err := p.DestroySnapshot(ctx, snap.Value.SnapshotID); err != nil {
		return fail("destroy snapshot", err)
	}
	if err := p.Destroy(ctx, back.Value.InstanceID); err != nil {
		return fail("destroy", err)
	}
	if h, err = p.Provision(ctx, provision("c")); err != nil {
		return fail("provision again", err)
	}
	if err := h.Rollback(ctx); err != nil {
		return fail("rollback", err)
	}
	swept, err := p.Cleanup(ctx, sandbox.CleanupRequest{Now: sandbox.At(epoch.Add(24 * time.Hour)), OrphanedBefore: sandbox.At(epoch.Add(24 * time.Hour))})
	if err != nil {
		return fail("cleanup", err)
	}
	see("swept", swept)
	return saw, nil
}

// A delivery that goes wrong in any way, of any call that changes something,
// has exactly one effect, and its Runner sees what it would have seen.
func TestW01W03W22ALostAnswerHasOneEffect(t *testing.T) {
	settled(t)
	bare := newCounted()
	want, err := everything(t.Context(), bare)
	if err != nil {
		t.Fatal(err)
	}
	faults := []faultproxy.Fault{
		{Kind: faultproxy.Refuse}, {Kind: faultproxy.CutRequest, After: 1}, {Kind: faultproxy.CutRequest, After: 300},
		{Kind: faultproxy.Lose}, {Kind: faultproxy.CutResponse, After: 1}, {Kind: faultproxy.CutResponse, After: 200},
		{Kind: faultproxy.Untyped}, {Kind: faultproxy.Double}, {Kind: faultproxy.Echo}, {Kind: faultproxy.HalfClose},
		{Kind: faultproxy.Garbage}, {Kind: faultproxy.Stall, After: 100}, {Kind: faultproxy.Stale},
	}
	for _, e := range wire.Endpoints() {
		traits, _ := e.Traits()
		if !traits.Mutating && e != wire.RollbackOperation && e != wire.ProcessDestroy && e != wire.ProcessInput && e != wire.InspectActiveWrite {
			continue
		}
		for _, f := range faults {
			t.Run(fmt.Sprint(e, " ", f.Kind, f.After), func(t *testing.T) {
				t.Parallel()
				p := newCounted()
				l := serve(t, p).connect(faultproxy.First(e.Path(), f), nil)
				saw, err := everything(t.Context(), l)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(saw, want) {
					for i := range want {
						if i >= len(saw) || saw[i] != want[i] {
							t.Errorf("saw %s\nwant %s", saw[min(i, len(saw)-1)], want[i])
						}
					}
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				if !reflect.DeepEqual(p.calls, bare.calls) || !reflect.DeepEqual(p.Census(), bare.Census()) {
					t.Errorf("the provider was called %v and has %v; bare %v and %v", p.calls, p.Census(), bare.calls, bare.Census())
				}
				// The last answer is through before what is done to its connection is.
				for late := time.Now().Add(30 * time.Second); l.proxy.Faults()[f.Kind] == 0 && time.Now().Before(late); {
					time.Sleep(time.Millisecond)
				}
				if n := l.proxy.Faults()[f.Kind]; n != 1 {
					t.Errorf("%d faults", n)
				}
			})
		}
	}
}

// An allocation of which no answer ever comes is undone by its id: the Runner
// that gives up leaves nothing.
func TestW31NoAnswerAtAllLeavesNothing(t *testing.T) {
	settled(t)
	for _, e := range []wire.Endpoint{wire.Provision, wire.Activate, wire.Snapshot, wire.CloneSnapshot, wire.Release, wire.Resume, wire.OpenProcess} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			p := newCounted()
			l := serve(t, p).connect(faultproxy.On(e.Path(), faultproxy.Fault{Kind: faultproxy.Lose}), nil)
			before := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			later := sandbox.At(epoch.Add(2 * time.Hour))
			var id sandbox.InstanceID
			var snap sandbox.Snapshot
			if e != wire.Provision {
				h, err := l.Provision(t.Context(), provision("s"))
				before(err)
				id = h.Value.InstanceID
			}
			if e != wire.Provision && e != wire.Activate {
				_, err := l.Activate(t.Context(), id)
				before(err)
			}
			if e == wire.CloneSnapshot || e == wire.Resume {
				h, err := l.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: later})
				before(err)
				snap = h.Value
			}
			left := p.Census()
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			defer cancel()
			var err error
			switch e {
			case wire.Provision:
				_, err = l.Provision(ctx, provision("s"))
			case wire.Activate:
				_, err = l.Activate(ctx, id)
				left = []string{} // what could not be taken over active is not used again
			case wire.Snapshot:
				_, err = l.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
			case wire.CloneSnapshot:
				_, err = l.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: snap, TargetSessionID: "t"})
			case wire.Release:
				_, err = l.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
				left = []string{} // the instance stays gone, the snapshot goes
			case wire.Resume:
				_, err = l.Resume(ctx, sandbox.ResumeRequest{Request: provision("s"), Snapshot: snap})
			case wire.OpenProcess:
				_, err = l.OpenProcess(ctx, id, string(wire.NewProcessID()), process("cat"))
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("ended with %v", err)
			}
			if got := p.Census(); !reflect.DeepEqual(got, left) {
				t.Errorf("there is %v, want %v", got, left)
			}
			if e == wire.OpenProcess { // its place is free again
				if _, err := p.OpenProcess(t.Context(), id, "pr_after", process("true")); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/volume"
	"github.com/checkfu/checkfu/sandbox"
)

// splicing gives a running durable machine in which a process is in the middle of a
// write to its home that never ends.
func splicing(t *testing.T, p *Provider) (sandbox.InstanceID, sandbox.ProvisionRequest) {
	t.Helper()
	r := retained(p, work)
	id := provision(t, p, r)
	program, err := os.ReadFile(buildStatic(t, "./testdata/hostile"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: "/workspace/repo/hostile", Content: program, Executable: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	proc := open(t, p, id, "exec /workspace/repo/hostile splice $HOME/never")
	if _, err := proc.Output().Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if p.opt.Driver.Name() == "runc" { // the host sees it there; the sentry has its own pipes
		eventually(t, "it is in the middle of its write", func() bool { return inSplice(t, p, id) })
	}
	return id, r
}

// inSplice reports whether a process of the machine is in that call.
func inSplice(t *testing.T, p *Provider, id sandbox.InstanceID) bool {
	t.Helper()
	in, err := p.find(sandbox.OpExecute, id)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := in.machine.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(seen.Pids, func(pid int) bool {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		return slices.ContainsFunc(threads, func(e os.DirEntry) bool {
			call, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, e.Name()))
			return strings.HasPrefix(string(call), fmt.Sprintf("%d ", unix.SYS_SPLICE))
		})
	})
}

// TestDurable_AWriteThatNeverEnds: it holds up no snapshot and no release, for it is
// taken out of it, and goes on afterwards.
func TestDurable_AWriteThatNeverEnds(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		id, r := splicing(t, p)
		for range 2 {
			h, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: later(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
			if p.opt.Driver.Name() == "runc" {
				eventually(t, "it is in its write again", func() bool { return inSplice(t, p, id) })
			}
			mustExit(t, sh(t, p, id, "echo here >$HOME/f"), 0)
		}
		h, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		mustExit(t, sh(t, p, resumed(t, p, r, *h.Value.Snapshot), "[ $(cat $HOME/f) = here ] && [ -e $HOME/never ]"), 0)
		if err := h.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		noneIsKept(t, p)
	})
}

// TestDurable_AHomeThatDoesNotComeToRest: the twin of a machine that is not paused.
// A snapshot is refused within its bound, and an end does not wait for it: nothing
// is left, and nothing frozen.
func TestDurable_AHomeThatDoesNotComeToRest(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		if p.opt.Driver.Name() != "runc" {
			t.Skip("under gVisor no write waits in the host")
		}
		p.twinHome.restless = true
		id, _ := splicing(t, p)
		_, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: later(time.Hour)})
		if !errors.Is(err, volume.ErrRestless) || !errors.Is(err, sandbox.Failed(sandbox.OpSnapshot, sandbox.ReasonProviderError, nil)) {
			t.Errorf("a snapshot: %v", err)
		}
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left: %v", left)
		}

		id, _ = splicing(t, p)
		in, err := p.find(sandbox.OpSnapshot, id)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := p.Release(context.Background(), id, sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)})
			answered <- err
		}()
		eventually(t, "the release has begun", func() bool {
			in.mu.Lock()
			defer in.mu.Unlock()
			return in.moving != nil
		})
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := <-answered; !errors.Is(err, sandbox.NoInstance(sandbox.OpRelease, id)) {
			t.Errorf("the release that was cut short: %v", err)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		noneIsKept(t, p)
	})
}

// TestRemove_EndsTheMachineUnderWhatDoesNotSettle: what was cut short does not come
// to its end while the machine is there.
func TestRemove_EndsTheMachineUnderWhatDoesNotSettle(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		in, err := p.find(sandbox.OpSnapshot, id)
		if err != nil {
			t.Fatal(err)
		}
		ctx, done, err := in.move(t.Context(), sandbox.OpSnapshot)
		if err != nil {
			t.Fatal(err)
		}
		program := open(t, p, id, "sleep 600")
		settled := make(chan struct{})
		go func() {
			defer close(settled)
			defer done()
			<-ctx.Done()
			program.Wait(context.Background()) // it ends with its machine
		}()
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
		<-settled
	})
}

// TestSnapshot_OfAMachineThatDoesNotComeToRest: who asked gives up, and all goes on.
func TestSnapshot_OfAMachineThatDoesNotComeToRest(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		id := durableInstance(t, p, retained(p))
		in, err := p.find(sandbox.OpSnapshot, id)
		if err != nil {
			t.Fatal(err)
		}
		resume, err := in.machine.Pause(t.Context()) // one at a time: a second does not come to be
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for _, op := range []sandbox.Operation{sandbox.OpSnapshot, sandbox.OpRelease} {
			var err error
			if op == sandbox.OpSnapshot {
				_, err = p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later(time.Hour)})
			} else {
				_, err = p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)})
			}
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, sandbox.Failed(op, sandbox.ReasonProviderError, nil)) {
				t.Errorf("%s: %v", op, err)
			}
		}
		noneIsKept(t, p)
		if err := resume(); err != nil {
			t.Fatal(err)
		}
		mustExit(t, sh(t, p, id, "true"), 0)
		h, err := p.Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: later(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

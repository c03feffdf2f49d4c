package native

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// during has do called, once, when the provider reaches a step of the lifecycle.
func during(t *testing.T, p *Provider, step string, do func()) {
	t.Helper()
	before, once := p.opt.Step, sync.Once{}
	p.opt.Step = func(at string) {
		before(at)
		if at == step {
			once.Do(do)
		}
	}
	t.Cleanup(func() { p.opt.Step = before })
}

// durableInstance gives a running durable instance.
func durableInstance(t *testing.T, p *Provider, r sandbox.ProvisionRequest) sandbox.InstanceID {
	t.Helper()
	id := provision(t, p, r)
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// noneIsKept asks for a store without snapshots, as it is after each case.
func noneIsKept(t *testing.T, p *Provider) {
	t.Helper()
	if left := all(t, p); len(left) > 0 {
		t.Errorf("%d snapshots are left", len(left))
	}
	if left, err := filepath.Glob(filepath.Join(p.opt.Dir, "snapshots", "staging", "*")); err != nil || len(left) > 0 {
		t.Errorf("left in staging: %v, %v", left, err)
	}
}

// TestRelease_KeepsWhatWasAcknowledged: a program says what it has written, the
// host is told what it has; all of both is in the snapshot, up to the last moment.
func TestRelease_KeepsWhatWasAcknowledged(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		r := retained(p)
		id := durableInstance(t, p, r)
		var ref sandbox.Snapshot
		for range 3 {
			proc := open(t, p, id, "i=0; while :; do i=$((i+1)); echo $i >>$HOME/f; echo $i; done")
			said := make(chan []byte, 1)
			go func() {
				text, _ := io.ReadAll(proc.Output())
				said <- text
			}()
			written, started := make(chan int, 1), make(chan struct{})
			go func() {
				for n := 1; ; n++ {
					err := p.WriteFile(context.Background(), id, sandbox.FileWrite{Path: sandbox.OutputPath + "/n", Content: []byte(strconv.Itoa(n))})
					if err != nil {
						if !errors.Is(err, sandbox.NoInstance(sandbox.OpWriteFile, id)) {
							t.Error(err)
						}
						written <- n - 1
						return
					}
					if n == 20 {
						close(started)
					}
				}
			}()
			<-started
			mustExit(t, sh(t, p, id, "until [ -s $HOME/f ]; do :; done"), 0)
			h, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			ref = *h.Value.Snapshot
			lines := bytes.Fields(<-said)
			last := "1"
			if len(lines) > 1 { // the last may have been cut off
				last = string(lines[len(lines)-2])
			}
			n := strconv.Itoa(<-written)
			id = resumed(t, p, r, ref)
			mustExit(t, sh(t, p, id, "grep -qx "+last+" $HOME/f && [ $(cat /mnt/session/outputs/n) -ge "+n+" ] && rm $HOME/f"), 0)
			if err := p.DestroySnapshot(t.Context(), ref.SnapshotID); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRelease_OneWins: what is asked of an instance while it is released waits; it
// finds none when that has gone well, and goes on when not.
func TestRelease_OneWins(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		full := filepath.Join(p.opt.Dir, "snapshots", "staging")
		for name, c := range map[string]struct {
			durable, fails bool
			step           string
		}{
			"durable":           {true, false, "frozen"},
			"durable, at end":   {true, false, "stopped"},
			"zero retention":    {false, false, "stopped"},
			"it cannot be kept": {true, true, "frozen"},
		} {
			t.Run(name, func(t *testing.T) {
				r, q := request(p), sandbox.ReleaseRequest{}
				if c.durable {
					r, q = retained(p), sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)}
				}
				id := durableInstance(t, p, r)
				if c.fails {
					if err := unix.Mount("none", full, "tmpfs", 0, "size=64k"); err != nil {
						t.Fatal(err)
					}
				}
				asked := map[sandbox.Operation]func() error{
					sandbox.OpRelease: func() error { _, err := p.Release(context.Background(), id, q); return err },
					sandbox.OpExecute: func() error { _, err := p.Execute(context.Background(), id, shell("true")); return err },
					sandbox.OpWriteFile: func() error {
						return p.WriteFile(context.Background(), id, sandbox.FileWrite{Path: sandbox.OutputPath + "/f", Content: []byte("x")})
					},
					sandbox.OpSnapshot: func() error {
						_, err := p.Snapshot(context.Background(), id, sandbox.SnapshotRequest{ExpiresAt: later(time.Hour)})
						return err
					},
				}
				type answer struct {
					op  sandbox.Operation
					err error
				}
				answers := make(chan answer, len(asked))
				during(t, p, c.step, func() {
					for op, ask := range asked {
						if op == sandbox.OpSnapshot && (!c.durable || c.fails) || op == sandbox.OpRelease && c.fails {
							answers <- answer{op, sandbox.NoInstance(op, id)}
							continue
						}
						go func() { answers <- answer{op, ask()} }()
					}
				})
				h, err := p.Release(t.Context(), id, q)
				if c.fails != (err != nil) {
					t.Errorf("the first: %v", err)
				}
				for range asked {
					a := <-answers
					if a.op == sandbox.OpRelease || a.op == sandbox.OpSnapshot || !c.fails {
						if !errors.Is(a.err, sandbox.NoInstance(a.op, id)) {
							t.Errorf("%s meanwhile: %v", a.op, a.err)
						}
					} else if a.err != nil {
						t.Errorf("%s, of what goes on: %v", a.op, a.err)
					}
				}
				if c.fails {
					if err := unix.Unmount(full, 0); err != nil {
						t.Fatal(err)
					}
				} else if err := h.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
				noneIsKept(t, p)
			})
		}
	})
}

// TestRelease_OfZeroRetentionWaitsForNoCapture: nothing is kept of it, so a batch
// whose files could not be put back is no reason for it to stay.
func TestRelease_OfZeroRetentionWaitsForNoCapture(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		in, err := p.find(sandbox.OpRelease, id)
		if err != nil {
			t.Fatal(err)
		}
		in.capturing <- struct{}{}
		if _, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{}); err != nil {
			t.Error(err)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// TestRelease_WhoGivesUp: before the snapshot nothing has happened, and after it all
// is carried out.
func TestRelease_WhoGivesUp(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		r := retained(p)
		id := durableInstance(t, p, r)
		q := sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)}
		for _, step := range []string{"frozen", "capture: content written"} {
			ctx, cancel := context.WithCancel(t.Context())
			during(t, p, step, cancel)
			h, err := p.Release(ctx, id, q)
			if err == nil { // the copy was past caring
				ref := *h.Value.Snapshot
				id = resumed(t, p, r, ref)
				if err := p.DestroySnapshot(t.Context(), ref.SnapshotID); err != nil {
					t.Error(err)
				}
				if step == "frozen" {
					t.Errorf("%s: released", step)
				}
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", step, err)
			}
			noneIsKept(t, p)
			mustExit(t, sh(t, p, id, "echo here >$HOME/f"), 0)
		}
		gaveUp, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Release(gaveUp, id, q); !errors.Is(err, context.Canceled) {
			t.Errorf("before it began: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		during(t, p, "captured", cancel)
		h, err := p.Release(ctx, id, q)
		if err != nil {
			t.Fatalf("after the snapshot: %v", err)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		mustExit(t, sh(t, p, resumed(t, p, r, *h.Value.Snapshot), "[ $(cat $HOME/f) = here ]"), 0)
		if err := p.DestroySnapshot(t.Context(), h.Value.Snapshot.SnapshotID); err != nil {
			t.Error(err)
		}
	})
}

// TestRelease_WhatCannotBeRemoved: the machine has ended and its remains do not go.
// The snapshot is named, and a release again returns it.
func TestRelease_WhatCannotBeRemoved(t *testing.T) {
	durableDrivers(t, func(t *testing.T, p *Provider) {
		failing, inner := true, p.opt.Driver
		p.opt.Driver = broken{Driver: inner, reap: func() error {
			if failing {
				return errInjected
			}
			return nil
		}}
		defer func() { p.opt.Driver = inner }()
		r := retained(p)
		id := durableInstance(t, p, r)
		mustExit(t, sh(t, p, id, "echo here >$HOME/f"), 0)
		q := sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)}
		_, err := p.Release(t.Context(), id, q)
		kept := all(t, p)
		if len(kept) != 1 || !errors.Is(err, errInjected) || !errors.Is(err, sandbox.Failed(sandbox.OpRelease, sandbox.ReasonNotRemoved, nil)) || !bytes.Contains([]byte(err.Error()), []byte(kept[0])) {
			t.Fatalf("%v, and %v are kept", err, kept)
		}
		if _, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: later(2 * time.Hour)}); !errors.Is(err, sandbox.Conflict(sandbox.OpRelease, "expires_at "+string(q.ExpiresAt), "")) {
			t.Errorf("for longer: %v", err)
		}
		failing = false
		h, err := p.Release(t.Context(), id, q)
		if err != nil || h.Value.Snapshot.SnapshotID != kept[0] {
			t.Fatalf("again: %+v, %v", h.Value, err)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if !slices.Equal(all(t, p), kept) {
			t.Errorf("%v are kept, expected %v", all(t, p), kept)
		}
		mustExit(t, sh(t, p, resumed(t, p, r, *h.Value.Snapshot), "[ $(cat $HOME/f) = here ]"), 0)
		if err := p.DestroySnapshot(t.Context(), kept[0]); err != nil {
			t.Error(err)
		}
	})
}

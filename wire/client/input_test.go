package client

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// guest takes input as a provider does: offsets, credit, all or nothing.
type guest struct {
	taken  []byte
	limit  atomic.Int64 // also raised by tests
	ended  bool
	closed string // a cause
}

func (g *guest) input(d *delivery) (wire.Window, error) {
	r := wire.NewReader(bytes.NewReader(d.body))
	call, err := wire.ReadCall[wire.InputCall](r)
	if err != nil {
		return wire.Window{}, err
	}
	data, err := wire.ReadData(r, 0, wire.MaxInputBytes)
	if err != nil {
		return wire.Window{}, err
	}
	w := wire.Window{InputOffset: int64(len(g.taken)), InputCredit: g.limit.Load() - int64(len(g.taken))}
	fail := func(tag wire.Tag) (wire.Window, error) {
		return w, &wire.Error{Tag: tag, InputOffset: w.InputOffset, InputCredit: w.InputCredit, Cause: g.closed}
	}
	if call.Offset > w.InputOffset {
		return fail(wire.TagInputGap)
	}
	rest := data[min(int64(len(data)), w.InputOffset-call.Offset):]
	switch {
	case g.closed != "":
		return fail(wire.TagInputClosed)
	case int64(len(rest)) > w.InputCredit:
		return fail(wire.TagInputBufferFull)
	}
	g.taken = append(g.taken, rest...)
	g.ended = g.ended || call.End
	return wire.Window{InputOffset: int64(len(g.taken)), InputCredit: g.limit.Load() - int64(len(g.taken))}, nil
}

// fed runs a process whose input answer handles; windows sent on the channel
// go down its stream.
func fed(t *testing.T, answer func(d *delivery), test func(t *testing.T, p *peer, proc sandbox.Process, windows chan<- wire.Window)) {
	t.Helper()
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		windows := make(chan wire.Window)
		p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
		p.on(wire.ProcessInput, answer)
		p.on(wire.ProcessStream, func(d *delivery) {
			w := d.frames()
			w.Message(wire.TypeOpen, opened())
			beat := time.NewTicker(10 * time.Second)
			defer beat.Stop()
			for {
				select {
				case m, ok := <-windows:
					if !ok {
						ending(w, "", 0)
						return
					}
					w.Message(wire.TypeWindow, m)
				case <-beat.C:
					w.Ping()
				case <-d.r.Context().Done():
					return
				}
			}
		})
		proc, err := c.OpenProcess(t.Context(), "i1", procID, program())
		if err != nil {
			t.Fatal(err)
		}
		test(t, p, proc, windows)
	})
}

// W80: 1.37 MiB pass through 64 KiB of credit, and W77, W83: lost answers double
// nothing.
func TestInputThroughSmallCredit(t *testing.T) {
	g := &guest{}
	g.limit.Store(64 << 10)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1370<<10/16)
	fed(t, func(d *delivery) {
		w, err := g.input(d)
		g.limit.Store(int64(len(g.taken)) + 64<<10) // the guest has read it all
		w.InputCredit = 64 << 10
		switch {
		case d.n%3 == 0:
			d.drop() // it was applied, nobody hears of it
		case err != nil:
			d.fail(err)
		default:
			d.reply(200, w)
		}
	}, func(t *testing.T, p *peer, proc sandbox.Process, windows chan<- wire.Window) {
		n, err := proc.Input().Write(sent)
		if n != len(sent) || err != nil {
			t.Error(n, err)
		}
		for range 2 {
			if err := proc.Input().Close(); err != nil {
				t.Error(err)
			}
		}
		if !bytes.Equal(g.taken, sent) || !g.ended {
			t.Errorf("%d bytes of %d, ended %v", len(g.taken), len(sent), g.ended)
		}
		if _, err := proc.Input().Write([]byte("x")); err != io.ErrClosedPipe {
			t.Error(err)
		}
	})
}

// W79, W81: without credit a write waits, also for minutes; a window that was
// overtaken opens nothing.
func TestInputWaitsForWindow(t *testing.T) {
	g := &guest{}
	g.limit.Store(64 << 10)
	fed(t, func(d *delivery) {
		w, err := g.input(d)
		if err != nil {
			d.fail(err)
			return
		}
		d.reply(200, w)
	}, func(t *testing.T, p *peer, proc sandbox.Process, windows chan<- wire.Window) {
		done := make(chan error)
		go func() {
			_, err := proc.Input().Write(make([]byte, 64<<10+10))
			done <- err
		}()
		synctest.Wait()
		windows <- wire.Window{InputOffset: 10, InputCredit: 20}
		time.Sleep(5 * time.Minute)
		select {
		case err := <-done:
			t.Fatal("written without credit", err)
		default:
		}
		g.limit.Add(10)
		began := time.Now()
		windows <- wire.Window{InputOffset: 64 << 10, InputCredit: 10}
		if err := <-done; err != nil || len(g.taken) != 64<<10+10 || time.Since(began) != 0 {
			t.Error(err, len(g.taken), time.Since(began))
		}
	})
}

// Where no window comes down the stream, it is asked for.
func TestInputAsksForWindow(t *testing.T) {
	g := &guest{}
	g.limit.Store(64 << 10)
	fed(t, func(d *delivery) {
		if d.n == 5 {
			g.limit.Add(1000)
		}
		w, err := g.input(d)
		if err != nil {
			d.fail(err)
			return
		}
		d.reply(200, w)
	}, func(t *testing.T, p *peer, proc sandbox.Process, windows chan<- wire.Window) {
		if _, err := proc.Input().Write(make([]byte, 64<<10+10)); err != nil || len(g.taken) != 64<<10+10 {
			t.Error(err, len(g.taken))
		}
	})
}

// What a provider may answer to one write, and what its writer is told.
func TestInputAnswers(t *testing.T) {
	refuse := func(e wire.Error) func(*delivery) { return func(d *delivery) { d.fail(&e) } }
	for _, c := range []struct {
		name   string
		answer func(*delivery)
		want   string
	}{
		{"the guest closed it", refuse(wire.Error{Tag: wire.TagInputClosed, Cause: wire.CauseGuestClosed}), "closed"},
		{"exited", refuse(wire.Error{Tag: wire.TagInputClosed, Cause: wire.CauseExited}), "closed"},
		{"fenced", refuse(wire.Error{Tag: wire.TagLeaseFenced, LeaseEpoch: 9}), "SandboxLifecycleConflict stale_lease"},
		{"gone", refuse(wire.Error{Tag: wire.TagProcessNotFound}), "SandboxOperationFailed process_lost"},
		{"took less", func(d *delivery) { d.reply(200, wire.Window{InputOffset: 2}) }, "protocol input_offset"},
		{"took more", func(d *delivery) { d.reply(200, wire.Window{InputOffset: 4}) }, "protocol input_offset"},
		{"a gap of nothing", refuse(wire.Error{Tag: wire.TagInputGap}), "protocol input_offset"},
		{"full with room", refuse(wire.Error{Tag: wire.TagInputBufferFull, InputCredit: 3}), "protocol input_credit"},
		{"malformed", refuse(wire.Error{Tag: wire.TagMalformed}), "protocol body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fed(t, c.answer, func(t *testing.T, p *peer, proc sandbox.Process, windows chan<- wire.Window) {
				n, err := proc.Input().Write([]byte("abc"))
				got := failure(err)
				if errors.Is(err, io.ErrClosedPipe) {
					got = "closed"
				}
				if n != 0 || got != c.want {
					t.Errorf("%d %v, want %s", n, err, c.want)
				}
				synctest.Wait()
				if violated := strings.HasPrefix(c.want, "protocol"); violated != (len(p.of(wire.ProcessDestroy)) == 1) {
					t.Errorf("%d destroys", len(p.of(wire.ProcessDestroy)))
				}
			})
		})
	}
}

// W78: a limit that was less than it was said to be takes nothing, and goes on
// from what it says now.
func TestInputBufferFull(t *testing.T) {
	g := &guest{}
	g.limit.Store(5)
	fed(t, func(d *delivery) {
		w, err := g.input(d)
		if err != nil {
			d.fail(err)
			return
		}
		g.limit.Add(w.InputOffset)
		d.reply(200, w)
	}, func(t *testing.T, p *peer, proc sandbox.Process, windows chan<- wire.Window) {
		if _, err := proc.Input().Write([]byte("0123456789")); err != nil || string(g.taken) != "0123456789" {
			t.Errorf("%q %v", g.taken, err)
		}
	})
}

// The exit ends a write that waits.
func TestExitEndsWrite(t *testing.T) {
	for _, answer := range map[string]func(*delivery){
		"waiting for an answer": (*delivery).hold,
		"waiting for credit":    func(d *delivery) { d.reply(200, wire.Window{InputOffset: 64 << 10}) },
	} {
		fed(t, answer, func(t *testing.T, p *peer, proc sandbox.Process, windows chan<- wire.Window) {
			done := make(chan error)
			go func() {
				_, err := proc.Input().Write(make([]byte, 64<<10+1))
				done <- err
			}()
			synctest.Wait()
			close(windows)
			if err := <-done; !errors.Is(err, io.ErrClosedPipe) {
				t.Error(err)
			}
			if err := proc.Input().Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSignals(t *testing.T) {
	fed(t, func(d *delivery) { d.reply(200, wire.Window{}) }, func(t *testing.T, p *peer, proc sandbox.Process, windows chan<- wire.Window) {
		p.on(wire.ProcessSignal, func(d *delivery) {
			if d.n == 1 {
				d.drop()
			}
			d.reply(200, wire.Signaled{Delivered: true})
		})
		if err := proc.Input().Close(); err != nil { // W84: signals pass after the half-close
			t.Error(err)
		}
		if err := proc.Signal(t.Context(), sandbox.SignalInterrupt); err != nil {
			t.Error(err)
		}
		sent := p.of(wire.ProcessSignal)
		if len(sent) != 2 || sent[0].header.Operation != sent[1].header.Operation { // W92
			t.Errorf("%d deliveries", len(sent))
		}
		close(windows)
		if _, err := proc.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if err := proc.Signal(t.Context(), sandbox.SignalInterrupt); err != nil || len(p.of(wire.ProcessSignal)) != 2 {
			t.Error(err)
		}
	})
}

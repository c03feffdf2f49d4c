package wire

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// forever makes every link of a test stall without an end.
func forever(path string) faultproxy.Script {
	return faultproxy.On(path, faultproxy.Fault{Kind: faultproxy.Stall, After: 40})
}

// A response that stops and never ends costs its call the time that it has, and
// nothing after that.
func TestW20AnAnswerThatNeverEndsIsCut(t *testing.T) {
	settled(t)
	s := serve(t, memory.New(memory.Options{Seed: "silence"}))
	s.stall = time.Hour
	sure := s.connect(clean, nil)
	id, err := active(t.Context(), sure, "s")
	if err != nil {
		t.Fatal(err)
	}
	l := s.connect(forever(wire.ReadFile.Path()), func(o *client.Options) { o.Deadline = 500 * time.Millisecond })
	began := time.Now()
	_, err = l.ReadFile(t.Context(), id, sandbox.FileRead{Path: "/mnt/rw/f", AllowedRoot: "/mnt/rw", MaximumBytes: 1})
	if !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonTimedOut}) || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if err := sure.Destroy(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// A stream that falls silent with its connection open is given up after three
// heartbeats and five seconds, and goes on where it was.
func TestAStreamThatFallsSilentIsTakenUpAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for heartbeats")
	}
	settled(t)
	s := serve(t, memory.New(memory.Options{Seed: "silence"}))
	s.stall = time.Hour
	l := s.connect(func(e faultproxy.Exchange) faultproxy.Fault {
		if e.Path == wire.ProcessStream.Path() && e.Nth == 0 {
			return faultproxy.Fault{Kind: faultproxy.Stall, After: 1 << 20}
		}
		return faultproxy.Fault{}
	}, nil)
	id, err := active(t.Context(), l, "s")
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.OpenProcess(t.Context(), id, string(wire.NewProcessID()), process("head -c 2000000; cat"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = p.Input().Write(make([]byte, 3<<20))
		_ = p.Input().Close()
	}()
	began := time.Now()
	n, err := io.Copy(io.Discard, p.Output())
	if n != 3<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if took := time.Since(began); took > 20*time.Second || l.proxy.Faults()[faultproxy.Stall] != 1 {
		t.Errorf("%v, %v", took, l.proxy.Faults())
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
		t.Error(exit, err)
	}
}

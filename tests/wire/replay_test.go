package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// truncated is the name of an output that was let go of before it was read.
var truncated = &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpOpenProcess, Reason: wire.ReasonOutputTruncated}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}

// A connection that breaks once so many bytes were read: the rest follows, byte
// for byte.
func TestAReaderThatComesBackGetsTheRest(t *testing.T) {
	const window = wire.MinOutputWindowBytes
	across(t, window, func(t *testing.T, r remote) {
		for _, at := range []int{8 << 10, 64 << 10, window - 1, window, window + 1} {
			data := noise(at + 1<<20)
			// Once where so much was read, and once where so much of the response
			// came through, its head included.
			for _, script := range []faultproxy.Script{clean, faultproxy.First(wire.ProcessStream.Path(), faultproxy.Fault{Kind: faultproxy.CutResponse, After: int64(at)})} {
				l := remote{r.connect(script, nil), r.served, r.id}
				p := l.spawn(t, process("cat"))
				got := make([]byte, 0, len(data))
				// In step, so that the reader is never a window behind.
				for rest := data; len(rest) > 0 && !t.Failed(); {
					piece := min(len(rest), 128<<10)
					if len(got) < at {
						piece = min(piece, at-len(got))
					}
					if _, err := p.Input().Write(rest[:piece]); err != nil {
						t.Error(err)
					}
					back := make([]byte, piece)
					if _, err := io.ReadFull(p.Output(), back); err != nil {
						t.Error(err)
					}
					got, rest = append(got, back...), rest[piece:]
					if len(got) == at {
						l.proxy.Cut()
					}
				}
				if err := p.Input().Close(); err != nil {
					t.Error(err)
				}
				rest, err := io.ReadAll(p.Output())
				if err != nil || len(rest) > 0 || !bytes.Equal(got, data) {
					t.Errorf("cut at %d: %d bytes of %d, first other at %d, %v", at, len(got)+len(rest), len(data), differ(got, data), err)
				}
				if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
					t.Error(exit, err)
				}
			}
		}
	})
}

// A reader that was away while so many bytes were written: it gets all of them
// as long as the window holds them, and beyond that the end has a name and
// nothing comes behind a hole.
func TestAReaderThatWasAwayGetsAllOrAName(t *testing.T) {
	const window = wire.MinOutputWindowBytes
	// What a pipe holds may be written and not yet be in the window.
	const pipe = 64 << 10
	across(t, window, func(t *testing.T, r remote) {
		for _, c := range []struct {
			missed       int
			whole, named bool // what may come of it
		}{
			{8 << 10, true, false}, {64 << 10, true, false}, {window - 1, true, false}, {window, true, false},
			{window + 1, true, true}, {window + 2*pipe, false, true},
		} {
			var away atomic.Bool
			l := remote{r.connect(func(e faultproxy.Exchange) faultproxy.Fault {
				if away.Load() && e.Path == wire.ProcessStream.Path() {
					return faultproxy.Fault{Kind: faultproxy.Refuse}
				}
				return faultproxy.Fault{}
			}, nil), r.served, r.id}
			p := l.spawn(t, process("cat"))
			data := noise(100 + c.missed)
			back := make([]byte, 100)
			if _, err := p.Input().Write(data[:100]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(p.Output(), back); err != nil || !bytes.Equal(back, data[:100]) {
				t.Fatal(err)
			}
			away.Store(true)
			l.proxy.Cut()
			if _, err := p.Input().Write(data[100:]); err != nil {
				t.Fatal(err)
			}
			if err := p.Input().Close(); err != nil {
				t.Fatal(err)
			}
			if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 { // all of it is written
				t.Errorf("missed %d: %+v %v", c.missed, exit, err)
			}
			away.Store(false)
			rest, err := io.ReadAll(p.Output())
			whole := err == nil && bytes.Equal(rest, data[100:])
			named := errors.Is(err, truncated) && bytes.HasPrefix(data[100:], rest)
			if !(c.whole && whole || c.named && named) {
				t.Errorf("missed %d: %d bytes, first other at %d, %v", c.missed, len(rest), differ(rest, data[100:]), err)
			}
			t.Logf("missed %d: whole %v, %v", c.missed, whole, err)
			if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
				t.Errorf("missed %d: %+v %v", c.missed, exit, err)
			}
			if err := p.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A stream that breaks a thousand times leaves no goroutine, no descriptor and no
// memory, at either end.
func TestW72AThousandAttachmentsLeaveNothing(t *testing.T) {
	settled(t)
	s := serve(t, memory.New(memory.Options{Seed: "thousand"}))
	l := s.connect(faultproxy.On(wire.ProcessStream.Path(), faultproxy.Fault{Kind: faultproxy.CutResponse, After: 4 << 10}), nil)
	id, err := active(t.Context(), l, "s")
	if err != nil {
		t.Fatal(err)
	}
	const size = 4 << 20
	r := remote{l, s, id}
	p := r.spawn(t, process(fmt.Sprint("yes | head -c ", size)))
	half, grown := int64(0), int64(0)
	var once sync.Once
	got, chunk := int64(0), make([]byte, 64<<10)
	for err == nil {
		var n int
		n, err = p.Output().Read(chunk)
		for i, b := range chunk[:n] {
			if want := "y\n"[(got+int64(i))%2]; b != want {
				t.Fatalf("%q at %d", b, got+int64(i))
			}
		}
		if got += int64(n); got > size/2 {
			once.Do(func() { half = heap() })
		}
	}
	grown = heap() - half
	cuts := l.proxy.Faults()[faultproxy.CutResponse]
	if got != size || err != io.EOF || cuts < 1000 {
		t.Errorf("%d bytes, %d cuts, %v", got, cuts, err)
	}
	if grown > 4<<20 {
		t.Errorf("%d KiB more after %d attachments than after half of them", grown>>10, cuts)
	}
	t.Logf("%d attachments; the second half left %d KiB", cuts, grown>>10)
	if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
		t.Error(exit, err)
	}
}

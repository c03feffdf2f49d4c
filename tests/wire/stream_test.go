package wire

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

func itoa(n int) string { return strconv.Itoa(n) }

// torn cuts every stream, and most deliveries of input, somewhere.
func torn(seed uint64) faultproxy.Script {
	stream := faultproxy.Seeded(seed, 1, 400<<10, faultproxy.CutResponse, faultproxy.CutResponse, faultproxy.CutResponse, faultproxy.Stall, faultproxy.Refuse)
	input := faultproxy.Seeded(seed, 0.6, 300<<10,
		faultproxy.CutRequest, faultproxy.CutResponse, faultproxy.Lose, faultproxy.Untyped, faultproxy.Double, faultproxy.Echo,
		faultproxy.HalfClose, faultproxy.Stale, faultproxy.Refuse)
	return func(e faultproxy.Exchange) faultproxy.Fault {
		switch e.Path {
		case wire.ProcessStream.Path():
			return stream(e)
		case wire.ProcessInput.Path():
			return input(e)
		}
		return faultproxy.Fault{}
	}
}

// Bytes go through a process both ways, and through one that only reads, on
// connections that break all the time: not one is lost, doubled or moved.
func TestW49W77W86BytesThroughATornLink(t *testing.T) {
	size, seeds := 24<<20, uint64(3)
	if testing.Short() {
		size, seeds = 4<<20, 2
	}
	settled(t)
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			l := serve(t, memory.New(memory.Options{Seed: "torn"})).connect(torn(seed), nil)
			id, err := active(t.Context(), l, "s")
			if err != nil {
				t.Fatal(err)
			}
			sent := make([]byte, size)
			chacha := rand.NewChaCha8([32]byte{byte(seed)})
			_, _ = chacha.Read(sent)
			want := sha256.Sum256(sent)

			got := sha256.New()
			n := pass(t, l, id, "cat", sent, got)
			if n != int64(size) || [32]byte(got.Sum(nil)) != want {
				t.Errorf("cat: %d bytes of %d, digest equal: %v", n, size, [32]byte(got.Sum(nil)) == want)
			}
			text := &digestText{}
			pass(t, l, id, "sha256sum", sent, text)
			if string(text.first(64)) != hex.EncodeToString(want[:]) {
				t.Errorf("sha256sum: %q", text.first(64))
			}
			faults, cuts := l.proxy.Faults(), 0
			for _, n := range faults {
				cuts += n
			}
			t.Logf("%d exchanges, faults %v", l.proxy.Exchanges(), faults)
			if cuts < size>>18 {
				t.Errorf("only %d faults", cuts)
			}
			if err := l.Destroy(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
}

type digestText struct{ all []byte }

func (d *digestText) Write(b []byte) (int, error) { d.all = append(d.all, b...); return len(b), nil }
func (d *digestText) first(n int) []byte          { return d.all[:min(n, len(d.all))] }

// pass gives sent to a process and what comes back to got.
func pass(t *testing.T, l *link, id sandbox.InstanceID, script string, sent []byte, got io.Writer) int64 {
	t.Helper()
	p, err := l.OpenProcess(t.Context(), id, string(wire.NewProcessID()), process(script))
	if err != nil {
		t.Fatal(err)
	}
	// The window at the provider is no flow control: a reader that falls behind
	// by more loses the process. So no more than 4 MiB are under way.
	const part = 256 << 10
	ahead := make(chan struct{}, 16)
	var writer sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		for rest := sent; len(rest) > 0; rest = rest[min(part, len(rest)):] {
			if script == "cat" {
				select {
				case ahead <- struct{}{}:
				case <-stop:
					return
				}
			}
			if _, err := p.Input().Write(rest[:min(part, len(rest))]); err != nil {
				t.Error("write:", err)
				return
			}
		}
		if err := p.Input().Close(); err != nil {
			t.Error("close:", err)
		}
	})
	var total int64
	for err == nil {
		var n int64
		n, err = io.CopyN(got, p.Output(), part)
		total += n
		if n == part && script == "cat" {
			<-ahead
		}
	}
	close(stop)
	writer.Wait()
	if err != io.EOF {
		t.Error("read:", err)
	}
	for range 2 {
		if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
			t.Error(exit, err)
		}
	}
	return total
}

// spoken is all that a short process says.
type spoken struct{ out, err, exit string }

// converse runs one short process: two pieces in, two streams out, an exit.
func converse(ctx context.Context, l *link, id sandbox.InstanceID) (s spoken, err error) {
	p, err := l.OpenProcess(ctx, id, string(wire.NewProcessID()), process("read A; echo got $A; cat; echo bad >&2; exit 3"))
	if err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			_ = p.Destroy(ctx) // the instance has room for one
		}
	}()
	for _, piece := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(p.Input(), piece); err != nil {
			return s, err
		}
	}
	if err := p.Input().Close(); err != nil {
		return s, err
	}
	out, oerr := io.ReadAll(p.Output())
	errs, eerr := io.ReadAll(p.Error())
	exit, err := p.Wait(ctx)
	if oerr != nil || eerr != nil || err != nil {
		return s, fmt.Errorf("output %w, error %w, wait %w", oerr, eerr, err)
	}
	s = spoken{string(out), string(errs), exit.Signal}
	if exit.ExitCode != nil {
		s.exit = fmt.Sprint(*exit.ExitCode)
	}
	return s, nil
}

// A cut at every byte of every exchange of a live process changes nothing of
// what its Runner sees.
func TestW47W48W57ACutAtEveryByteChangesNothing(t *testing.T) {
	atEveryByte(t, []wire.Endpoint{wire.OpenProcess, wire.ProcessStream, wire.ProcessInput},
		[]faultproxy.Kind{faultproxy.CutRequest, faultproxy.CutResponse}, func(err error) error { return err })
}

// Noise at any byte of a stream is a broken connection or a named violation,
// never an output that is taken for whole.
func TestNoiseAtEveryByteIsNamed(t *testing.T) {
	atEveryByte(t, []wire.Endpoint{wire.ProcessStream}, []faultproxy.Kind{faultproxy.Garbage}, func(err error) error {
		if broke := (*client.ProtocolError)(nil); errors.As(err, &broke) {
			return nil
		}
		return err
	})
}

// atEveryByte runs a short process once for every byte at which an exchange of
// it can break. judge says what of an outcome other than the usual is wrong.
func atEveryByte(t *testing.T, endpoints []wire.Endpoint, kinds []faultproxy.Kind, judge func(error) error) {
	t.Helper()
	settled(t)
	s := serve(t, memory.New(memory.Options{Seed: "every"}))
	const stride = 4 // workers of one line; each begins at another byte
	var group sync.WaitGroup
	var mu sync.Mutex
	cuts := map[string]int{}
	n := 0
	for _, e := range endpoints {
		for _, kind := range kinds {
			for first := range int64(stride) {
				n++
				line, step := n, int64(stride)
				if testing.Short() {
					step *= 5
				}
				group.Go(func() {
					sure, close, err := dial(s.socket, fmt.Sprint(s.dir, "/sure", line, "."), 0, clean, nil)
					if err != nil {
						t.Error(err)
						return
					}
					defer close()
					id, err := active(t.Context(), sure, fmt.Sprint(line))
					if err != nil {
						t.Error(err)
						return
					}
					for after := first; ; after += step {
						done, err := breakOnce(t.Context(), s, line, id, e, faultproxy.Fault{Kind: kind, After: after})
						if err = judge(err); err != nil {
							t.Errorf("%s %s after %d: %v", e, kind, after, err)
							return
						}
						if done {
							return
						}
						mu.Lock()
						cuts[fmt.Sprint(e, " ", kind)]++
						mu.Unlock()
					}
				})
			}
		}
	}
	group.Wait()
	t.Log(cuts)
	if len(cuts) != len(endpoints)*len(kinds) {
		t.Errorf("breaks: %v", cuts)
	}
}

// breakOnce converses over a link that breaks once; done says that there was
// nothing left to break.
func breakOnce(ctx context.Context, s *served, line int, id sandbox.InstanceID, e wire.Endpoint, f faultproxy.Fault) (done bool, err error) {
	l, close, err := dial(s.socket, fmt.Sprint(s.dir, "/cut", line, "."), int(f.After), faultproxy.First(e.Path(), f), nil)
	if err != nil {
		return false, err
	}
	defer close()
	got, err := converse(ctx, l, id)
	if want := (spoken{"got one\ntwo\n", "bad\n", "3"}); err == nil && got != want {
		err = fmt.Errorf("got %q", got)
	}
	return len(l.proxy.Faults()) == 0, err
}

package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// W05: no redirect is followed, by whatever status and of whatever kind of call:
// it would carry a token to where nobody was enrolled.
func TestRedirects(t *testing.T) {
	for _, status := range []int{300, 301, 302, 303, 307, 308} {
		away := func(d *delivery) {
			d.head(false)
			d.w.Header().Set("Location", wire.Destroy.Path())
			d.w.WriteHeader(status)
		}
		bubble(t, Options{Deadline: time.Minute}, func(t *testing.T, p *peer, c *Client) {
			for _, e := range []wire.Endpoint{wire.Cleanup, wire.ReadFile, wire.ProcessStream} {
				p.on(e, away)
			}
			p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
			_, err := c.Cleanup(t.Context(), sandbox.CleanupRequest{Now: sandbox.At(start), OrphanedBefore: sandbox.At(start)})
			_, reading := c.ReadFile(t.Context(), "i1", sandbox.FileRead{Path: "/r/a", AllowedRoot: "/r", MaximumBytes: 9})
			proc, opening := c.OpenProcess(t.Context(), "i1", procID, program())
			if opening != nil {
				t.Fatal(opening)
			}
			_, streaming := io.ReadAll(proc.Output())
			for _, err := range []error{err, reading, streaming} {
				if failure(err) != "protocol status" {
					t.Errorf("%d: %v", status, err)
				}
			}
			if n := len(p.of(wire.Destroy)); n != 0 {
				t.Errorf("%d: followed", status)
			}
		})
	}
}

// W06: what is compressed is refused, with a name and without, and never
// inflated: a few kilobytes of it would be gigabytes.
func TestCompressed(t *testing.T) {
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	z.Write(make([]byte, 256<<20))
	z.Close()
	for _, c := range []struct {
		encoding, want string
	}{{"gzip", "protocol content-encoding"}, {"br", "protocol content-encoding"}, {"identity, gzip", "protocol content-encoding"}, {"", "protocol body"}} {
		bubble(t, Options{Deadline: time.Minute}, func(t *testing.T, p *peer, client *Client) {
			answer := func(framed bool) func(*delivery) {
				return func(d *delivery) {
					d.head(framed)
					if c.encoding != "" {
						d.w.Header().Set("Content-Encoding", c.encoding)
					}
					d.w.Write(small.Bytes())
				}
			}
			p.on(wire.Cleanup, answer(false))
			p.on(wire.ReadFile, answer(true))
			p.on(wire.ProcessStream, answer(true))
			p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, plain := client.Cleanup(t.Context(), sandbox.CleanupRequest{Now: sandbox.At(start), OrphanedBefore: sandbox.At(start)})
			_, framed := client.ReadFile(t.Context(), "i1", sandbox.FileRead{Path: "/r/a", AllowedRoot: "/r", MaximumBytes: 9})
			proc, err := client.OpenProcess(t.Context(), "i1", procID, program())
			if err != nil {
				t.Fatal(err)
			}
			_, stream := io.ReadAll(proc.Output())
			runtime.ReadMemStats(&after)
			for _, err := range []error{plain, framed, stream} {
				if failure(err) != c.want {
					t.Errorf("%q: %v, want %s", c.encoding, err, c.want)
				}
			}
			if total := after.TotalAlloc - before.TotalAlloc; total > 16<<20 {
				t.Errorf("%q: %d MiB allocated", c.encoding, total>>20)
			}
		})
	}
}

// W23: a server that goes away while a call is on its way to it, and did not
// look at it, gets it again on another connection, under the same id.
func TestGoAwayInTheMiddleOfACall(t *testing.T) {
	server, leaf := certificate(t, time.Now().Add(time.Hour))
	config := &tls.Config{Certificates: []tls.Certificate{server}, NextProtos: []string{"h2"}}
	p := newPeer(t)
	p.on(wire.Destroy, func(d *delivery) { d.reply(200, wire.Empty{}) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	leaving := &leaving{Listener: l, config: config}
	s := &http.Server{Handler: p, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan struct{})
	go func() { s.ServeTLS(leaving, "", ""); close(served) }()
	defer func() { s.Close(); <-served; leaving.group.Wait() }()
	c, err := Dial(t.Context(), Options{Base: "https://" + l.Addr().String(), Pin: PublicKeyDigest(leaf)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	leaving.left.Store(3)
	c.pool.CloseIdleConnections()
	if err := c.Destroy(t.Context(), "i1"); err != nil || leaving.left.Load() > 0 {
		t.Error(err, leaving.left.Load())
	}
	if sent := p.of(wire.Destroy); len(sent) != 1 || sent[0].r.ProtoMajor != 2 {
		t.Errorf("%d deliveries", len(sent))
	}
}

// leaving is a listener of which the next few connections are told to go away.
type leaving struct {
	net.Listener
	config *tls.Config
	left   atomic.Int64
	group  sync.WaitGroup
}

func (l *leaving) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.left.Add(-1) < 0 {
			return c, err
		}
		l.group.Go(func() { goAway(tls.Server(c, l.config)) })
	}
}

// goAway speaks HTTP/2 up to the first request, and says that it will not look
// at it: SETTINGS, then GOAWAY with the last stream 0.
func goAway(c net.Conn) {
	defer c.Close()
	read := func(n int) []byte {
		b := make([]byte, n)
		io.ReadFull(c, b)
		return b
	}
	read(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
	for {
		head := read(9)
		read(int(head[0])<<16 | int(head[1])<<8 | int(head[2]))
		if head[3] == 1 || head[3] == 0 && head[8] == 0 { // HEADERS, or nothing more
			break
		}
	}
	c.Write([]byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	io.Copy(io.Discard, c)
}

// W46: a command that ended by two causes, or by none, before it began, or with
// more than was allowed, did not end: the Runner says so over the wire as well.
func TestSettlementsThroughTheRuntime(t *testing.T) {
	const times = `"finished_at":"2026-03-01T12:00:00.000Z","started_at":"2026-03-01T12:00:00.000Z"`
	for _, c := range []struct {
		out    int
		result string
		ok     bool
	}{
		{10, `"exit_code":0,` + times, true},
		{0, `"signal":"SIGKILL",` + times, true},
		{0, `"timed_out":true,` + times, true},
		{0, times, false},
		{0, `"exit_code":0,"signal":"SIGKILL",` + times, false},
		{0, `"exit_code":0,"timed_out":true,` + times, false},
		{0, `"timed_out":false,` + times, false},
		{0, `"exit_code":256,` + times, false},
		{0, `"signal":"KILL",` + times, false},
		{0, `"exit_code":null,` + times, false},
		{0, `"exit_code":0,"finished_at":"2026-03-01T12:00:00.000Z","started_at":"2026-03-01T12:00:00.001Z"`, false},
		{0, `"exit_code":0,"finished_at":"2026-03-01T12:00:00.000Z"`, false},
		{11, `"exit_code":0,` + times, false},
	} {
		bubble(t, Options{}, func(t *testing.T, p *peer, client *Client) {
			r, id := adopted(t, p, client)
			p.on(wire.Execute, func(d *delivery) {
				w := d.frames()
				w.Output(wire.TypeOut, 0, make([]byte, c.out))
				w.Write(wire.Frame{Type: wire.TypeResult, Payload: []byte("{" + c.result + "}")})
			})
			_, err := r.Execute(t.Context(), id, sandbox.Command{Executable: "x", Arguments: []string{}, Environment: map[string]string{},
				WorkingDirectory: "/", TimeoutSeconds: 9, OutputLimitBytes: 10})
			if c.ok && err != nil || !c.ok && !errors.Is(err, &sandboxruntime.Error{Kind: sandboxruntime.ProtocolInvalid, Operation: sandbox.OpExecute}) {
				t.Errorf("%d, %s: %T %v", c.out, c.result, err, err)
			}
		})
	}
}

// W59: a cursor that the provider has nothing for is the end of the process's
// output by name, never a beginning from elsewhere.
func TestCursorAhead(t *testing.T) {
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		if d.n == 1 {
			w.Message(wire.TypeOpen, opened())
			w.Output(wire.TypeOut, 0, []byte("abc"))
			d.drop()
		}
		if q.Cursor != 3 {
			t.Errorf("cursor %d", q.Cursor)
		}
		w.Error(&wire.Error{Tag: wire.TagCursorAhead, End: 2})
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		out, err := io.ReadAll(proc.Output())
		if string(out) != "abc" || failure(err) != "SandboxOperationFailed output_truncated" || len(p.of(wire.ProcessStream)) != 2 {
			t.Errorf("%q %v", out, err)
		}
	})
}

// W63, W64: the end of the output and the exit are two facts, whichever is
// first, however far apart.
func TestOutputAndExitEndApart(t *testing.T) {
	for _, outputFirst := range []bool{true, false} {
		streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
			exit := func() {
				w.Message(wire.TypeErrEnd, wire.ErrEnd{})
				w.Message(wire.TypeExit, wire.Exit(sandbox.Exited(3)))
			}
			output := func(forced bool) {
				end := outEnd("x")
				end.Forced = forced
				w.Message(wire.TypeOutEnd, end)
			}
			w.Message(wire.TypeOpen, opened())
			w.Output(wire.TypeOut, 0, []byte("x"))
			first, second := exit, func() { output(true) }
			if outputFirst {
				first, second = func() { output(false) }, exit
			}
			first()
			for end := time.Now().Add(time.Hour); time.Now().Before(end); w.Ping() {
				if pause(d.r.Context(), 10*time.Second) != nil {
					t.Error("cut")
					return
				}
			}
			second()
		}, func(t *testing.T, p *peer, proc sandbox.Process) {
			began := time.Now()
			read, waited := time.Duration(-1), time.Duration(-1)
			done := make(chan struct{})
			go func() {
				defer close(done)
				out, err := io.ReadAll(proc.Output())
				if string(out) != "x" || err != nil {
					t.Errorf("%q %v", out, err)
				}
				read = time.Since(began)
			}()
			if exit, err := proc.Wait(t.Context()); err != nil || *exit.ExitCode != 3 {
				t.Error(exit, err)
			}
			waited = time.Since(began)
			<-done
			want := [2]time.Duration{time.Hour, 0}
			if outputFirst {
				want = [2]time.Duration{0, time.Hour}
			}
			if got := [2]time.Duration{read, waited}; got != want {
				t.Errorf("output, then exit after %v, want %v", got, want)
			}
		})
	}
}

// idle is a line that something cuts which nothing passed over for a minute, as
// many a proxy does.
type idle struct {
	net.Conn
	limit *time.Timer
}

func cutWhenIdle(c net.Conn, cuts *int) net.Conn {
	return idle{c, time.AfterFunc(time.Minute, func() { *cuts++; c.Close() })}
}

func (i idle) Read(b []byte) (int, error) {
	n, err := i.Conn.Read(b)
	i.limit.Reset(time.Minute)
	return n, err
}

func (i idle) Close() error { i.limit.Stop(); return i.Conn.Close() }

// W62: an exit is learned although no attachment comes through, and the output
// is there once one does.
func TestAnExitBesideAStreamThatDoesNotCome(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
		p.on(wire.ProcessStream, (*delivery).drop)
		proc, err := c.OpenProcess(t.Context(), "i1", procID, program())
		if err != nil {
			t.Fatal(err)
		}
		p.on(wire.ProcessWait, func(d *delivery) {
			if d.n == 1 {
				d.reply(200, wire.Waited{Running: true})
				return
			}
			e := sandbox.Exited(3)
			d.reply(200, wire.Waited{Exit: &e})
		})
		began := time.Now()
		if exit, err := proc.Wait(t.Context()); err != nil || *exit.ExitCode != 3 || time.Since(began) > 10*time.Second {
			t.Error(exit, err, time.Since(began))
		}
		p.on(wire.ProcessStream, func(d *delivery) {
			w := d.frames()
			w.Message(wire.TypeOpen, opened())
			w.Output(wire.TypeOut, 0, []byte("late"))
			ending(w, "late", 0)
		})
		if out, err := io.ReadAll(proc.Output()); string(out) != "late" || err != nil {
			t.Errorf("%q %v", out, err)
		}
	})
}

// A stream that ends while its exit is asked for of a server that does not hold
// the question: whoever waits gets the exit, and no interruption of nobody's.
func TestAnExitThatTheStreamBringsFirst(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
		asked := make(chan struct{})
		p.on(wire.ProcessWait, func(d *delivery) {
			if d.n == 1 {
				close(asked)
			}
			d.reply(200, wire.Waited{Running: true})
		})
		p.on(wire.ProcessStream, func(d *delivery) {
			select {
			case <-asked:
			default:
				d.drop()
			}
			w := d.frames()
			w.Message(wire.TypeOpen, opened())
			ending(w, "", 0)
		})
		proc, err := c.OpenProcess(t.Context(), "i1", procID, program())
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := proc.Wait(t.Context()); err != nil || *exit.ExitCode != 3 {
			t.Error(exit, err)
		}
	})
}

// A process outlives a network that is away for longer than any call may take.
func TestAnExitBehindALongOutage(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
		began := time.Now()
		away := func() bool { return time.Since(began) < 2*defaultDeadline }
		p.on(wire.ProcessWait, func(d *delivery) {
			if away() {
				d.drop()
			}
			e := sandbox.Exited(3)
			d.reply(200, wire.Waited{Exit: &e})
		})
		p.on(wire.ProcessStream, func(d *delivery) {
			if away() {
				d.drop()
			}
			w := d.frames()
			w.Message(wire.TypeOpen, opened())
			ending(w, "", 0)
		})
		proc, err := c.OpenProcess(t.Context(), "i1", procID, program())
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := proc.Wait(t.Context()); err != nil || exit.ExitCode == nil || away() {
			t.Error(exit, err, time.Since(began))
		}
	})
}

// W66: heartbeats keep a day of silence alive behind whatever cuts a line that
// is idle for a minute; without them it would be cut.
func TestIdleDayThroughAnIdleLimit(t *testing.T) {
	for _, beats := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := newPeer(t)
			p.on(wire.OpenProcess, func(d *delivery) { d.reply(200, opened()) })
			p.on(wire.ProcessStream, func(d *delivery) {
				q, _ := wire.Decode[wire.StreamRequest](d.body)
				w := d.frames()
				w.Message(wire.TypeOpen, opened())
				if d.n == 1 {
					for end := time.Now().Add(24 * time.Hour); time.Now().Before(end); {
						if pause(d.r.Context(), time.Duration(q.HeartbeatMS)*time.Millisecond) != nil {
							break
						}
						if beats {
							w.Ping()
						}
					}
				}
				w.Output(wire.TypeOut, 0, []byte("morning"))
				ending(w, "morning", 0)
			})
			s := &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0)}
			served := make(chan struct{})
			go func() { s.Serve(p); close(served) }()
			defer func() { s.Close(); <-served }()
			cuts := 0
			// Longer than the limit may be: then it is the limit that cuts.
			c, err := dial(t.Context(), Options{Base: "http://127.0.0.1", Heartbeat: 25 * time.Second}, seam{random: func() float64 { return 0 }, dial: func(ctx context.Context) (net.Conn, error) {
				line, err := p.dial(ctx)
				if err != nil {
					return nil, err
				}
				return cutWhenIdle(line, &cuts), nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			proc, err := c.OpenProcess(t.Context(), "i1", procID, program())
			if err != nil {
				t.Fatal(err)
			}
			out, err := io.ReadAll(proc.Output())
			if string(out) != "morning" || err != nil {
				t.Errorf("%q %v", out, err)
			}
			attaches := len(p.of(wire.ProcessStream))
			if beats && attaches != 1 || !beats && (attaches != 2 || cuts == 0) {
				t.Errorf("heartbeats %v: %d attachments, %d cuts", beats, attaches, cuts)
			}
		})
	}
}

// W68: a server that is going away is left for the next one at once.
func TestDrainingIsFollowedAtOnce(t *testing.T) {
	var at []time.Time
	streamed(t, func(d *delivery, q wire.StreamRequest, w *wire.Writer) {
		at = append(at, d.arrivedAt)
		w.Message(wire.TypeOpen, opened())
		w.Output(wire.TypeOut, q.Cursor, []byte{byte('0' + d.n)})
		if d.n < 5 {
			w.Message(wire.TypeDetach, wire.Detach{Reason: wire.DetachDraining})
			return
		}
		ending(w, "12345", 0)
	}, func(t *testing.T, p *peer, proc sandbox.Process) {
		out, err := io.ReadAll(proc.Output())
		if string(out) != "12345" || err != nil || len(at) != 5 || !at[4].Equal(at[0]) {
			t.Errorf("%q %v, attached at %v", out, err, at)
		}
	})
}

// W82, W83: the half-close needs no credit, waits for none, and is sent again
// where its answer is lost.
func TestHalfCloseWithoutCredit(t *testing.T) {
	g := &guest{}
	g.limit.Store(64 << 10)
	ends := 0
	fed(t, func(d *delivery) {
		call, _ := wire.ReadCall[wire.InputCall](wire.NewReader(bytes.NewReader(d.body)))
		w, err := g.input(d)
		if err != nil {
			d.fail(err)
			return
		}
		if call.End {
			if ends++; ends < 4 {
				d.drop() // it was applied, nobody hears of it
			}
		}
		d.reply(200, w)
	}, func(t *testing.T, p *peer, proc sandbox.Process, windows chan<- wire.Window) {
		if _, err := proc.Input().Write(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
		if err := proc.Input().Close(); err != nil || !g.ended || ends != 4 || len(g.taken) != 64<<10 {
			t.Error(err, fmt.Sprint(g.ended, ends, len(g.taken)))
		}
	})
}

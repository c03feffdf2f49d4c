package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func TestW37ASnapshotIsDestroyedTwice(t *testing.T) {
	f := newFixture(t, nil)
	q := wire.SnapshotRequest{InstanceID: f.active(), ExpiresAt: provisionRequest().ExpiresAt}
	s := ok[wire.SnapshotHandoff](f, f.call(wire.Snapshot, "", q)).Value
	f.census(2)
	op := wire.NewOperationID()
	for _, op := range []wire.OperationID{op, op, ""} { // delivered twice, and asked for twice
		ok[wire.Empty](f, f.call(wire.DestroySnapshot, op, wire.DestroySnapshotRequest{SnapshotID: s.SnapshotID}))
		f.census(1)
	}
}

// What memory the journals of live processes take is their windows, however much
// is written.
func TestW73JournalsTakeTheirWindowsAndNoMore(t *testing.T) {
	const window, n = wire.MinOutputWindowBytes, 6
	h := &hooked{}
	made := puppets(h)
	f := newFixture(t, func(o *Options) { hook(h)(o); o.OutputWindow = window })
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what the first one only marked
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	chunk := make([]byte, 1<<20)
	before := heap()
	for range n {
		l := f.spawn(f.active(), "x")
		p := <-made
		for range 5 * window / len(chunk) {
			_, err := p.outW.Write(chunk)
			f.must(err)
			_, err = p.errW.Write(chunk[:1<<16])
			f.must(err)
		}
		l.taken(5 * window)
	}
	if took := heap() - before; took < n*window/2 || took > n*(window+wire.ErrorWindowBytes)+8<<20 {
		t.Errorf("%d journals of %d MiB take %.1f MiB", n, window>>20, float64(took)/(1<<20))
	}
}

// A write of which half had come when the epoch rose is refused, and not one
// byte of it is taken: it was admitted, and it is not appended.
func TestW88AnEpochThatRisesInTheMiddleOfAWrite(t *testing.T) {
	l, p := pick(t, nil)
	data := make([]byte, 100<<10)
	b, err := wire.NewBody(wire.InputCall{InstanceID: l.instance, ProcessID: l.id}, data)
	l.must(err)
	body, err := io.ReadAll(b.Reader())
	l.must(err)
	conn := l.dial()
	header := http.Header{}
	wire.RequestHeader{Token: token, Lease: l.lease, Wait: l.wait}.Set(header, wire.ProcessInput)
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nContent-Type: %s\r\n", wire.ProcessInput.Path(), len(body), wire.MediaFrames)
	l.must(err)
	l.must(header.Write(conn))
	_, err = conn.Write(append([]byte("\r\n"), body[:len(body)/2]...))
	l.must(err)
	for handlersOf("processInput") == 0 { // it was admitted, and waits for the rest
		runtime.Gosched()
	}
	old := l.lease
	l.lease.Epoch++
	next := l.attach(0)
	_, err = conn.Write(body[len(body)/2:])
	l.must(err)
	l.must(conn.SetReadDeadline(time.Now().Add(20 * time.Second)))
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	l.must(err)
	defer got.Body.Close()
	answer, err := io.ReadAll(got.Body)
	l.must(err)
	if e := l.wantTag(response{got.StatusCode, got.Header, answer}, wire.TagLeaseFenced); e.LeaseEpoch != old.Epoch+1 {
		t.Errorf("%+v", e)
	}
	if w := l.window(l.send(0, []byte("new"), true)); w.InputOffset != 3 {
		t.Errorf("%+v", w)
	}
	if got, err := io.ReadAll(p.inR); string(got) != "new" || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	p.close(0)
	next.complete(next.drain(0), 0)
}

// A provision that runs when the epoch of its lease rises goes on to its end; its
// answer is for whoever is still entitled to ask, and it is undone by its id.
func TestW88AnEpochThatRisesWhileAProvisionRuns(t *testing.T) {
	h, entered, gate := &hooked{}, make(chan struct{}), make(chan struct{})
	h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		if r.LeaseEpoch == 1 {
			close(entered)
			<-gate
		}
		return h.Provider.Provision(ctx, r)
	}
	f := newFixture(t, hook(h))
	op := wire.NewOperationID()
	answer := make(chan response, 1)
	go func() { answer <- f.call(wire.Provision, op, provisionRequest()) }()
	<-entered
	newer := *f
	newer.lease.Epoch = 2
	next := newer.provision("").Value.InstanceID // the rise
	f.wantTag(f.call(wire.Provision, op, provisionRequest()), wire.TagLeaseFenced)
	close(gate)
	if r := <-answer; r.status != 200 {
		f.wantTag(r, wire.TagLeaseFenced)
	}
	poll := wire.OperationRequest{OperationID: op, WaitMS: 20_000}
	made := ok[wire.InstanceHandoff](&newer, newer.call(wire.PollOperation, "", poll)).Value
	f.census(2)
	f.wantTag(f.call(wire.RollbackOperation, "", rollbackOf(op, wire.Provision)), wire.TagLeaseFenced)
	newer.rollback(op, wire.Provision)
	f.census(1)
	if made.LeaseEpoch != 1 || made.InstanceID == next {
		t.Errorf("%+v", made)
	}
	newer.activate(next)
}

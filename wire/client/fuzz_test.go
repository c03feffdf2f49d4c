package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// offline is a client that has met its peer and has no connection.
func offline(t testing.TB) *Client {
	p := newPeer(t)
	c := &Client{info: p.info.Wire, digest: p.digest, random: func() float64 { return 0 }, leases: leases{held: map[sandbox.InstanceID]wire.Lease{}}}
	c.options, _, _ = Options{Base: "unix:/s"}.settle()
	c.calling, c.stop = context.WithCancelCause(context.Background())
	return c
}

// FuzzResponse gives any bytes as the answer to any call: never a panic, never
// a success that the codec did not see, never more memory than the body's
// bound.
func FuzzResponse(f *testing.F) {
	c := offline(f)
	head := "HTTP/1.1 200 OK\r\nCheckfu-Wire: " + wire.Revision + "\r\nCheckfu-Capabilities-Digest: " + string(c.digest) +
		"\r\nCheckfu-Boot-Id: " + string(boot) + "\r\n"
	id := wire.OperationID("op_00000000000000000000000000000000")
	kinds := []struct {
		endpoint wire.Endpoint
		read     func(*body) error
	}{
		{wire.Provision, func(b *body) error {
			_, undo, err := instanceOf(b)
			if err == nil && undo.OperationID == "" {
				panic("a handoff without an id")
			}
			return err
		}},
		{wire.Release, func(b *body) error { _, _, err := releasedOf(b); return err }},
		{wire.Capabilities, func(b *body) error { _, err := decode[wire.CapabilitiesResponse](b); return err }},
		{wire.ReadFiles, func(b *body) error {
			batch := batch{endpoint: b.endpoint, wanted: 2, sum: wire.NewDigester()}
			err := frames(b, batch.take)
			if err == nil && len(batch.results) != 2 {
				panic("a short batch")
			}
			return err
		}},
		{wire.Execute, func(b *body) error {
			var s sandbox.Settlement
			return frames(b, func(f wire.Frame) (bool, error) { return settlement(&s, b.endpoint, f) })
		}},
		{wire.ListDir, func(b *body) error {
			return pages(b, func(data []byte) (int, error) {
				p, err := wire.Decode[wire.DirPage](data)
				return len(p.Entries), err
			}, func(data []byte) (int64, error) {
				r, err := wire.Decode[wire.ListResult](data)
				return r.Count, err
			})
		}},
	}
	add := func(kind uint8, media, body string) {
		f.Add(kind, []byte(head+"Content-Type: "+media+"\r\n\r\n"+body))
	}
	good, _ := wire.Encode(wire.InstanceHandoff{Value: instance("i1"), Rollback: wire.Rollback{OperationID: id}})
	add(0, wire.MediaJSON, string(good))
	add(0, wire.MediaJSON, string(good[:50]))
	envelope, _ := wire.Encode(wire.CapabilitiesResponse{Capabilities: newPeer(f).info.Capabilities, Wire: c.info})
	add(2, wire.MediaJSON, string(envelope))
	add(3, wire.MediaFrames, string(framed(func(w *wire.Writer) {
		w.Data([]byte("abc"))
		w.Message(wire.TypeItem, item(0, "abc"))
		w.Message(wire.TypeItem, item(1, ""))
		w.Message(wire.TypeResult, wire.FilesResult{Count: 2, TotalBytes: 3})
	})))
	add(4, wire.MediaFrames, string(framed(func(w *wire.Writer) {
		w.Output(wire.TypeOut, 0, []byte("abc"))
		w.Error(sandbox.OverLimit(sandbox.StreamStdout, 3))
	})))
	add(5, wire.MediaFrames, "\x03\xff\xff\xff\xff")
	f.Add(uint8(0), []byte("HTTP/1.1 502 Bad Gateway\r\n\r\n"))
	f.Add(uint8(0), []byte(strings.Replace(head, "200 OK", "202 Accepted", 1)+"Content-Type: application/json\r\n\r\n{\"operation_id\":\""+string(id)+"\",\"state\":\"running\"}"))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		k := kinds[int(kind)%len(kinds)]
		r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(data)), nil)
		if err != nil {
			return
		}
		defer r.Body.Close()
		traits, _ := k.endpoint.Traits()
		call := call{endpoint: k.endpoint, op: traits.Member, id: id}
		err = c.settle(r, call, k.endpoint, k.read)
		switch e := c.contract(call, err).(type) {
		case nil, *undelivered:
		case *sandbox.Error, *ProtocolError:
			// Nothing that a peer says reaches a log as it stands.
			for _, c := range e.Error() {
				if c < ' ' || c == 0x7f {
					t.Fatalf("%q", e.Error())
				}
			}
		default:
			if !errors.Is(err, errRunning) {
				t.Errorf("%T %v", e, e)
			}
		}
	})
}

// FuzzStream gives any bytes as two attachments of a process's stream. Whatever
// is passed on is a prefix without holes of what the frames say, and the end
// comes only with the digest of it.
func FuzzStream(f *testing.F) {
	c := offline(f)
	whole := framed(func(w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		w.Output(wire.TypeOut, 0, []byte("hello, "))
		w.Output(wire.TypeErr, 3, []byte("lost"))
		w.Message(wire.TypeWindow, wire.Window{InputCredit: 9})
		w.Ping()
		w.Output(wire.TypeOut, 7, []byte("world"))
		ending(w, "hello, world", 7)
	})
	for _, cut := range []int{0, 3, len(whole) / 2, len(whole) - 9, len(whole)} {
		f.Add(whole[:cut], whole)
	}
	for _, m := range []wire.Message{wire.Detach{Reason: wire.DetachSuperseded}, wire.Truncated{LowWater: 3}} {
		for _, typ := range []wire.Type{wire.TypeDetach, wire.TypeTruncated} {
			f.Add(whole[:len(whole)/2], framed(func(w *wire.Writer) {
				w.Message(wire.TypeOpen, opened())
				w.Message(typ, m)
			}))
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		p := &process{c: c, instance: "i1", id: procID, lease: wire.Lease{ID: "l"}}
		p.prepare(opened())
		// More than the pipe would hold would wait for a reader.
		p.out.loosen()
		r := &reader{p: p, filter: newFilter(opened())}
		for _, data := range [][]byte{first, second} {
			r.filter.attach()
			switch err := r.read(&body{endpoint: wire.ProcessStream, r: bytes.NewReader(data)}); err.(type) {
			case nil:
				if !r.filter.complete() {
					t.Fatal("an end that is none")
				}
			case *undelivered:
				continue
			}
			break
		}
		ended := r.filter.outEnd != nil
		p.fail(io.ErrUnexpectedEOF)
		out, err := io.ReadAll(p.out)
		if ended != (err == nil) && !errors.Is(err, errUnread) {
			t.Errorf("ended %v, output ends with %v", ended, err)
		}
		if err == nil && (int64(len(out)) != r.filter.next || digestOf(out) != r.filter.outEnd.Digest) {
			t.Errorf("%d bytes, %d taken", len(out), r.filter.next)
		}
		if exit, _ := p.known(); exit != nil && exit.Validate() != nil {
			t.Errorf("%+v", exit)
		}
	})
}

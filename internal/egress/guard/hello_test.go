package guard_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// clientHello is the first flight of a real client, as it goes over the wire.
func clientHello(t testing.TB, name string) []byte {
	t.Helper()
	var c capture
	err := tls.Client(&c, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}).Handshake()
	if err == nil || c.Len() == 0 {
		t.Fatalf("no hello: %v", err)
	}
	return c.Bytes()
}

type capture struct {
	net.Conn
	bytes.Buffer
}

func (c *capture) Write(b []byte) (int, error)      { return c.Buffer.Write(b) }
func (c *capture) Read([]byte) (int, error)         { return 0, io.EOF }
func (c *capture) Close() error                     { return nil }
func (c *capture) SetWriteDeadline(time.Time) error { return nil }

type extension struct {
	kind uint16
	data []byte
}

// takeApart splits a hello of one record before its extensions.
func takeApart(hello []byte) (front []byte, all []extension) {
	at := 5 + 4 + 2 + 32
	at += 1 + int(hello[at])                           // session id
	at += 2 + int(binary.BigEndian.Uint16(hello[at:])) // cipher suites
	at += 1 + int(hello[at])                           // compression
	front, rest := hello[5+4:at], hello[at+2:]
	for len(rest) > 0 {
		n := int(binary.BigEndian.Uint16(rest[2:]))
		all = append(all, extension{binary.BigEndian.Uint16(rest), rest[4 : 4+n]})
		rest = rest[4+n:]
	}
	return front, all
}

// putTogether makes a hello in records of at most size bytes.
func putTogether(front []byte, all []extension, size int) []byte {
	var body []byte
	for _, e := range all {
		body = binary.BigEndian.AppendUint16(body, e.kind)
		body = binary.BigEndian.AppendUint16(body, uint16(len(e.data)))
		body = append(body, e.data...)
	}
	body = append(binary.BigEndian.AppendUint16(bytes.Clone(front), uint16(len(body))), body...)
	body = append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	var out []byte
	for len(body) > 0 {
		n := min(len(body), size)
		out = append(binary.BigEndian.AppendUint16(append(out, 22, 3, 1), uint16(n)), body[:n]...)
		body = body[n:]
	}
	return out
}

// names is a server_name extension with these names.
func names(all ...string) extension {
	var list []byte
	for _, n := range all {
		list = append(binary.BigEndian.AppendUint16(append(list, 0), uint16(len(n))), n...)
	}
	return extension{0, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)}
}

// outerHello is an encrypted_client_hello as an outer hello, or GREASE, has it.
var outerHello = extension{0xfe0d, append([]byte{0, 0, 1, 0, 1, 7, 0, 1, 9, 0, 4}, "abcd"...)}

// On a port of mode tls the first payload byte goes out behind a hello that
// names the host, and not before.
func TestAHelloNamesTheHost(t *testing.T) {
	plain := clientHello(t, "tls.test")
	front, exts := takeApart(plain)
	whole := 1 << 14
	without := func(kind uint16) (out []extension) {
		for _, e := range exts {
			if e.kind != kind {
				out = append(out, e)
			}
		}
		return out
	}
	strict := serve(t, nil)
	lax := serve(t, func(o *guard.Options) { o.Config.ECH = guard.ECHAllow })
	for _, c := range []struct {
		id     string
		guard  *served
		hello  []byte
		single bool // byte by byte
		reason policy.Reason
		sni    string
	}{
		{id: "E41", hello: plain, sni: "tls.test"},
		{id: "E41 upper case", hello: clientHello(t, "TLS.test"), sni: "TLS.test"},
		{id: "E42", hello: clientHello(t, "other.test"), reason: policy.ReasonSNIMismatch, sni: "other.test"},
		{id: "B35", hello: clientHello(t, "evil.test"), reason: policy.ReasonSNIMismatch, sni: "evil.test"},
		{id: "E42 listed too", hello: clientHello(t, "allowed.test"), reason: policy.ReasonSNIMismatch, sni: "allowed.test"},
		{id: "E42 below", hello: clientHello(t, "x.tls.test"), reason: policy.ReasonSNIMismatch, sni: "x.tls.test"},
		{id: "E43", hello: putTogether(front, without(0), whole), reason: policy.ReasonSNIMissing},
		{id: "E43 an address has no name", hello: clientHello(t, pub), reason: policy.ReasonSNIMissing},
		{id: "E44 strict", hello: putTogether(front, append(without(0xfe0d), outerHello), whole), reason: policy.ReasonECH, sni: "tls.test"},
		{id: "E44 lax", guard: lax, hello: putTogether(front, append(without(0xfe0d), outerHello), whole), sni: "tls.test"},
		{id: "E44 lax, other name outside", guard: lax, hello: putTogether(front, append(without(0), outerHello, names("front.test")), whole), reason: policy.ReasonSNIMismatch, sni: "front.test"},
		{id: "E45 two names", hello: putTogether(front, append(without(0), names("tls.test", "other.test")), whole), reason: policy.ReasonSNIMissing},
		{id: "E45 two extensions", hello: putTogether(front, append(exts, names("tls.test")), whole), reason: policy.ReasonSNIMissing},
		{id: "E45 a dot behind", hello: putTogether(front, append(without(0), names("tls.test.")), whole), reason: policy.ReasonSNIMissing},
		{id: "E45 empty", hello: putTogether(front, append(without(0), names("")), whole), reason: policy.ReasonSNIMissing},
		{id: "E45 NUL", hello: putTogether(front, append(without(0), names("tls.test\x00.other.test")), whole), reason: policy.ReasonSNIMismatch, sni: `tls.test\x00.other.test`},
		{id: "E46", hello: plain, single: true, sni: "tls.test"},
		{id: "E47", hello: putTogether(front, exts, len(plain)/2), sni: "tls.test"},
		{id: "E47 many records", hello: putTogether(front, exts, 20), sni: "tls.test"},
		{id: "E48", hello: putTogether(front, append([]extension{{21, make([]byte, 2000)}}, exts...), whole), sni: "tls.test"},
		{id: "E49", hello: putTogether(front, append([]extension{{21, make([]byte, 20000)}}, exts...), whole), reason: policy.ReasonLimit},
		{id: "E50", hello: []byte("SSH-2.0-client\r\n"), reason: policy.ReasonSNIMissing},
		{id: "E50 plain HTTP", hello: []byte("GET / HTTP/1.1\r\nHost: tls.test\r\n\r\n"), reason: policy.ReasonSNIMissing},
		{id: "E50 a server's hello", hello: append([]byte{22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3}, make([]byte, 36)...), reason: policy.ReasonSNIMissing},
	} {
		t.Run(c.id, func(t *testing.T) {
			guarded := strict
			if c.guard != nil {
				guarded = c.guard
			}
			internet.fresh(map[string][]string{"tls.test.": {pub}}, nil)
			seen := int64(len(guarded.log.lines(t)))
			conn := guarded.dial(t)
			conn.send(connect("tls.test:443"))
			if got := conn.status(); got != 200 {
				t.Fatalf("status %d, want 200", got)
			}
			if c.single {
				for i := range c.hello {
					conn.send(string(c.hello[i : i+1]))
				}
			} else {
				conn.Write(c.hello) // a refused one may be cut off
			}
			if c.reason == "" {
				conn.expect(string(c.hello)) // the origin's echo: it got every byte, as it was
				conn.echoes("payload")
			} else if got := conn.end(); got != "" {
				t.Errorf("got %q behind the hello", got)
			}
			conn.Close()
			if took := internet.ledger(t); len(took) != 1 {
				t.Errorf("%q accepted, want the origin once", took)
			}
			l := guarded.log.await(t, func(l guard.Line) bool { return l.Seq > seen && l.Kind == guard.KindDecision })
			if l.Reason != c.reason || l.SNI != c.sni || l.ECH != strings.HasPrefix(c.id, "E44") {
				t.Errorf("the log says %+v, want %q and name %q", l, c.reason, c.sni)
			}
			if l.Host != "tls.test" || l.Connected != pub+":443" {
				t.Errorf("admitted was tls.test at %s, the log says %q at %q", pub, l.Host, l.Connected)
			}
			if c.reason != "" {
				if got := internet.taken(0); got != "" {
					t.Errorf("the origin got %q", got)
				}
			}
		})
	}
}

// D31: a hello that comes right behind the head is the first thing that the
// origin gets; and a mutant that does not look at names is found by E42.
func TestAHelloBehindTheHead(t *testing.T) {
	hello := string(clientHello(t, "tls.test"))
	internet.fresh(map[string][]string{"tls.test.": {pub}}, nil)
	conn := serve(t, nil).dial(t)
	conn.send(connect("tls.test:443") + hello + "payload")
	if got := conn.status(); got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	conn.expect(hello + "payload")

	blind := serve(t, func(o *guard.Options) {
		o.Alter = func(s *guard.Steps) { s.Hello = func(string, guard.Hello) error { return nil } }
	})
	internet.fresh(map[string][]string{"tls.test.": {pub}}, nil)
	conn = blind.dial(t)
	other := string(clientHello(t, "other.test"))
	conn.send(connect("tls.test:443") + other)
	if got := conn.status(); got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	conn.expect(other)
}

// E49: a hello that does not come.
func TestAHelloIsNotWaitedForLong(t *testing.T) {
	clock := newFakeClock()
	guarded := serve(t, func(o *guard.Options) { o.Clock = clock })
	internet.fresh(map[string][]string{"tls.test.": {pub}}, nil)
	conn := guarded.dial(t)
	conn.send(connect("tls.test:443"))
	if got := conn.status(); got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	conn.send("\x16\x03\x01")
	clock.await(10 * time.Second)
	clock.advance(10 * time.Second)
	if got := conn.end(); got != "" {
		t.Errorf("got %q", got)
	}
	l := guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindDecision })
	if l.Reason != policy.ReasonLimit || l.Status != 0 {
		t.Errorf("the log says %+v", l)
	}
	if internet.ledger(t); internet.taken(0) != "" {
		t.Errorf("the origin got %q", internet.taken(0))
	}
}

// E51: a server that speaks first, on a port of mode opaque.
func TestAnOpaquePortIsLeftAlone(t *testing.T) {
	internet.fresh(map[string][]string{"ports.test.": {pub}}, nil)
	conn := serve(t, nil).dial(t)
	conn.send(connect("ports.test:25"))
	if got := conn.status(); got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	conn.expect("220 hello\r\n")
	conn.echoes("EHLO x\r\n")
}

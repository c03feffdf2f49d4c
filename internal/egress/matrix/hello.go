package matrix

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// The extensions that cases change.
const (
	extServerName = 0
	extPadding    = 21
	extECH        = 0xfe0d
)

// extension of a ClientHello.
type extension struct {
	kind uint16
	data []byte
}

// hello is a ClientHello taken apart.
type hello struct {
	head       []byte // from the version to the compression methods
	extensions []extension
}

// newHello is what a client of the standard library says to a host; "" names
// none.
func newHello(host string) (*hello, error) {
	r := &recorder{}
	// The handshake fails at once for want of an answer. What it said is
	// there.
	err := tls.Client(r, &tls.Config{ServerName: host, InsecureSkipVerify: true}).Handshake()
	const header = 9 // of the record and of the message
	if len(r.said) < header || !errors.Is(err, io.EOF) {
		return nil, errors.New("no ClientHello: " + err.Error())
	}
	return parseHello(r.said[header:])
}

var errHello = errors.New("a ClientHello that ends early")

func parseHello(b []byte) (*hello, error) {
	at := 2 + 32
	for _, size := range []int{1, 2, 1} { // session, suites, compressions
		if len(b) < at+size {
			return nil, errHello
		}
		n := int(b[at])
		if size == 2 {
			n = int(binary.BigEndian.Uint16(b[at:]))
		}
		at += size + n
	}
	if len(b) < at+2 {
		return nil, errHello
	}
	h := &hello{head: b[:at]}
	for rest := b[at+2:]; len(rest) > 0; {
		if len(rest) < 4 || len(rest) < 4+int(binary.BigEndian.Uint16(rest[2:])) {
			return nil, errHello
		}
		n := int(binary.BigEndian.Uint16(rest[2:]))
		h.extensions = append(h.extensions, extension{binary.BigEndian.Uint16(rest), rest[4 : 4+n]})
		rest = rest[4+n:]
	}
	return h, nil
}

// with adds an extension at the end.
func (h *hello) with(kind uint16, data []byte) *hello {
	h.extensions = append(h.extensions, extension{kind, data})
	return h
}

// last moves the extensions of a kind to the end.
func (h *hello) last(kind uint16) *hello {
	slices.SortStableFunc(h.extensions, func(a, b extension) int {
		switch {
		case a.kind != kind && b.kind == kind:
			return -1
		case a.kind == kind && b.kind != kind:
			return 1
		}
		return 0
	})
	return h
}

// names is the body of a server_name extension.
func names(hosts ...string) []byte {
	var list []byte
	for _, host := range hosts {
		list = append(list, 0)
		list = binary.BigEndian.AppendUint16(list, uint16(len(host)))
		list = append(list, host...)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)
}

// bytes puts it into records of at most size bytes.
func (h *hello) bytes(size int) []byte {
	var list []byte
	for _, e := range h.extensions {
		list = binary.BigEndian.AppendUint16(list, e.kind)
		list = binary.BigEndian.AppendUint16(list, uint16(len(e.data)))
		list = append(list, e.data...)
	}
	body := append(slices.Clone(h.head), byte(len(list)>>8), byte(len(list)))
	body = append(body, list...)
	const clientHello, handshake = 1, 22
	message := append([]byte{clientHello, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	var out []byte
	for part := range slices.Chunk(message, size) {
		out = append(out, handshake, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

// record is the most that one record of TLS holds.
const record = 16384

// sni is an ordinary hello to a host, in one record.
func sni(host string) ([]byte, error) {
	h, err := newHello(host)
	if err != nil {
		return nil, err
	}
	return h.bytes(record), nil
}

// recorder is a connection that keeps what is written and has nothing to read.
type recorder struct{ said []byte }

func (r *recorder) Write(p []byte) (int, error) { r.said = append(r.said, p...); return len(p), nil }
func (r *recorder) Read([]byte) (int, error)    { return 0, io.EOF }
func (r *recorder) Close() error                { return nil }

func (r *recorder) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (r *recorder) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (r *recorder) SetDeadline(time.Time) error      { return nil }
func (r *recorder) SetReadDeadline(time.Time) error  { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

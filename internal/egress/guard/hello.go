package guard

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// Hello is what a ClientHello shows in the clear.
type Hello struct {
	ServerName string // the one name, or "" if it has none
	ECH        bool   // the extension of an encrypted inner hello is there
}

// extensionECH is encrypted_client_hello. Source: RFC 9849.
const extensionECH = 0xfe0d

// readHello reads one ClientHello, of which read are the first bytes, and
// returns all bytes that it took: they are what the origin gets first. It is the
// hello that crypto/tls reads, in any number of records and pieces, and it has
// one name at most: crypto/tls refuses two names and an extension that stands
// twice, which two readers could read differently.
//
// Nothing is answered, and no key is held: the handshake is given up as soon as
// the hello is there. A second hello, after a retry, is not read. A client that
// names another host there asks the origin it was allowed to ask.
//
// Errors: a *policy.Refusal with ReasonSNIMissing for what is no hello, or with
// ReasonLimit for more than MaxHelloBytes; the connection's.
func readHello(conn net.Conn, read []byte) (Hello, []byte, error) {
	p := &peek{Conn: conn, taken: read}
	var h Hello
	seen := errors.New("seen")
	err := tls.Server(p, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		h = Hello{ServerName: info.ServerName, ECH: slices.Contains(info.Extensions, extensionECH)}
		return nil, seen
	}}).Handshake()
	switch {
	case errors.Is(err, seen):
		return h, p.taken, nil
	case p.err != nil:
		return Hello{}, nil, p.err
	}
	return Hello{}, nil, refuse(policy.ReasonSNIMissing, 0, "hello", "a ClientHello", "something else")
}

// peek is a connection that crypto/tls reads from and cannot write to. It keeps
// what was read.
type peek struct {
	net.Conn
	taken []byte
	given int // how many of taken crypto/tls has
	err   error
}

// Read gives what was taken before, then more, at most MaxHelloBytes in all.
func (p *peek) Read(b []byte) (int, error) {
	if p.given == len(p.taken) {
		room := MaxHelloBytes - len(p.taken)
		if room <= 0 {
			p.err = refuse(policy.ReasonLimit, 0, "hello", "at most 16384 bytes", "more")
			return 0, p.err
		}
		n, err := p.Conn.Read(b[:min(len(b), room)])
		p.taken = append(p.taken, b[:n]...)
		p.given += n
		if n == 0 && err != nil {
			p.err = err
		}
		return n, err
	}
	n := copy(b, p.taken[p.given:])
	p.given += n
	return n, nil
}

// Write says nothing to the client: its alerts are the origin's business.
func (p *peek) Write(b []byte) (int, error) { return len(b), nil }

// Close leaves the connection open.
func (p *peek) Close() error { return nil }

// SetWriteDeadline has nothing to bound.
func (p *peek) SetWriteDeadline(time.Time) error { return nil }

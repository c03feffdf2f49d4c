package guard

import (
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// What the tests of the parsers call by itself.
var Asked = asked

// ReadHeadFrom reads a head that comes in pieces of at most piece bytes.
func ReadHeadFrom(text string, piece, most int) (head string, rest []byte, err error) {
	return readHead(&pieces{strings.NewReader(text), piece}, most)
}

type pieces struct {
	r    *strings.Reader
	size int
}

func (p *pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.size)]) }

// Check and Agree are what a head is held to.
func (h *Head) Check() error { return h.check() }

// Agree is the other half of it.
func (h *Head) Agree(t policy.Target) error { return h.agree(t) }

// ReadHelloFrom reads a hello that comes in pieces; read came before.
func ReadHelloFrom(text string, piece int, read []byte) (Hello, []byte, error) {
	return readHello(&pieceConn{pieces: pieces{strings.NewReader(text), piece}}, read)
}

type pieceConn struct {
	net.Conn
	pieces
}

func (p *pieceConn) Read(b []byte) (int, error) { return p.pieces.Read(b) }

// ReadAnswer reads a message as the answer to the question for host, and returns
// the question's id too.
func ReadAnswer(message []byte, host string, v6 bool, id uint16) (addresses []netip.Addr, truncated bool, err error) {
	name, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return nil, false, err
	}
	q := question{id: id, asks: dnsmessage.Question{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
	if v6 {
		q.asks.Type = dnsmessage.TypeAAAA
	}
	r, err := q.read(message)
	return r.addresses, r.truncated, err
}

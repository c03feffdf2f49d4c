package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

const (
	dialTimeout = 10 * time.Second
	idleTimeout = 60 * time.Second // a server that closes sooner costs one retry
	pingTimeout = 15 * time.Second // and as much until a ping is sent
	keepAlive   = 15 * time.Second
)

// pool is the connections of one enrollment; none of another ever shares them.
// It is a bare Transport and no http.Client: a Transport follows no redirect
// and keeps no cookie.
type pool struct {
	*http.Transport
	dial func(ctx context.Context) (net.Conn, error)

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
}

// newPool makes the pool of o. dial is nil but in tests.
func newPool(o Options, t target, dial func(context.Context) (net.Conn, error)) *pool {
	p := &pool{conns: map[*conn]struct{}{}, dial: dial}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(t.secure)
	p.Transport = &http.Transport{
		Proxy:                  nil, // HTTP_PROXY is not for an enrollment to obey
		DisableCompression:     true,
		MaxConnsPerHost:        3*o.Processes + 8, // a stream, an input and a wait of each
		MaxIdleConns:           0,
		MaxIdleConnsPerHost:    o.Processes + 8,
		IdleConnTimeout:        idleTimeout,
		TLSHandshakeTimeout:    dialTimeout,
		MaxResponseHeaderBytes: wire.MaxHeaderBytes,
		WriteBufferSize:        32 << 10,
		ReadBufferSize:         32 << 10,
		Protocols:              protocols,
		// A connection that is dead but open answers no ping.
		HTTP2:           &http.HTTP2Config{SendPingTimeout: pingTimeout, PingTimeout: pingTimeout},
		TLSClientConfig: tlsConfig(o),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return p.connect(ctx, t, network, address)
		},
	}
	return p
}

func (p *pool) connect(ctx context.Context, t target, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := net.Dialer{KeepAlive: keepAlive} // TCP_NODELAY is Go's default
	var c net.Conn
	var err error
	switch {
	case p.dial != nil:
		c, err = p.dial(ctx)
	case t.socket != "":
		c, err = d.DialContext(ctx, "unix", t.socket)
	default:
		c, err = d.DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	if p.dial == nil && !t.secure && !local(c.RemoteAddr()) {
		c.Close()
		return nil, errors.New("http to an address of another machine")
	}
	return p.keep(c)
}

// keep counts a connection, so that Close leaves none.
func (p *pool) keep(c net.Conn) (net.Conn, error) {
	k := &conn{Conn: c, pool: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return nil, ErrClosed
	}
	p.conns[k] = struct{}{}
	return k, nil
}

// shut closes every connection.
func (p *pool) shut() {
	p.mu.Lock()
	p.closed = true
	open := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		open = append(open, c)
	}
	p.mu.Unlock()
	p.CloseIdleConnections()
	for _, c := range open {
		c.Close()
	}
}

type conn struct {
	net.Conn
	pool *pool
}

func (c *conn) Close() error {
	c.pool.mu.Lock()
	delete(c.pool.conns, c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http half-close as it would on the connection itself.
func (c *conn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

func tlsConfig(o Options) *tls.Config {
	t := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: o.Roots}
	if o.Certificate != nil {
		t.Certificates = []tls.Certificate{*o.Certificate}
	}
	if o.Pin != "" {
		// The pin replaces the chain, it does not switch the check off.
		t.InsecureSkipVerify = true
		t.VerifyConnection = func(s tls.ConnectionState) error { return pinned(s, o.Pin, time.Now()) }
	}
	return t
}

// PublicKeyDigest is the pin of a certificate: the SHA-256 of its public key.
func PublicKeyDigest(c *x509.Certificate) sandbox.Digest {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return sandbox.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

func pinned(s tls.ConnectionState, pin sandbox.Digest, now time.Time) error {
	if len(s.PeerCertificates) == 0 {
		return &PeerError{"certificate", "one", "none"}
	}
	leaf := s.PeerCertificates[0]
	if got := PublicKeyDigest(leaf); got != pin {
		return &PeerError{"public key", string(pin), string(got)}
	}
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return &PeerError{"certificate", "one that is valid at " + now.UTC().Format(time.RFC3339), "another period"}
	}
	return nil
}

// PeerError says that the other end is not the one that was enrolled.
type PeerError struct{ Field, Expected, Got string }

// Error is one line.
func (e *PeerError) Error() string {
	return "peer " + e.Field + ": expected " + e.Expected + ", got " + e.Got
}

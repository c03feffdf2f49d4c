package client

import (
	"context"
	"crypto/tls"
	"net"
)

// Connect opens one bare connection as a client of o would, to speak HTTP/1.1
// on it by hand. It is for who tests a provider: nothing that o says of leases
// and times is used.
// Blocks: at most 10 s, or until ctx is done.
// Errors: *OptionError; *PeerError; what the network said.
// Ownership: the caller closes the connection.
func Connect(ctx context.Context, o Options) (net.Conn, error) {
	o, t, err := o.settle()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	base := t.url
	port := base.Port()
	if port == "" {
		port = base.Scheme
	}
	p := newPool(o, t, nil)
	c, err := p.connect(ctx, t, "tcp", net.JoinHostPort(base.Hostname(), port))
	if err != nil || !t.secure {
		return c, err
	}
	config := tlsConfig(o)
	config.ServerName, config.NextProtos = base.Hostname(), []string{"http/1.1"}
	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return secure, nil
}

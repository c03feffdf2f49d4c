package wire

import (
	"net"
	"net/url"

	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// link connects a client to the target through a proxy on our side that does
// what script says. Both end with the probe. The client has the lease l, for
// what it did not allocate itself.
func link(t *probe.T, l wire.Lease, script faultproxy.Script) (*client.Client, *faultproxy.Proxy) {
	w := t.Target().Wire
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Unjudged("proxy", err.Error())
	}
	proxy := faultproxy.Listen(listener, faultproxy.Options{Dial: w.Dial, Script: script})
	t.Defer(func() { _ = proxy.Close() })
	base := url.URL{Scheme: "http", Host: proxy.Addr().String(), Path: w.Path}
	c, err := client.Dial(t.Context(), client.Options{Base: base.String(), Token: w.Token, Lease: l})
	t.Need("connected", err)
	t.Defer(func() { _ = c.Close() })
	return c, proxy
}

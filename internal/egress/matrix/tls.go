package matrix

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"time"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// tlsSink is an address that speaks TLS to the end, and echoes inside.
var tlsSink = netip.MustParseAddrPort("45.33.32.20:443")

// greeter is one whose server speaks first.
var greeter = netip.MustParseAddrPort("45.33.32.10:8443")

// helloCases are those about the ClientHello behind an allowed request.
func helloCases() []Case {
	e := []Fact{Exact}
	whole := func(change func(*hello) []byte) func(*trial) error {
		return func(t *trial) error { return t.hello(change, "", false) }
	}
	one := func(h *hello) []byte { return h.bytes(record) }
	return []Case{
		{ID: "E41", Title: "TLS to the host that was asked for", Facts: e, hosts: []string{"e41.test"}, run: realTLS},
		{ID: "E42", Title: "a hello that names another host", Facts: e, run: func(t *trial) error {
			data, err := sni(other)
			if err != nil {
				return err
			}
			return t.says(data, true, policy.ReasonSNIMismatch)
		}},
		{ID: "E43", Title: "a hello that names nobody", Facts: e, run: func(t *trial) error {
			data, err := sni("")
			if err != nil {
				return err
			}
			return t.says(data, true, policy.ReasonSNIMissing)
		}},
		{ID: "E44", Title: "a hello that hides a name", Facts: e, alone: true, run: hidden},
		{ID: "E45", Title: "a hello that names two hosts, or one twice", Facts: e, run: func(t *trial) error {
			if err := t.hello(func(h *hello) []byte { return h.with(extServerName, names(other)).bytes(record) }, policy.ReasonSNIMissing, false); err != nil {
				return named("twice", err)
			}
			return t.hello(func(h *hello) []byte {
				for i := range h.extensions {
					if h.extensions[i].kind == extServerName {
						h.extensions[i].data = names(allowed, other)
					}
				}
				return h.bytes(record)
			}, policy.ReasonSNIMissing, false)
		}},
		{ID: "E46", Title: "a hello byte by byte", Facts: e, run: func(t *trial) error { return t.hello(one, "", true) }},
		{ID: "E47", Title: "a hello over two records", Facts: e, run: whole(func(h *hello) []byte { return h.bytes(700) })},
		{ID: "E48", Title: "a hello that names the host behind its first 1,024 bytes", Facts: e, run: whole(func(h *hello) []byte {
			return h.last(extServerName).bytes(record)
		})},
		{ID: "E49", Title: "a hello that is too long, or too late", Facts: []Fact{Exact, Default}, run: func(t *trial) error {
			long := func(h *hello) []byte { return h.with(extPadding, make([]byte, 17_000)).bytes(record) }
			if err := t.hello(long, policy.ReasonLimit, false); err != nil {
				return named("long", err)
			}
			return named("late", t.hello(func(h *hello) []byte { return h.bytes(record)[:100] }, policy.ReasonLimit, true))
		}},
		{ID: "E50", Title: "bytes that are no TLS", Facts: e, run: func(t *trial) error {
			return t.says([]byte("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), true, policy.ReasonSNIMissing)
		}},
		{ID: "E51", Title: "a server that speaks first, on a port that is listed as opaque", Facts: e, run: serverFirst},
		{ID: "E52", Title: "another host inside TLS, on a shared front", Facts: e,
			skip: "a recorded limit: what is inside TLS is not seen without ending it"},
	}
}

// hello sends a changed hello to a listed host. Without a reason it must arrive.
// A slow one comes byte by byte, or, where it must not arrive, never whole.
func (t *trial) hello(change func(*hello) []byte, reason policy.Reason, slowly bool) error {
	h, err := newHello(allowed)
	if err != nil {
		return err
	}
	data := change(h)
	if reason != "" {
		return t.says(data, !slowly, reason)
	}
	return t.request(connectHead("allowed.test:443"), want{status: []int{200}, accepts: at(public), asked: []string{allowed}}, func(c *client) error {
		if slowly {
			for i := range data {
				if _, err := c.Write(data[i : i+1]); err != nil {
					return err
				}
			}
			back := make([]byte, len(data))
			_, err := io.ReadFull(c.in, back)
			return err
		}
		return c.echoes(data)
	})
}

// says sends bytes after an answer of 200. The connection must end, and no byte
// of it may have arrived at the origin. Of what is not whole more could come.
func (t *trial) says(data []byte, whole bool, reason policy.Reason) error {
	return t.request(connectHead("allowed.test:443"), want{
		status: []int{200}, reason: reason, accepts: at(public), silent: true, asked: []string{allowed},
	}, func(c *client) error {
		if _, err := c.Write(data); err != nil && !ended(err) {
			return err
		}
		if whole {
			// Whoever lets it pass need not be waited for.
			c.closeWrite()
		}
		got, err := c.ends()
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("expected the end of the connection, got %d bytes", len(got))
		}
		return err
	})
}

func hidden(t *trial) error {
	strict, err := t.own(nothing)
	if err != nil {
		return err
	}
	ech := func(h *hello) []byte { return h.with(extECH, []byte{0, 0, 1, 0, 1, 0, 0, 0, 0, 0}).bytes(record) }
	if err := errors.Join(strict.hello(ech, policy.ReasonECH, false), strict.guard.end()); err != nil {
		return named("deny", err)
	}
	lax, err := t.own(func(c *guard.Config) { c.ECH = guard.ECHAllow })
	if err != nil {
		return err
	}
	mark := lax.guard.log.mark()
	err = lax.hello(ech, "", false)
	for _, l := range lax.guard.log.since(mark) {
		if !l.ECH {
			err = errors.Join(err, errors.New("log: expected that a name is hidden, got nothing of it"))
		}
	}
	return named("allow", errors.Join(err, lax.guard.end()))
}

func realTLS(t *trial) error {
	certificate, err := selfSigned("e41.test")
	if err != nil {
		return err
	}
	t.lab.Ledger.Serve(tlsSink, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}})
		io.Copy(s, s)
		s.Close()
	})
	defer t.lab.Ledger.Serve(tlsSink, nil)
	t.answers("e41.test", tlsSink.Addr())
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Leaf)
	return t.request(connectHead("e41.test:443"), want{
		status: []int{200}, accepts: at(tlsSink), asked: []string{"e41.test"},
	}, func(c *client) error {
		inner := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "e41.test"})
		if _, err := io.WriteString(inner, "inside"); err != nil {
			return fmt.Errorf("handshake: %w", err)
		}
		back := make([]byte, len("inside"))
		if _, err := io.ReadFull(inner, back); err != nil || string(back) != "inside" {
			return fmt.Errorf("inside TLS: got %q: %w", back, err)
		}
		return inner.Close()
	})
}

func serverFirst(t *trial) error {
	t.lab.Ledger.Serve(greeter, func(c net.Conn) {
		io.WriteString(c, "220 here\r\n")
		io.Copy(c, c)
	})
	defer t.lab.Ledger.Serve(greeter, nil)
	return t.request(connectHead("opaque.test:8443"), want{status: []int{200}, accepts: at(greeter), asked: []string{opaque}}, func(c *client) error {
		if line, err := c.in.ReadString('\n'); err != nil || line != "220 here\r\n" {
			return fmt.Errorf("expected a greeting, got %q: %w", line, err)
		}
		return c.echoes([]byte("EHLO"))
	})
}

// selfSigned makes a certificate for a host of the lab.
func selfSigned(host string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

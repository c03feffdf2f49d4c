package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/checkfu/checkfu/wire"
)

func certificate(t *testing.T, until time.Time) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "peer"},
		NotBefore: until.Add(-24 * time.Hour), NotAfter: until, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, leaf
}

// secured serves a peer over TLS on a line of its own, in a bubble's memory.
func secured(t *testing.T, p *peer, config *tls.Config) {
	t.Helper()
	s := &http.Server{Handler: p, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan struct{})
	go func() { s.ServeTLS(p, "", ""); close(served) }()
	t.Cleanup(func() { s.Close(); <-served })
}

// W17: who the server is, and who it takes the client for.
func TestIdentity(t *testing.T) {
	now := time.Now()
	server, leaf := certificate(t, now.Add(time.Hour))
	expired, expiredLeaf := certificate(t, now.Add(-time.Hour))
	own, ownLeaf := certificate(t, now.Add(time.Hour))
	stranger, _ := certificate(t, now.Add(time.Hour))
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	clients := x509.NewCertPool()
	clients.AddCert(ownLeaf)
	for _, c := range []struct {
		name   string
		server *tls.Config
		o      Options
		want   string // in the error
	}{
		{"pinned", &tls.Config{Certificates: []tls.Certificate{server}}, Options{Pin: PublicKeyDigest(leaf)}, ""},
		{"another pin", &tls.Config{Certificates: []tls.Certificate{server}}, Options{Pin: PublicKeyDigest(ownLeaf)}, "peer public key"},
		{"pinned, expired", &tls.Config{Certificates: []tls.Certificate{expired}}, Options{Pin: PublicKeyDigest(expiredLeaf)}, "peer certificate"},
		{"an authority", &tls.Config{Certificates: []tls.Certificate{server}}, Options{Roots: roots}, ""},
		{"no authority", &tls.Config{Certificates: []tls.Certificate{server}}, Options{Roots: x509.NewCertPool()}, "unknown authority"},
		{"TLS 1.2", &tls.Config{Certificates: []tls.Certificate{server}, MaxVersion: tls.VersionTLS12}, Options{Pin: PublicKeyDigest(leaf)}, "protocol version"},
		{"a client certificate", &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: clients, ClientAuth: tls.RequireAnyClientCert},
			Options{Pin: PublicKeyDigest(leaf), Certificate: &own}, ""},
		{"no client certificate", &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAnyClientCert},
			Options{Pin: PublicKeyDigest(leaf)}, "certificate required"},
		{"a stranger's", &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert},
			Options{Pin: PublicKeyDigest(leaf), Certificate: &stranger}, "tls:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t)
			l, err := net.Listen("tcp", "127.0.0.1:0") // a pipe without room deadlocks when both ends speak
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: p, TLSConfig: c.server, ErrorLog: log.New(io.Discard, "", 0)}
			go s.ServeTLS(l, "", "")
			defer s.Close()
			c.o.Base, c.o.Deadline = "https://"+l.Addr().String(), time.Minute
			client, err := Dial(t.Context(), c.o)
			if err == nil {
				defer client.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if c.want != "" && len(p.of(wire.Capabilities)) != 0 {
				t.Error("it was asked")
			}
		})
	}
}

// A token that is refused is said so at once, and is never in an error.
func TestTokenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		token := strings.Repeat("secret", 8)
		p.on(wire.Capabilities, func(d *delivery) {
			if d.header.Token != token {
				t.Errorf("token %q", d.header.Token)
			}
			d.fail(&wire.Error{Tag: wire.TagUnauthenticated})
		})
		s := &http.Server{Handler: p}
		go s.Serve(p)
		defer s.Close()
		_, err := dial(t.Context(), Options{Base: "unix:/s", Token: token}, seam{dial: p.dial})
		if !errors.Is(err, &wire.Error{Tag: wire.TagUnauthenticated}) || strings.Contains(err.Error(), "secret") || len(p.of(wire.Capabilities)) != 1 {
			t.Error(err)
		}
	})
}

// frozen is a line that can be cut off without being closed: what is written is
// gone, nothing is read.
type frozen struct {
	net.Conn
	cold *atomic.Bool
	ice  chan struct{}
}

func (f frozen) Write(b []byte) (int, error) {
	if f.cold.Load() {
		return len(b), nil
	}
	return f.Conn.Write(b)
}

func (f frozen) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if f.cold.Load() {
		<-f.ice
		return 0, net.ErrClosed
	}
	return n, err
}

// W24: a connection of HTTP/2 that goes nowhere is found out by its pings, in
// 30 s, also under a call that may wait for much longer.
func TestBlackhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, leaf := certificate(t, time.Now().Add(time.Hour))
		p := newPeer(t)
		var cold atomic.Bool
		ice := make(chan struct{})
		first := true
		line := p.dial
		p.on(wire.Destroy, func(d *delivery) {
			if d.r.ProtoMajor != 2 {
				t.Errorf("HTTP/%d", d.r.ProtoMajor)
			}
			if d.n == 1 {
				cold.Store(true)
				d.hold()
				return
			}
			d.reply(200, wire.Empty{})
		})
		secured(t, p, &tls.Config{Certificates: []tls.Certificate{server}})
		c, err := dial(t.Context(), Options{Base: "https://127.0.0.1", Pin: PublicKeyDigest(leaf), Wait: 30 * time.Second}, seam{
			random: func() float64 { return 0 },
			dial: func(ctx context.Context) (net.Conn, error) {
				l, err := line(ctx)
				if first && err == nil {
					first = false
					return frozen{l, &cold, ice}, nil
				}
				return l, err
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		defer close(ice)
		began := time.Now()
		if err := c.Destroy(t.Context(), "i1"); err != nil || time.Since(began) > pingTimeout*2 {
			t.Error(err, time.Since(began))
		}
	})
}

// W23: a server that goes away in order takes no call with it.
func TestGoAway(t *testing.T) {
	server, leaf := certificate(t, time.Now().Add(time.Hour))
	p := newPeer(t)
	answered := make(chan struct{})
	p.on(wire.Destroy, func(d *delivery) {
		d.reply(200, wire.Empty{})
		select {
		case answered <- struct{}{}:
		default:
		}
	})
	var base string
	start := func() *http.Server {
		address := "127.0.0.1:0"
		if base != "" {
			address = strings.TrimPrefix(base, "https://")
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		base = "https://" + l.Addr().String()
		s := &http.Server{Handler: p, TLSConfig: &tls.Config{Certificates: []tls.Certificate{server}}, ErrorLog: log.New(io.Discard, "", 0)}
		go s.ServeTLS(l, "", "")
		return s
	}
	s := start()
	defer func() { s.Close() }()
	c, err := Dial(t.Context(), Options{Base: base, Pin: PublicKeyDigest(leaf)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	failures := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		defer close(failures)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := c.Destroy(t.Context(), "i1"); err != nil {
				failures <- err
				return
			}
		}
	}()
	for range 5 {
		old := s
		for range 20 {
			<-answered
		}
		if err := old.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		s = start()
	}
	close(stop)
	if err := <-failures; err != nil {
		t.Error(err)
	}
	for _, d := range p.of(wire.Destroy) {
		if d.r.ProtoMajor != 2 {
			t.Fatalf("HTTP/%d", d.r.ProtoMajor)
		}
	}
}

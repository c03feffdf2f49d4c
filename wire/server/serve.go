package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/checkfu/checkfu/wire"
)

// Bounds of time of a listener. There is none on writing a whole response: a
// stream has no end, and what stands still is bounded by Options.Stall.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 3 * time.Minute // longer than common proxies keep a connection
	drainTimeout  = 30 * time.Second
	pingAfter     = 15 * time.Second
)

// Listen opens address: "unix:/path", of which only this user may use the
// socket, or "host:port". A socket file that nobody listens on any more is
// replaced.
// Errors: the operating system's.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix {
		return config.Listen(ctx, "tcp", address)
	}
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen %s: somebody does", address)
	} else if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// Bound under a name that nobody knows, closed to others, and only then put
	// where it belongs: there is no moment at which anybody else could connect.
	hidden, err := os.MkdirTemp(dirOf(path), ".listen-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(hidden)
	l, err := config.Listen(ctx, "unix", hidden+"/s")
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(hidden+"/s", 0o600), os.Rename(hidden+"/s", path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &unixListener{l, path}, nil
}

// unixListener takes its name away when it closes.
type unixListener struct {
	net.Listener
	path string
}

func (l *unixListener) Close() error { return errors.Join(l.Listener.Close(), os.Remove(l.path)) }

func dirOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "."
}

// Serve serves s on l until ctx is done, then drains and closes s. With config
// it speaks TLS 1.3, over HTTP/2 where the caller offers it; client certificates
// are asked for and judged by s. Without, l must be a unix socket or loopback:
// tokens are never taken in the clear from a network.
// Errors: nil after a drain that had time to end.
// Ownership: Serve closes l.
func Serve(ctx context.Context, l net.Listener, s *Server, config *tls.Config) error {
	if config == nil && !private(l.Addr()) {
		return errors.Join(fmt.Errorf("serve %s: expected TLS, a unix socket or loopback", l.Addr()), l.Close())
	}
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: wire.MaxHeaderBytes,
		ErrorLog: log.New(logWriter{s}, "", 0),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000, SendPingTimeout: pingAfter, PingTimeout: pingAfter, WriteByteTimeout: s.opt.Stall,
		},
	}
	served := make(chan error, 1)
	if config == nil {
		go func() { served <- h.Serve(l) }()
	} else {
		h.TLSConfig = config.Clone()
		h.TLSConfig.MinVersion = max(h.TLSConfig.MinVersion, tls.VersionTLS13)
		if h.TLSConfig.ClientAuth == tls.NoClientCert {
			h.TLSConfig.ClientAuth = tls.RequestClientCert
		}
		go func() { served <- h.ServeTLS(l, "", "") }()
	}
	select {
	case err := <-served:
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		return errors.Join(err, s.Close(drain), h.Close())
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := s.Close(drain)
	err = errors.Join(err, h.Shutdown(drain), h.Close())
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

func private(a net.Addr) bool {
	switch a := a.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

// logWriter gives what net/http says about connections to the server's log.
type logWriter struct{ s *Server }

func (w logWriter) Write(b []byte) (int, error) {
	w.s.log(errors.New(strings.TrimSpace(string(b))))
	return len(b), nil
}

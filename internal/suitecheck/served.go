package suitecheck

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
	"github.com/checkfu/checkfu/wire/server"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

// token is what the client of a served target has.
const token = "suitecheck-0123456789abcdefghijklmnop"

// served is a target behind a server of the wire on a socket of its own.
type served struct {
	target *probe.Target
	behind sandbox.Provider
	serve  func(http.Handler, *sandboxtest.Env) http.Handler
	env    *sandboxtest.Env
	dir    string

	mu     sync.Mutex
	server *server.Server
	http   *http.Server
	client *client.Client
}

// overWire puts a server and a client in front of what target has, and what
// serve makes of that server. A restart is a crash of the server on the state
// that it wrote.
// Errors: the operating system's; what the saboteur kept from being met.
func overWire(ctx context.Context, target *probe.Target, serve func(http.Handler, *sandboxtest.Env) http.Handler, env *sandboxtest.Env) (*served, error) {
	dir, err := os.MkdirTemp("", "checkfu-suitecheck-")
	if err != nil {
		return nil, err
	}
	s := &served{target: target, behind: target.Provider, serve: serve, env: env, dir: dir}
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	target.Provider, target.Remote = s.client, true
	target.Wire = &probe.Wire{Host: "localhost", Token: token, Dial: func(ctx context.Context) (net.Conn, error) {
		return client.Connect(ctx, s.options())
	}}
	target.Restart = func(ctx context.Context) (sandbox.Provider, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.stop(); err != nil {
			return nil, err
		}
		if err := s.start(ctx); err != nil {
			return nil, err
		}
		return s.client, nil
	}
	return s, nil
}

func (s *served) options() client.Options {
	return client.Options{Base: "unix:" + filepath.Join(s.dir, "socket"), Token: token}
}

func (s *served) start(ctx context.Context) (err error) {
	s.server, err = server.New(server.Options{Provider: s.behind, Journal: logstore.At(filepath.Join(s.dir, "state")), Tokens: []string{token}, OutputWindow: wire.MinOutputWindowBytes, Clock: quick{server.System}})
	if err != nil {
		return err
	}
	l, err := server.Listen(ctx, s.options().Base)
	if err != nil {
		return err
	}
	handler := http.Handler(s.server)
	if s.serve != nil {
		handler = s.serve(handler, s.env)
	}
	s.http = &http.Server{Handler: handler}
	go func() { _ = s.http.Serve(l) }()
	s.client, err = client.Dial(ctx, s.options())
	return err
}

// quick is a clock whose short waits, which are heartbeats, are twenty times as
// short: what has to be missed is missed soon.
type quick struct{ server.Clock }

func (q quick) NewTimer(d time.Duration) (<-chan time.Time, func() bool) {
	if d >= wire.MinHeartbeatMS*time.Millisecond && d < 2*wire.MinHeartbeatMS*time.Millisecond {
		d /= 20
	}
	return q.Clock.NewTimer(d)
}

// stop ends the server at once. The client has to go first: it would undo what
// it waits for.
func (s *served) stop() error {
	var err error
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if s.http != nil {
		err = s.http.Close()
	}
	if s.server != nil {
		if cerr := s.server.Close(over); !errors.Is(cerr, context.Canceled) {
			err = errors.Join(err, cerr)
		}
	}
	s.http, s.server = nil, nil
	if s.client != nil {
		err = errors.Join(err, s.client.Close())
	}
	s.client = nil
	return err
}

func (s *served) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.stop()
	_ = os.RemoveAll(s.dir)
}

package conformance

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/conformancetest"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/client"
	"github.com/checkfu/checkfu/wire/server"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

// listening is one server on a socket, with a client, until it crashes.
type listening struct {
	provider sandbox.Provider
	dir      string

	client *client.Client
	end    func() error
}

func (l *listening) options() client.Options {
	return client.Options{Base: "unix:" + filepath.Join(l.dir, "s"), Token: token}
}

func (l *listening) start(ctx context.Context) error {
	s, err := server.New(server.Options{Provider: l.provider, Journal: logstore.At(filepath.Join(l.dir, "journal")), Tokens: []string{token}})
	if err != nil {
		return err
	}
	socket, err := server.Listen(ctx, l.options().Base)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() {
		defer close(served) // it may be asked for twice, where the next start fails
		served <- server.Serve(ctx, socket, s, nil)
	}()
	l.client, err = client.Dial(ctx, l.options())
	l.end = func() error {
		if l.client != nil {
			_ = l.client.Close()
		}
		cancel()
		return <-served
	}
	return err
}

// TestWireSuite: the product's own server over each provider of this program
// passes the suite of the wire, restarts in the middle of it included.
func TestWireSuite(t *testing.T) {
	t.Parallel()
	for _, name := range []string{all.Memory, all.NativeRunsc, all.NativeRunc} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var target conformance.Target
			if name == all.Memory {
				target, _ = oracle.New("wire-suite")
			} else {
				target = open(t, name)
				target.Provider = all.Served(target.Provider)
			}
			l := &listening{provider: target.Provider, dir: t.TempDir()}
			if err := l.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := l.end(); err != nil {
					t.Error(err)
				}
			})
			target.Provider, target.Remote = l.client, true
			target.Wire = &conformance.Wire{Host: "localhost", Token: token, Dial: func(ctx context.Context) (net.Conn, error) {
				return client.Connect(ctx, l.options())
			}}
			target.Restart = func(ctx context.Context) (sandbox.Provider, error) {
				if err := l.end(); err != nil {
					return nil, err
				}
				err := l.start(ctx)
				return l.client, err
			}
			o := conformance.Options{Suites: []report.Suite{report.Wire}, Only: []string{"wire.*"}, Patience: 2 * time.Minute, Passes: 1}
			conformancetest.Golden(t, target, o, "testdata/wire-"+strings.ReplaceAll(name, ":", "-")+".golden")
		})
	}
}

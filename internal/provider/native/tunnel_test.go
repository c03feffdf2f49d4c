package native

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/sandbox"
)

// dial connects through a tunnel that ends with the test.
func dial(t *testing.T, p *Provider, id sandbox.InstanceID, port int) (*guest.Connection, *Tunnel) {
	t.Helper()
	tunnel, err := p.Tunnel(t.Context(), id, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tunnel.Close(); err != nil {
			t.Error(err)
		}
	})
	f := tunnel.Files()
	return guest.NewConnection(f[0], f[1], f[2]), tunnel
}

// A server in a machine without a network is reached from outside, beside the
// live process that it belongs to, and nothing of a tunnel stays behind.
func TestTunnel(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		live, err := p.OpenProcess(t.Context(), id, "server", sandbox.ProcessRequest{
			Executable: "/bin/sh", WorkingDirectory: "/", Environment: map[string]string{},
			// The line that is asked for, and all that came before its end.
			Arguments: []string{"-c", "exec nc -ll -p 8080 -e sh -c 'read a; echo you said $a; wc -c'"},
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it listens", func() bool {
			c, tunnel := dial(t, p, id, 8080)
			defer tunnel.Close()
			err := c.Connected()
			if refused, is := errors.AsType[*guest.DialError](err); is && !strings.Contains(refused.Said, "refused") {
				t.Fatal(err)
			}
			return err == nil
		})
		for range 3 {
			c, tunnel := dial(t, p, id, 8080)
			if err := c.Connected(); err != nil {
				t.Fatal(err)
			}
			go func() {
				io.WriteString(c, "hello\n"+strings.Repeat("x", 100000))
				c.CloseWrite()
			}()
			if got, err := io.ReadAll(c); string(got) != "you said hello\n100000\n" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			if err := errors.Join(tunnel.Close(), tunnel.Close()); err != nil {
				t.Error(err)
			}
		}
		// One that stays open is ended, whatever it waits for.
		c, tunnel := dial(t, p, id, 8080)
		if err := errors.Join(c.Connected(), tunnel.Close()); err != nil {
			t.Fatal(err)
		}
		if s := sh(t, p, id, "ps | grep -c '[i]nit dial'; true"); string(s.Stdout) != "0\n" {
			t.Errorf("left: %s", s.Stdout)
		}
		// One that is open when the machine ends goes with it: in order, where the
		// server happened to go first.
		c, tunnel = dial(t, p, id, 8080)
		if err := c.Connected(); err != nil {
			t.Fatal(err)
		}
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != guest.ErrCut && err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
		if err := tunnel.Close(); err != nil {
			t.Error(err)
		}
		_, _ = live.Wait(t.Context())
		if _, err := p.Tunnel(t.Context(), id, 8080); err == nil {
			t.Error("a tunnel into nothing")
		}
	})
}

package client

import (
	"errors"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// A body that something between calls too long is sent three times, and then
// the call ends with a cause that says what to change; long before its time is
// over.
func TestBodyRefused(t *testing.T) {
	content := make([]byte, 1<<20)
	write := func(t *testing.T, c *Client) error {
		return c.WriteFile(t.Context(), "i1", sandbox.FileWrite{Path: "/f", Content: content})
	}
	for _, c := range []struct {
		name     string
		refusals int // before the provider is reached
		endpoint wire.Endpoint
		call     func(*testing.T, *Client) error
		want     string
		bytes    int64 // at least
	}{
		{"a write, for ever", 100, wire.WriteFile, write, "SandboxOperationFailed indeterminate", 1 << 20},
		{"a write, twice", 2, wire.WriteFile, write, "ok", 0},
		{"a read, for ever", 100, wire.ReadFile, func(t *testing.T, c *Client) error {
			_, err := c.ReadFile(t.Context(), "i1", sandbox.FileRead{Path: "/f", AllowedRoot: "/", MaximumBytes: 1})
			return err
		}, "SandboxOperationFailed provider_error", 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{Deadline: time.Hour}, func(t *testing.T, p *peer, client *Client) {
				p.on(c.endpoint, func(d *delivery) {
					if d.n <= c.refusals {
						d.w.WriteHeader(413)
						return
					}
					d.reply(200, wire.Empty{})
				})
				began := time.Now()
				err := c.call(t, client)
				if got := failure(err); got != c.want {
					t.Errorf("%s (%v), want %s", got, err, c.want)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("took %s", took)
				}
				if sent := p.of(c.endpoint); len(sent) != 3 {
					t.Errorf("%d deliveries", len(sent))
				}
				refused := (*BodyRefused)(nil)
				switch {
				case c.want == "ok":
				case !errors.As(err, &refused):
					t.Errorf("cause: %v", err)
				case refused.Endpoint != c.endpoint || refused.Bytes < c.bytes:
					t.Errorf("cause: %+v", refused)
				}
			})
		})
	}
}

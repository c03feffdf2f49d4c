package client

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// What a peer may answer to one mutating call, and what comes of it: how often
// it is delivered, always under one id, and what its caller is told.
func TestDeliveries(t *testing.T) {
	const html = "<html>bad gateway</html>"
	valid := func(d *delivery) string {
		data, _ := wire.Encode(wire.InstanceHandoff{Value: instance("i1"), Rollback: wire.Rollback{OperationID: d.header.Operation}})
		return string(data)
	}
	change := func(old, new string) func(*delivery) {
		return func(d *delivery) {
			body := valid(d)
			if !strings.Contains(body, old) {
				d.p.t.Errorf("no %q in %s", old, body)
			}
			d.json(200, strings.Replace(body, old, new, 1))
		}
	}
	once := func(first func(*delivery)) func(*delivery) {
		return func(d *delivery) {
			if d.n == 1 {
				first(d)
				return
			}
			d.provisioned("i1")
		}
	}
	typed := func(failure error) func(*delivery) { return func(d *delivery) { d.fail(failure) } }
	for _, c := range []struct {
		name       string
		answer     func(*delivery)
		deliveries int // 0: more than two
		rollbacks  int
		want       string
	}{
		{"W01 drop before the headers", once((*delivery).drop), 2, 0, "ok"},
		{"W02 drop in the body", once(func(d *delivery) {
			d.head(false)
			d.w.Header().Set("Content-Length", "5000")
			d.w.WriteHeader(200)
			io.WriteString(d.w, valid(d)[:100])
		}), 2, 0, "ok"},
		{"W02 drop in a body that ends with its connection", once(func(d *delivery) {
			d.raw("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nCheckfu-Wire: "+wire.Revision+
				"\r\nCheckfu-Capabilities-Digest: "+string(d.p.digest)+"\r\nCheckfu-Boot-Id: "+string(boot)+"\r\n\r\n", []byte(valid(d)[:100]))
		}), 2, 0, "ok"},
		{"W03 untyped 502", once(func(d *delivery) { d.w.WriteHeader(502); io.WriteString(d.w, html) }), 2, 0, "ok"},
		{"W03 untyped 504", once(func(d *delivery) { d.w.WriteHeader(504) }), 2, 0, "ok"},
		{"W03 untyped 413", once(func(d *delivery) { d.w.WriteHeader(413); io.WriteString(d.w, html) }), 2, 0, "ok"},
		{"untyped 413 for ever", func(d *delivery) { d.w.WriteHeader(413) }, 3, 1, "SandboxOperationFailed provider_error"},
		{"W03 untyped 200", once(func(d *delivery) { io.WriteString(d.w, html) }), 2, 0, "ok"},
		{"W03 a proxy's body behind a provider's headers", once(func(d *delivery) { d.json(500, html) }), 2, 0, "ok"},
		{"W04 typed 500", typed(sandbox.Failed(sandbox.OpProvision, "provider_error", nil)), 1, 0, "SandboxOperationFailed provider_error"},
		{"typed 409", typed(sandbox.Conflict(sandbox.OpProvision, "a", "b")), 1, 0, "SandboxLifecycleConflict b"},
		{"typed, of no member", typed(sandbox.Conflict("rm -rf\n", "a", "b")), 1, 1, "protocol operation"},
		{"typed, with a message to the terminal", func(d *delivery) {
			d.json(500, `{"error":{"_tag":"SandboxOperationFailed","operation":"provision","reason":"x","message":"\u001b[2J"}}`)
		}, 1, 0, "SandboxOperationFailed x"},
		{"typed, status wrong", func(d *delivery) {
			body, _, _ := wire.EncodeError(sandbox.Conflict(sandbox.OpProvision, "a", "b"))
			d.json(502, string(body))
		}, 1, 0, "SandboxLifecycleConflict b"},
		{"W05 redirect", func(d *delivery) {
			d.head(false)
			http.Redirect(d.w, d.r, "https://elsewhere.example/", http.StatusTemporaryRedirect)
		}, 1, 1, "protocol status"},
		{"W06 gzip", func(d *delivery) {
			d.w.Header().Set("Content-Encoding", "gzip")
			d.json(200, valid(d))
		}, 1, 1, "protocol content-encoding"},
		{"W07 200 with an error body", func(d *delivery) {
			body, _, _ := wire.EncodeError(sandbox.Conflict(sandbox.OpProvision, "a", "b"))
			d.json(200, string(body))
		}, 1, 1, "protocol error"},
		{"W08 duplicate key", change(`"lease_epoch":7`, `"lease_epoch":7,"lease_epoch":9`), 1, 1, "protocol value.lease_epoch"},
		{"W09 case", change(`"lease_epoch"`, `"Lease_Epoch"`), 1, 1, "protocol value.Lease_Epoch"},
		{"W10 unknown key", change(`"lease_epoch":7`, `"lease_epoch":7,"lease_era":1`), 1, 1, "protocol value.lease_era"},
		{"W11 null for a list", change(`"mounts":[]`, `"mounts":null`), 1, 1, "protocol value.mounts"},
		{"W12 float", change(`"lease_epoch":7`, `"lease_epoch":7.0`), 1, 1, "protocol value.lease_epoch"},
		{"W12 exponent", change(`"lease_epoch":7`, `"lease_epoch":7e0`), 1, 1, "protocol value.lease_epoch"},
		{"W12 minus zero", change(`"lease_epoch":7`, `"lease_epoch":-0`), 1, 1, "protocol value.lease_epoch"},
		{"W12 2^53", change(`"lease_epoch":7`, `"lease_epoch":9007199254740992`), 1, 1, "protocol value.lease_epoch"},
		{"W13 lone surrogate", change(`"run_id":"r"`, `"run_id":"\ud800"`), 1, 1, "protocol value.run_id"},
		{"W13 byte order mark", change(`{"rollback"`, "\ufeff{\"rollback\""), 1, 1, "protocol body"},
		{"two values", func(d *delivery) { d.json(200, valid(d)+"{}") }, 1, 1, "protocol body"},
		{"W18 another wire", func(d *delivery) {
			d.head(false)
			d.w.Header().Set(wire.HeaderWire, "checkfu.sandbox-wire.v2")
			io.WriteString(d.w, valid(d))
		}, 1, 1, "protocol body"},
		{"W18 it says so", typed(&wire.Error{Tag: wire.TagUnsupported, Supported: []string{"x"}}), 1, 0, "protocol body"},
		{"W19 another envelope", func(d *delivery) {
			d.head(false)
			d.w.Header().Set(wire.HeaderCapabilities, string(digestOf([]byte("x"))))
			io.WriteString(d.w, valid(d))
		}, 1, 1, "protocol " + wire.HeaderCapabilities},
		{"W21 endless", func(d *delivery) {
			d.head(false)
			for spaces := strings.Repeat(" ", 1<<16); ; {
				if _, err := io.WriteString(d.w, spaces); err != nil {
					return
				}
			}
		}, 1, 1, "protocol body"},
		{"the rollback of another operation", func(d *delivery) {
			d.reply(200, wire.InstanceHandoff{Value: instance("i1"), Rollback: wire.Rollback{OperationID: wire.NewOperationID()}})
		}, 1, 1, "protocol rollback.operation_id"},
		{"204", func(d *delivery) { d.head(false); d.w.WriteHeader(204) }, 1, 1, "protocol status"},
		{"frames for JSON", func(d *delivery) { d.frames().Ping() }, 1, 1, "protocol content-type"},
		{"bytes that are no HTTP", once(func(d *delivery) { d.raw("SSH-2.0-hello\r\n", nil) }), 2, 0, "ok"},
		{"headers without end", once(func(d *delivery) {
			d.raw("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-Y: "+strings.Repeat("z", 1000)+"\r\n", 20)+"\r\n", nil)
		}), 2, 0, "ok"},
		{"overloaded", once(typed(&wire.Error{Tag: wire.TagOverloaded, RetryAfterMS: 7000})), 2, 0, "ok"},
		{"overloaded for ever", typed(&wire.Error{Tag: wire.TagOverloaded, RetryAfterMS: 1000}), 0, 1, "SandboxOperationFailed timed_out"},
		{"down for ever", (*delivery).drop, 0, 1, "SandboxOperationFailed timed_out"},
		{"fenced", typed(&wire.Error{Tag: wire.TagLeaseFenced, LeaseEpoch: 9}), 1, 0, "SandboxLifecycleConflict stale_lease"},
		{"rolled back", typed(&wire.Error{Tag: wire.TagOperationRolledBack}), 1, 0, "SandboxLifecycleConflict operation_rolled_back"},
		{"no entry", typed(&wire.Error{Tag: wire.TagForbidden}), 1, 0, "SandboxOperationFailed provider_error"},
		{"W36 202, then the answer", once(func(d *delivery) {
			d.reply(202, wire.Running{OperationID: d.header.Operation, State: "running"})
		}), 1, 0, "ok"},
		{"202 of another operation", func(d *delivery) {
			d.reply(202, wire.Running{OperationID: wire.NewOperationID(), State: "running"})
		}, 1, 1, "protocol operation_id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{Deadline: time.Minute}, func(t *testing.T, p *peer, client *Client) {
				p.on(wire.Provision, c.answer)
				p.on(wire.PollOperation, func(d *delivery) {
					r, err := wire.Decode[wire.OperationRequest](d.body)
					if err != nil || d.n == 1 {
						d.reply(202, wire.Running{OperationID: r.OperationID, State: "running"})
						return
					}
					d.reply(200, wire.InstanceHandoff{Value: instance("i1"), Rollback: wire.Rollback{OperationID: r.OperationID}})
				})
				h, err := client.Provision(t.Context(), request())
				if got := failure(err); got != c.want {
					t.Errorf("%s (%v), want %s", got, err, c.want)
				}
				if err != nil && strings.ContainsAny(err.Error(), "\x1b\n") {
					t.Errorf("%q", err.Error())
				}
				if err == nil && h.Value.InstanceID != "i1" {
					t.Errorf("%+v", h.Value)
				}
				sent := p.of(wire.Provision)
				if c.deliveries != 0 && len(sent) != c.deliveries || c.deliveries == 0 && len(sent) < 3 {
					t.Errorf("%d deliveries", len(sent))
				}
				for _, d := range sent {
					if d.header.Operation != sent[0].header.Operation || string(d.body) != string(sent[0].body) {
						t.Error("another operation was delivered again")
					}
					if d.header.Lease != (wire.Lease{ID: "lease", Epoch: 7}) { // W16
						t.Errorf("lease %+v", d.header.Lease)
					}
				}
				undone := p.of(wire.RollbackOperation)
				if len(undone) != c.rollbacks {
					t.Errorf("%d rollbacks", len(undone))
				}
				for _, d := range undone {
					r, err := wire.Decode[wire.RollbackRequest](d.body)
					if err != nil || r.OperationID != sent[0].header.Operation || r.Member != wire.Provision {
						t.Errorf("%+v %v", r, err)
					}
				}
			})
		})
	}
}

func TestJitterDoublesToFiveSeconds(t *testing.T) {
	bubble(t, Options{Deadline: time.Minute}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Destroy, (*delivery).drop)
		if got := failure(c.Destroy(t.Context(), "i1")); got != "SandboxOperationFailed indeterminate" {
			t.Error(got)
		}
		sent := p.of(wire.Destroy)
		var pauses []time.Duration
		for i := 1; i < len(sent); i++ {
			pauses = append(pauses, sent[i].arrivedAt.Sub(sent[i-1].arrivedAt))
		}
		want := []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if len(pauses) < len(want) || !slices.Equal(pauses[:len(want)], want) {
			t.Error(pauses)
		}
		// What is left of the budget stands in every delivery.
		if first, last := sent[0].header.Deadline, sent[len(sent)-1].header.Deadline; first != time.Minute || last >= 10*time.Second {
			t.Error(first, last)
		}
	})
}

// W20: one byte a second is cut by the budget.
func TestDribble(t *testing.T) {
	bubble(t, Options{Deadline: 30 * time.Second}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Cleanup, func(d *delivery) {
			d.head(false)
			for {
				if _, err := (flushing{d.w}).Write([]byte(" ")); err != nil {
					return
				}
				if pause(d.r.Context(), time.Second) != nil {
					return
				}
			}
		})
		began := time.Now()
		_, err := c.Cleanup(t.Context(), sandbox.CleanupRequest{Now: sandbox.At(start), OrphanedBefore: sandbox.At(start)})
		if got := failure(err); got != "SandboxOperationFailed indeterminate" || time.Since(began) != 30*time.Second {
			t.Error(err, time.Since(began))
		}
	})
}

// A peer that takes a request and says nothing is left after Wait and 10 s.
func TestHeaderTimeout(t *testing.T) {
	bubble(t, Options{Wait: 5 * time.Second}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Destroy, func(d *delivery) {
			if d.n == 1 {
				d.hold()
				return
			}
			d.reply(200, wire.Empty{})
		})
		began := time.Now()
		if err := c.Destroy(t.Context(), "i1"); err != nil || time.Since(began) != 15*time.Second+100*time.Millisecond {
			t.Error(err, time.Since(began))
		}
	})
}

// W36: 202 for ever ends with the budget, and is no busy loop.
func TestRunningForEver(t *testing.T) {
	bubble(t, Options{Deadline: time.Minute}, func(t *testing.T, p *peer, c *Client) {
		running := func(d *delivery) {
			id := d.header.Operation
			if r, err := wire.Decode[wire.OperationRequest](d.body); err == nil {
				id = r.OperationID
			}
			d.reply(202, wire.Running{OperationID: id, State: "running"})
		}
		p.on(wire.Destroy, running)
		p.on(wire.PollOperation, running)
		if got := failure(c.Destroy(t.Context(), "i1")); got != "SandboxOperationFailed indeterminate" {
			t.Error(got)
		}
		if n := len(p.of(wire.PollOperation)); n < 10 || n > 30 {
			t.Errorf("%d polls in a minute", n)
		}
		if n := len(p.of(wire.Destroy)); n != 1 {
			t.Errorf("%d deliveries", n)
		}
	})
}

// W22: a connection that the server closed while it was idle costs no call.
func TestStaleConnection(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Destroy, func(d *delivery) {
			d.raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nCheckfu-Wire: "+wire.Revision+
				"\r\nCheckfu-Capabilities-Digest: "+string(p.digest)+"\r\nCheckfu-Boot-Id: "+string(boot)+"\r\n\r\n", []byte("{}"))
		})
		for range 5 {
			if err := c.Destroy(t.Context(), "i1"); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(p.of(wire.Destroy)); n != 5 {
			t.Errorf("%d deliveries of 5 calls", n)
		}
	})
}

func TestCancelStopsWaiting(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Provision, (*delivery).hold)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		began := time.Now()
		_, err := c.Provision(ctx, request())
		if err != context.Canceled || time.Since(began) != 0 {
			t.Error(err, time.Since(began))
		}
		// What may have been allocated is undone before the caller hears of it.
		if undone := p.of(wire.RollbackOperation); len(undone) != 1 {
			t.Errorf("%d rollbacks", len(undone))
		}
	})
}

func TestCloseEndsCallsAndUndoesThem(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, p *peer, c *Client) {
		p.on(wire.Provision, (*delivery).hold)
		ended := make(chan error)
		go func() {
			_, err := c.Provision(t.Context(), request())
			ended <- err
		}()
		synctest.Wait()
		go c.Close()
		if got := failure(<-ended); got != "SandboxOperationFailed timed_out" {
			t.Error(got)
		}
		if n := len(p.of(wire.RollbackOperation)); n != 1 {
			t.Errorf("%d rollbacks", n)
		}
		if got := failure(c.Destroy(t.Context(), "i1")); got != "SandboxOperationFailed provider_error" {
			t.Error(got)
		}
	})
}

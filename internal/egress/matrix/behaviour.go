package matrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// bulk is what is sent where nothing may be missing.
const bulk = 8 << 20

// guardCases are those of a guard that is starved, flooded, killed, or wrongly
// begun.
func guardCases() []Case {
	d := []Fact{Default}
	return []Case{
		{ID: "D16", Title: "a name that is not listed is told to no resolver", Facts: d, run: func(t *trial) error {
			return t.refused("secret.evil.test:443", 403, policy.ReasonNotAllowlisted)
		}},
		{ID: "D17", Title: "an empty list", Facts: d, alone: true, run: emptyList},
		{ID: "D18", Title: "no list, or a configuration that is none", Facts: d, alone: true, run: noList},
		{ID: "D19", Title: "the guard is killed", Facts: d, alone: true, run: killed},
		{ID: "D20", Title: "the resolver is down", Facts: d, alone: true, run: resolverDown},
		{ID: "D21", Title: "what holds the workload is missing: the rules of its link, or that it has none", Facts: d, alone: true, run: unsealed},
		{ID: "D22", Title: "the decision log cannot be written", Facts: d, alone: true, run: noLog},
		{ID: "D23", Title: "no tunnel, and no descriptor, is left", Facts: d, alone: true, run: exhausted},
		{ID: "D24", Title: "a head that comes too slowly", Facts: d, alone: true, run: slowHead},
		{ID: "D25", Title: "two thousand heads that never end", Facts: d, alone: true, run: halfOpen},
		{ID: "D30", Title: "bytes behind a refused request", Facts: d, live: live(otherAddr), run: func(t *trial) error {
			return t.request(connectHead("other.test:443")+"payload", want{status: []int{403}, reason: policy.ReasonNotAllowlisted, ends: true}, nil)
		}},
		{ID: "D31", Title: "bytes behind an allowed request", Facts: []Fact{Exact}, run: pipelined},
		{ID: "D32", Title: "the client has said everything, the origin has not", Facts: d, run: halfClosed},
		{ID: "D33", Title: "the origin ends right after its last byte", Facts: d, run: originEnds},
		{ID: "D34", Title: "an idle tunnel, and one past its lease", Facts: d, alone: true, run: idleAndExpired},
	}
}

// briefly runs f with a guard of its own and ends it.
func (t *trial) briefly(change func(*guard.Config), f func(*trial) error) error {
	own, err := t.own(change)
	if err != nil {
		return err
	}
	return errors.Join(f(own), own.guard.end())
}

// tunnel opens one to a listed host and shows that it carries. Its decision is read
// then, and no other case's.
func (t *trial) tunnel() (*client, error) {
	t.loose.Store(true)
	mark := t.guard.log.mark()
	c, err := dial(t.ctx, t.lab, t.guard.door.Entry)
	if err != nil {
		return nil, err
	}
	status, err := c.ask(connectHead("allowed.test:443"))
	if err == nil && status != 200 {
		err = fmt.Errorf("expected a tunnel, got status %d", status)
	}
	if err == nil {
		err = c.greets(allowed)
	}
	if err == nil {
		err = t.settleLog(mark, 1)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func emptyList(t *trial) error {
	return t.briefly(func(c *guard.Config) { c.Allow = []guard.Entry{} }, func(t *trial) error {
		for _, target := range []string{"allowed.test:443", "other.test:443", "opaque.test:8443"} {
			if err := t.refused(target, 403, policy.ReasonNotAllowlisted); err != nil {
				return err
			}
		}
		return nil
	})
}

func noList(t *trial) error {
	right, err := canonical.Encode(t.settings())
	if err != nil {
		return err
	}
	for name, wrong := range map[string][]byte{
		"no list":        []byte(`{"expires_at":"2099-01-01T00:00:00.000Z","instance":"matrix","policy_revision":"` + string(t.settings().PolicyRevision) + `","resolver":"45.33.32.53:53","v":1}`),
		"cut off":        right[:len(right)-1],
		"something else": []byte("allow everything"),
		"empty":          nil,
		"trailing":       append(bytes.Clone(right), "{}"...),
		// There is nothing signed in a configuration: who says so is refused.
		"a signature": bytes.Replace(right, []byte(`{`), []byte(`{"a_signature":"AAAA",`), 1),
	} {
		if err := t.begins(wrong, false); err != nil {
			return named(name, err)
		}
	}
	return t.begins(right, true)
}

func killed(t *trial) error {
	own, err := t.own(nothing)
	if err != nil {
		return err
	}
	defer own.guard.end() // it cannot end well
	if err := own.passes("allowed.test:443", public); err != nil {
		return blind(err) // it was gone before
	}
	if err := unix.Kill(own.guard.pid, unix.SIGKILL); err != nil {
		return blind(err)
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	select {
	case <-own.guard.done:
	case <-ctx.Done():
		return errors.New("a killed guard does not end")
	}
	s, err := t.watch(func() error {
		c, err := dial(t.ctx, t.lab, own.guard.door.Entry)
		if err != nil {
			return nil // refused
		}
		defer c.Close()
		status, err := c.ask(connectHead("allowed.test:443"))
		if err == nil && status != closed {
			err = fmt.Errorf("somebody answers for a dead guard: %d", status)
		}
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(s.reached(), s.explained(), s.asked())
}

func resolverDown(t *trial) error {
	dead := netip.AddrPortFrom(lab.ResolverAddr.Addr(), 54)
	return t.briefly(func(c *guard.Config) { c.Resolver = dead.String() }, func(t *trial) error {
		return t.request(connectHead("allowed.test:443"), want{
			status: []int{502, 504}, reason: policy.ReasonResolveFailed, order: at(dead),
		}, nil)
	})
}

// unsealed holds that no door is opened where what holds the workload is not
// there: the rules of its link, or that it has none.
func unsealed(t *trial) error {
	undo, err := t.unseal()
	if err != nil {
		return blind(err)
	}
	own, err := t.own(nothing)
	if sealed := undo(); sealed != nil {
		return blind(sealed)
	}
	if err == nil {
		return errors.Join(errors.New("a guard was started on an open link"), own.guard.end())
	}
	if !errors.As(err, new(*lab.Error)) {
		return err // it was not the door that said no
	}
	return t.briefly(nothing, func(t *trial) error { return t.passes("allowed.test:443", public) })
}

func (t *trial) unseal() (undo func() error, err error) {
	if t.lab.Topology == lab.Veth {
		return t.lab.LoadEdge, t.lab.Edge.Unload()
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "out"
	link := &netlink.Veth{LinkAttrs: attributes, PeerName: "in"}
	return func() error { return t.lab.Workload.Do(func() error { return netlink.LinkDel(link) }) },
		t.lab.Workload.Do(func() error { return netlink.LinkAdd(link) })
}

func noLog(t *trial) error {
	own, err := t.own(nothing)
	if err != nil {
		return err
	}
	defer own.guard.end()
	if err := own.passes("allowed.test:443", public); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if err := own.guard.log.shut(ctx); err != nil {
		return blind(err)
	}
	var status int
	var got []byte
	s, err := own.watch(func() error {
		c, err := dial(t.ctx, t.lab, own.guard.door.Entry)
		if err != nil {
			return nil // it serves nobody any more
		}
		defer c.Close()
		if status, err = c.ask(connectHead("allowed.test:443")); err != nil || status != 200 {
			return err
		}
		// On a port of mode tls the answer comes before the line, and no byte
		// after it.
		data, err := sni(allowed)
		if err != nil {
			return err
		}
		c.Write(data)
		got, err = c.ends()
		return err
	})
	if err != nil {
		return err
	}
	for _, a := range s.accepts {
		if a.Bytes > 0 {
			err = fmt.Errorf("%d bytes arrived that nobody wrote down", a.Bytes)
		}
	}
	if len(got) > 0 {
		err = fmt.Errorf("%d bytes came back that nobody wrote down", len(got))
	}
	return err
}

func exhausted(t *trial) error {
	err := t.briefly(func(c *guard.Config) { c.Limits.Tunnels = 2 }, func(t *trial) error { return t.oneTooMany(2) })
	if err != nil {
		return named("tunnels", err)
	}
	few, err := t.with(fewDescriptors).own(nothing)
	if err != nil {
		return err
	}
	return named("descriptors", errors.Join(few.noDescriptor(), few.guard.end()))
}

// noDescriptor opens tunnels until there is no descriptor for another, shows that
// the old ones carry, ends them, and opens one again.
func (t *trial) noDescriptor() error {
	var old []*client
	defer func() {
		for _, c := range old {
			c.Close()
		}
	}()
	for {
		c, err := t.tunnel()
		if err != nil {
			break
		}
		if old = append(old, c); len(old) > fewFiles {
			return fmt.Errorf("%d tunnels with %d descriptors", len(old), fewFiles)
		}
	}
	if len(old) == 0 {
		return blind(errors.New("not even one tunnel"))
	}
	for _, c := range old {
		if err := c.echoes([]byte("still here")); err != nil {
			return fmt.Errorf("an old tunnel of %d: %w", len(old), err)
		}
		c.Close()
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if _, err := t.guard.log.wait(ctx, 0, guard.KindClose, len(old)); err != nil {
		return err
	}
	fresh, err := t.tunnel()
	if err != nil {
		return fmt.Errorf("a new tunnel once there are descriptors again: %w", err)
	}
	return fresh.Close()
}

// oneTooMany fills the tunnels, asks for one more, and shows that the old ones
// carry.
func (t *trial) oneTooMany(n int) error {
	var old []*client
	for range n {
		c, err := t.tunnel()
		if err != nil {
			return err
		}
		defer c.Close()
		old = append(old, c)
	}
	c, err := dial(t.ctx, t.lab, t.guard.door.Entry)
	if err != nil {
		return err
	}
	defer c.Close()
	if status, err := c.ask(connectHead("allowed.test:443")); err != nil || status != 503 {
		return fmt.Errorf("one too many: expected 503, got %d: %w", status, err)
	}
	for _, c := range old {
		if err := c.echoes([]byte("still here")); err != nil {
			return fmt.Errorf("an old tunnel: %w", err)
		}
	}
	return nil
}

func slowHead(t *trial) error {
	return t.briefly(func(c *guard.Config) { c.Limits.HeadMillis = 300 }, func(t *trial) error {
		// Who goes on sending may lose the answer to a reset.
		return t.request("", want{status: []int{408, closed}, reason: policy.ReasonLimit, dribble: true}, nil)
	})
}

// crowd is held by the one case that needs thousands of descriptors of ours.
var crowd sync.Mutex

// halfOpen holds a door open for an honest client that others crowd.
func halfOpen(t *trial) error {
	crowd.Lock()
	defer crowd.Unlock()
	return t.briefly(nothing, func(t *trial) error {
		var held []net.Conn
		defer func() {
			for _, c := range held {
				c.Close()
			}
		}()
		for range 2000 {
			c, err := t.lab.Workload.Dial(t.ctx, "tcp", t.guard.door.Entry)
			if err != nil {
				return blind(err)
			}
			held = append(held, c)
			if _, err := io.WriteString(c, "CONNECT allowed.test:443 HTTP/1.1\r\n"); err != nil && !ended(err) {
				return blind(err)
			}
		}
		started := time.Now()
		c, err := t.tunnel()
		if err != nil {
			return fmt.Errorf("an honest client among 2,000: %w", err)
		}
		took := time.Since(started)
		c.Close()
		// A second, times what a busy machine may take.
		if took > 10*time.Second {
			return fmt.Errorf("an honest client among 2,000 took %s", took)
		}
		return nil
	})
}

func pipelined(t *trial) error {
	var sent string
	for i := range 1000 {
		sent += fmt.Sprintf("%d,", i)
	}
	return t.request(connectHead("opaque.test:443")+sent[:2000], want{status: []int{200}, accepts: at(public), asked: []string{opaque}}, func(c *client) error {
		if _, err := io.WriteString(c.Conn, sent[2000:]); err != nil {
			return err
		}
		back := make([]byte, len(sent))
		if _, err := io.ReadFull(c.in, back); err != nil || string(back) != sent {
			return fmt.Errorf("what was sent did not come back in order: %w", err)
		}
		return nil
	})
}

// halfClosed is a client that ends its side and then reads 8 MiB.
func halfClosed(t *trial) error {
	return t.downloads(func(c net.Conn) {
		io.Copy(io.Discard, c) // to its end
		io.Copy(c, strings.NewReader(strings.Repeat("x", bulk)))
	}, true)
}

// originEnds is an origin that sends 8 MiB and ends at once.
func originEnds(t *trial) error {
	return t.downloads(func(c net.Conn) {
		c.Read(make([]byte, 1))
		io.Copy(c, strings.NewReader(strings.Repeat("x", bulk)))
	}, false)
}

func (t *trial) downloads(b lab.Behaviour, closes bool) error {
	t.lab.Ledger.Serve(greeter, b)
	defer t.lab.Ledger.Serve(greeter, nil)
	return t.request(connectHead("opaque.test:8443"), want{status: []int{200}, accepts: at(greeter), asked: []string{opaque}}, func(c *client) error {
		if _, err := io.WriteString(c.Conn, "g"); err != nil {
			return err
		}
		if closes {
			if err := c.closeWrite(); err != nil {
				return err
			}
		}
		n, err := io.Copy(io.Discard, c.in)
		if err != nil || n != bulk {
			return fmt.Errorf("expected %d bytes and the end, got %d: %w", bulk, n, err)
		}
		return nil
	})
}

func idleAndExpired(t *trial) error {
	had := false // the tunnel
	ends := func(t *trial) error {
		c, err := t.tunnel()
		if err != nil {
			return err
		}
		defer c.Close()
		had = true
		_, err = c.ends()
		return err
	}
	if err := t.briefly(func(c *guard.Config) { c.Limits.IdleSeconds = 1 }, ends); err != nil {
		return named("idle", err)
	}
	// A busy machine may take longer for a tunnel than the lease is long: then the
	// next one is longer.
	var err error
	for _, lease := range []time.Duration{1500 * time.Millisecond, 5 * time.Second, 15 * time.Second} {
		over := time.Now().Add(lease)
		had = false
		err = t.briefly(func(c *guard.Config) { c.ExpiresAt = sandbox.At(over) }, ends)
		if had || time.Now().Before(over) {
			return named("expired", err)
		}
	}
	return blind(fmt.Errorf("no tunnel within the longest lease: %w", err))
}

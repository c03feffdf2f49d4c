package matrix

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/canary"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/internal/egress/route"
)

// authorityCases are those of who holds what, and who reaches whom.
func authorityCases() []Case {
	a := []Fact{Authority}
	return []Case{
		{ID: "A01", Title: "the run's token is not in the guard", Facts: a, run: noTokenInGuard},
		{ID: "A02", Title: "the guard's descriptors", Facts: a, run: descriptors},
		{ID: "A03", Title: "the guard has no way to the plane", Facts: a, run: noWayToPlane},
		{ID: "A04", Title: "a host of the plane on the list", Facts: a, alone: true, run: planeListed},
		{ID: "A05", Title: "a listed alias of the plane's address", Facts: []Fact{Authority, Address}, hosts: []string{"a05.test"}, run: func(t *trial) error {
			t.lab.Resolver.Script("a05.test", lab.Alias(planeHost, lab.PlaneAddr))
			return t.resolves("a05.test", policy.ReasonInfraAddress, 403)
		}},
		{ID: "A06", Title: "the workload reaches the plane through the relay", Facts: a, run: throughRelay},
		{ID: "A07", Title: "the relay is asked for something else", Facts: a, run: somethingElse},
		{ID: "A08", Title: "a token in the head of a request", Facts: a, run: tokenInHead},
		{ID: "A09", Title: "the relay has no way to the internet", Facts: a, run: noWayOut},
		{ID: "A10", Title: "the relay holds neither the list nor a provider's key", Facts: a, alone: true, run: relayHoldsNothing},
		{ID: "A11", Title: "the guard is killed, the plane is reached", Facts: []Fact{Authority, Default}, alone: true, run: guardKilled},
		{ID: "A12", Title: "the relay is killed, the listed hosts are reached", Facts: []Fact{Authority, Default}, run: relayKilled},
		{ID: "A13", Title: "another run's token, and that of a lease before", Facts: a, run: otherToken},
		{ID: "A14", Title: "the guard's configuration is the compiled one", Facts: a, run: compiledConfig},
		{ID: "A15", Title: "the workload's environment names guard and relay only", Facts: a, alone: true, real: true, run: environmentOfRun},
		{ID: "A16", Title: "the workload's user cannot look into the guard", Facts: a, run: noLooking},
		{ID: "A17", Title: "a token that was planted is found", Facts: a, alone: true, run: planted},
	}
}

// holds scans a process.
// Errors: blind for a process that could not be scanned.
func (t *trial) holds(pid int, secret string) (int, error) {
	hits, err := canary.Scan(t.ctx, pid, []byte(secret))
	if err != nil {
		return 0, blind(err)
	}
	return hits.Total(), nil
}

func (t *trial) lacks(pid int, what, secret string) error {
	n, err := t.holds(pid, secret)
	if err == nil && n > 0 {
		err = fmt.Errorf("%s is %d times in process %d", what, n, pid)
	}
	return err
}

// noTokenInGuard scans while the run whose token it is uses both ways.
func noTokenInGuard(t *trial) error {
	return t.relayed(func(r *relaySubject, token string) error {
		if reached, err := t.models(r, token); err != nil || !reached {
			return fmt.Errorf("the plane was reached: %v: %w", reached, err)
		}
		c, err := t.tunnel()
		if err != nil {
			return err
		}
		defer c.Close()
		return t.lacks(t.guard.pid, "the token", token)
	})
}

// planted is A01 with a guard that was given the token, in its arguments: with an
// environment none begins.
func planted(t *trial) error {
	token := route.NewToken()
	b := *t.bench
	b.start = altered(t.base + "+" + token)
	own, err := (&trial{bench: &b, ctx: t.ctx}).own(nothing)
	if err != nil {
		return err
	}
	n, err := own.holds(own.guard.pid, token)
	if err == nil && n == 0 {
		err = errors.New("a scan does not find a token that is there")
	}
	return errors.Join(err, own.guard.end())
}

// descriptors holds what the guard has open at rest: its sockets, pipes, and what
// its runtime waits with. A tunnel adds two sockets, and nothing is a file.
func descriptors(t *trial) error {
	sockets := func() (n int, err error) {
		paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", t.guard.pid))
		if err != nil || len(paths) == 0 {
			return 0, blind(fmt.Errorf("descriptors of %d: %v", t.guard.pid, err))
		}
		for _, path := range paths {
			target, err := os.Readlink(path)
			switch {
			case errors.Is(err, os.ErrNotExist):
			case err != nil:
				return 0, blind(err)
			case strings.HasPrefix(target, "socket:"):
				n++
			case strings.HasPrefix(target, "pipe:"), strings.HasPrefix(target, "anon_inode:[event"):
			case t.base != "" && strings.HasPrefix(target, "/sys/fs/cgroup/"):
				// This binary's runtime follows its control group; that of the
				// guard that ships was told not to.
			default:
				return 0, fmt.Errorf("the guard has %s open", target)
			}
		}
		return n, nil
	}
	// What cases before have ended is closed once its line is written.
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if err := t.idle(ctx); err != nil {
		return blind(err)
	}
	rest, err := sockets()
	if err != nil {
		return err
	}
	c, err := t.tunnel()
	if err != nil {
		return err
	}
	defer c.Close()
	busy, err := sockets()
	if err == nil && (rest != atRest || busy != atRest+2) {
		err = fmt.Errorf("sockets: expected %d at rest and two more with a tunnel, got %d and %d", atRest, rest, busy)
	}
	return err
}

// idle waits until every tunnel that was begun has ended. A refused client is
// let go a second later at most.
func (t *trial) idle(ctx context.Context) error {
	allowed := 0
	for _, l := range t.guard.log.since(0) {
		if l.Decision == guard.Allow {
			allowed++
		}
	}
	if _, err := t.guard.log.wait(ctx, 0, guard.KindClose, allowed); err != nil {
		return err
	}
	return t.guard.settled(ctx)
}

func noWayToPlane(t *trial) error {
	to := []netip.AddrPort{gatewayAddr, netip.AddrPortFrom(lab.PlaneAddr, 443)}
	s, err := t.watch(func() error {
		if accepted := t.knocks(t.lab.Guard, to); len(accepted) > 0 {
			return fmt.Errorf("the guard's namespace reaches %v", accepted)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(s.reached(), s.explained(to...)); err != nil {
		return err
	}
	return t.planeLive()
}

// planeLive is the control of all that must not reach the plane.
func (t *trial) planeLive() error {
	s, err := t.watch(func() error {
		if len(t.knocks(t.lab.Relay, []netip.AddrPort{gatewayAddr})) == 0 {
			return blind(errors.New("the relay's namespace does not reach the plane"))
		}
		return nil
	})
	if err == nil && len(s.atPlane()) == 0 {
		err = blind(errors.New("the counter at the plane does not move"))
	}
	return err
}

func planeListed(t *trial) error {
	c := t.settings()
	c.Allow = append(slices.Clone(c.Allow), guard.Entry{Host: planeHost, Ports: []int64{443}})
	data, err := canonical.Encode(c)
	if err != nil {
		return err
	}
	return t.begins(data, false)
}

func throughRelay(t *trial) error {
	return t.relayed(func(r *relaySubject, token string) error {
		reached, err := t.models(r, token)
		if err == nil && !reached {
			err = errors.New("the plane was not reached")
		}
		if err == nil && r.log.contains(token) {
			err = errors.New("the token is in the relay's log")
		}
		return err
	})
}

func somethingElse(t *trial) error {
	return t.relayed(func(r *relaySubject, token string) error {
		host := "Host: " + r.door.Entry.String() + "\r\n"
		end := "X-Api-Key: " + token + "\r\nContent-Length: 0\r\n\r\n"
		for _, c := range []struct {
			head     string
			statuses []int
		}{
			{"POST /v1/files HTTP/1.1\r\n" + host + end, []int{404}},
			{"POST /v1/messages/../files HTTP/1.1\r\n" + host + end, []int{404}},
			{"POST /v1/messages?x=secret HTTP/1.1\r\n" + host + end, []int{404}},
			{"DELETE /v1/models HTTP/1.1\r\n" + host + end, []int{405}},
			{"GET /v1/messages HTTP/1.1\r\n" + host + end, []int{405}},
			{"POST /v1/messages HTTP/1.1\r\nHost: allowed.test\r\n" + end, []int{404}},
			{"CONNECT allowed.test:443 HTTP/1.1\r\n" + host + end, []int{404, 405}},
			{"POST http://allowed.test/v1/messages HTTP/1.1\r\n" + host + end, []int{400, 404}},
		} {
			status := 0
			s, err := t.watch(func() (err error) { status, err = t.call(r, c.head, ""); return err })
			if err != nil {
				return named(c.head, err)
			}
			if !slices.Contains(c.statuses, status) {
				return fmt.Errorf("%q: expected %v, got %d", c.head, c.statuses, status)
			}
			if err := errors.Join(s.reached(), s.explained()); err != nil {
				return named(c.head, err)
			}
		}
		// The control: the same relay leads the right request.
		reached, err := t.models(r, token)
		if err == nil && !reached {
			err = blind(errors.New("the right request does not reach the plane either"))
		}
		return err
	})
}

func tokenInHead(t *trial) error {
	token := route.NewToken()
	head := "CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + "Proxy-Authorization: Bearer " + token + "\r\nX-Token: " + token + "\r\n\r\n"
	data, err := sni(allowed)
	if err != nil {
		return err
	}
	mark := t.lab.Ledger.Mark()
	err = t.request(head, want{status: []int{200}, accepts: at(public), asked: []string{allowed}}, func(c *client) error { return c.echoes(data) })
	if err != nil {
		return err
	}
	for _, a := range t.lab.Ledger.Since(mark) {
		if a.Bytes != int64(len(data)) || !strings.HasPrefix(string(data), string(a.First)) {
			return fmt.Errorf("the origin got %d bytes, expected the %d of the hello", a.Bytes, len(data))
		}
	}
	if t.guard.log.contains(token) {
		return errors.New("the token is in the guard's log")
	}
	return nil
}

func noWayOut(t *trial) error {
	to := append(slices.Clone(anywhere4), anywhere6...)
	s, err := t.watch(func() error {
		for _, a := range to {
			conn, err := t.lab.Relay.Dial(t.ctx, "tcp", a)
			if err == nil {
				conn.Close()
			}
			if !errors.Is(err, unix.ENETUNREACH) {
				return fmt.Errorf("the relay's namespace to %s: expected no route, got %v", a, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(s.reached(), s.explained()); err != nil {
		return err
	}
	control, err := t.watch(func() error { t.knocks(t.lab.Outside, to[:1]); return nil })
	if err == nil && len(control.flows) == 0 {
		err = errors.New("the control did not move a counter")
	}
	if err != nil {
		return blind(err)
	}
	return nil
}

func relayHoldsNothing(t *trial) error {
	listed := strings.ToLower(rand.Text()) + ".test"
	return t.briefly(func(c *guard.Config) {
		c.Allow = append(slices.Clone(c.Allow), guard.Entry{Host: listed, Ports: []int64{443}})
	}, func(t *trial) error {
		return t.relayed(func(r *relaySubject, token string) error {
			if reached, err := t.models(r, token); err != nil || !reached {
				return fmt.Errorf("the plane was reached: %v: %w", reached, err)
			}
			if err := errors.Join(t.lacks(r.PID, "a listed host", listed), t.lacks(r.PID, "the provider's key", t.plane.key)); err != nil {
				return err
			}
			// The control: who has the list is seen to have it.
			n, err := t.holds(t.guard.pid, listed)
			if err == nil && n == 0 {
				err = blind(errors.New("the scan does not find a listed host in the guard"))
			}
			return err
		})
	})
}

func guardKilled(t *trial) error {
	return t.relayed(func(r *relaySubject, token string) error {
		if err := killed(t); err != nil {
			return err
		}
		reached, err := t.models(r, token)
		if err == nil && !reached {
			err = errors.New("the plane is not reached without a guard")
		}
		return err
	})
}

func relayKilled(t *trial) error {
	return t.relayed(func(r *relaySubject, token string) error {
		if reached, err := t.models(r, token); err != nil || !reached {
			return fmt.Errorf("the plane was reached: %v: %w", reached, err)
		}
		if err := unix.Kill(r.PID, unix.SIGKILL); err != nil {
			return blind(err)
		}
		ctx, cancel := context.WithTimeout(t.ctx, patience)
		defer cancel()
		select {
		case <-r.Done():
		case <-ctx.Done():
			return blind(errors.New("a killed relay does not end"))
		}
		if reached, err := t.models(r, token); err != nil || reached {
			return fmt.Errorf("the plane was reached without a relay: %v: %w", reached, err)
		}
		return t.passes("allowed.test:443", public)
	})
}

// otherToken is asked of the relay of another run, and of the own one once the lease
// has a newer epoch: the first is the relay's to refuse, the second the gateway's.
func otherToken(t *trial) error {
	err := t.relayed(func(r *relaySubject, token string) error {
		if reached, err := t.models(r, token); err != nil || !reached {
			return blind(fmt.Errorf("a live token reaches the plane: %v: %w", reached, err))
		}
		renewed := r.run
		renewed.LeaseEpoch++
		if _, err := t.plane.lease(renewed); err != nil {
			return blind(err)
		}
		return named("a stale epoch", t.unwanted(r, token, at(gatewayAddr)))
	})
	if err != nil {
		return err
	}
	another, err := t.plane.lease(newRun())
	if err != nil {
		return blind(err)
	}
	return t.relayed(func(r *relaySubject, _ string) error {
		for _, token := range []string{another, route.NewToken(), "cfu_run_", "sk-other"} {
			if err := t.unwanted(r, token, nil); err != nil {
				return fmt.Errorf("another token: %w", err)
			}
		}
		return nil
	})
}

// unwanted asks with a token that must be refused with 401, and comes no further
// than to reached.
func (t *trial) unwanted(r *relaySubject, token string, reached []netip.AddrPort) error {
	head, body := message(r, token)
	status, asked := 0, t.plane.asked.Load()
	s, err := t.watch(func() (err error) { status, err = t.call(r, head, body); return err })
	if err != nil {
		return err
	}
	if err := s.reached(reached...); err != nil || status != 401 || t.plane.asked.Load() != asked {
		return fmt.Errorf("expected 401 and nothing upstream, got %d and %d requests: %w", status, t.plane.asked.Load()-asked, err)
	}
	return nil
}

func compiledConfig(t *trial) error {
	start := t.guard.log.first()
	if want := canonical.Digest(t.guard.config); start.Kind != guard.KindStart || start.Config != want {
		return fmt.Errorf("first line: expected the configuration %s, got %s %s", want, start.Kind, start.Config)
	}
	return nil
}

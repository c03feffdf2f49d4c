package matrix

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// hop is one address of a way that an origin leads a client.
type hop struct {
	target string // host:port
	status int
	reason policy.Reason
	at     netip.AddrPort // where it is accepted, where it is allowed
}

// redirectCases are those of an origin that leads its client elsewhere. The
// guard follows nothing: each hop is a request of its own.
func redirectCases() []Case {
	r := func(more ...Fact) []Fact { return append([]Fact{Redirect}, more...) }
	denied := func(target string, reason policy.Reason) hop { return hop{target, 403, reason, netip.AddrPort{}} }
	follow := func(hops ...hop) func(*trial) error {
		return func(t *trial) error { return t.follows("302 Found", "", hops...) }
	}
	first := hop{"opaque.test:443", 200, "", public}
	return []Case{
		{ID: "R01", Title: "a redirect to a private address", Facts: r(Address), live: live(private), run: follow(first, denied("10.77.0.10:80", policy.ReasonLiteral))},
		{ID: "R02", Title: "a redirect to a host that is not listed", Facts: r(Exact), live: live(otherAddr), run: follow(first, denied("other.test:443", policy.ReasonNotAllowlisted))},
		{ID: "R03", Title: "a redirect to a port that is not listed", Facts: r(Exact), run: follow(first, denied("allowed.test:8443", policy.ReasonPortNotAllowlisted))},
		{ID: "R04", Title: "a chain of redirects that ends at a private address", Facts: r(), live: live(private), run: follow(first,
			hop{"opaque.test:8443", 200, "", netip.AddrPortFrom(public.Addr(), 8443)}, denied("10.77.0.10:443", policy.ReasonLiteral))},
		{ID: "R05", Title: "a redirect that keeps the body", Facts: r(), live: live(private), run: func(t *trial) error {
			return t.follows("307 Temporary Redirect", "a body that is nobody else's", first, denied("10.77.0.10:443", policy.ReasonLiteral))
		}},
		{ID: "R06", Title: "an alternative service at a private address or another port", Facts: r(Default), live: live(private), run: alternative},
		{ID: "R07", Title: "a second request behind a refused one", Facts: r(), run: func(t *trial) error {
			return t.request(connectHead("other.test:443")+connectHead("allowed.test:443"), want{status: []int{403}, reason: policy.ReasonNotAllowlisted, ends: true}, nil)
		}},
		{ID: "R08", Title: "the origin resets, the client comes again", Facts: r(), hosts: []string{"r08.test"}, run: again},
		{ID: "R09", Title: "a policy that narrows between two requests", Facts: r(), alone: true, hosts: []string{"r09.test"}, run: narrows},
		{ID: "R11", Title: "a redirect arrives unchanged, and nobody follows it", Facts: r(), run: follow(first)},
		{ID: "R12", Title: "a redirect to the same host, which is private by now", Facts: r(Address), hosts: []string{"r12.test"}, live: live(private), run: sameHost},
		{ID: "R13", Title: "a change of protocol to WebSocket, inside and outside a tunnel", Facts: r(), run: webSocket},
	}
}

// follows leads a client along hops, each of which names the next. The client is
// the one of the standard library.
func (t *trial) follows(status, body string, hops ...hop) error {
	for i, h := range hops {
		next := ""
		if i+1 < len(hops) {
			next = "http://" + hops[i+1].target + "/next"
		} else if h.status == 200 {
			next = "http://10.77.0.10/never" // and nobody goes there
		}
		answer := "HTTP/1.1 " + status + "\r\nLocation: " + next + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
		if h.status == 200 {
			t.lab.Ledger.Serve(h.at, answerWith(answer))
			defer t.lab.Ledger.Serve(h.at, nil)
		}
		w := want{status: []int{h.status}, reason: h.reason}
		if h.status == 200 {
			w.accepts, w.asked = at(h.at), []string{hostOf(h.target)}
		}
		err := t.request(connectHead(h.target), w, func(c *client) error {
			method := "GET"
			if body != "" {
				method = "POST"
			}
			fmt.Fprintf(c.Conn, "%s / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", method, h.target, len(body), body)
			got, err := c.ends()
			if err == nil && string(got) != answer {
				err = fmt.Errorf("expected the redirect as it was sent, got %q", got)
			}
			return err
		})
		if err != nil {
			return named(h.target, err)
		}
	}
	return nil
}

// answerWith reads a head with its body and answers.
func answerWith(answer string) lab.Behaviour {
	return func(c net.Conn) {
		if request, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.Copy(io.Discard, request.Body)
		}
		io.WriteString(c, answer)
	}
}

// alternative is a client that does what Alt-Svc says, over UDP and TCP.
func alternative(t *trial) error {
	for target, reason := range map[string]policy.Reason{"10.77.0.10:443": policy.ReasonLiteral, "allowed.test:8443": policy.ReasonPortNotAllowlisted} {
		if err := t.refused(target, 403, reason); err != nil {
			return err
		}
	}
	return t.unheard(datagrams(netip.AddrPortFrom(private, 443), public))
}

func again(t *trial) error {
	t.answers("r08.test", public.Addr())
	t.lab.Ledger.Serve(public, func(c net.Conn) { c.Read(make([]byte, 1)) }) // and ends it
	head := connectHead("r08.test:443")
	w := want{status: []int{200}, accepts: at(public), asked: []string{"r08.test"}}
	err := t.request(head, w, func(c *client) error {
		data, err := sni("r08.test")
		if err != nil {
			return err
		}
		c.Write(data)
		_, err = c.ends()
		return err
	})
	t.lab.Ledger.Serve(public, nil)
	if err != nil {
		return named("first", err)
	}
	return named("second", t.passes("r08.test:443", public))
}

// narrows holds that a new revision is a new guard: what the old one let through
// ends with it.
func narrows(t *trial) error {
	wide, err := t.own(nothing)
	if err != nil {
		return err
	}
	wide.answers("r09.test", public.Addr())
	c, err := dial(t.ctx, t.lab, wide.guard.door.Entry)
	if err != nil {
		return errors.Join(err, wide.guard.end())
	}
	defer c.Close()
	if status, err := c.ask(connectHead("r09.test:443")); err != nil || status != 200 {
		return errors.Join(fmt.Errorf("status %d: %w", status, err), wide.guard.end())
	}
	err = c.greets("r09.test")
	if err := errors.Join(err, wide.guard.end()); err != nil {
		return err
	}
	if _, err := c.ends(); err != nil {
		return fmt.Errorf("the old tunnel: %w", err)
	}
	narrow, err := t.own(func(c *guard.Config) {
		c.PolicyRevision = sandbox.Digest(canonical.Digest([]byte("narrower")))
		c.Allow = []guard.Entry{{Host: allowed, Ports: []int64{443}}}
	})
	if err != nil {
		return err
	}
	return errors.Join(narrow.refused("r09.test:443", 403, policy.ReasonNotAllowlisted), narrow.passes("allowed.test:443", public), narrow.guard.end())
}

func sameHost(t *trial) error {
	t.flips("r12.test")
	if err := t.passes("r12.test:443", public); err != nil {
		return err
	}
	return t.resolves("r12.test", policy.ReasonAnswerNotPublic, 403)
}

func webSocket(t *trial) error {
	const upgrade = "GET / HTTP/1.1\r\nHost: opaque.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	err := t.request(connectHead("opaque.test:443"), want{status: []int{200}, accepts: at(public), asked: []string{opaque}}, func(c *client) error {
		return c.echoes([]byte(upgrade))
	})
	if err != nil {
		return named("inside", err)
	}
	u := url.URL{Scheme: "http", Host: "allowed.test", Path: "/"}
	outside := strings.Replace(upgrade, "GET / ", "GET "+u.String()+" ", 1)
	return named("outside", t.request(outside, want{status: []int{405}, reason: policy.ReasonMethod}, nil))
}

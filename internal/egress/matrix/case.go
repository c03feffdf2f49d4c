package matrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// Fact is one of the five facts, by its letter.
type Fact string

// The five facts.
// Source: grading "The five facts, and the three that cannot be self-attested".
const (
	Exact     Fact = "E" // exact_destination_match
	Address   Fact = "P" // connect_time_public_address
	Redirect  Fact = "R" // redirect_recheck
	Authority Fact = "A" // authority_separation
	Default   Fact = "D" // default_deny
)

// Case is one attack, or one thing that must work.
type Case struct {
	ID    string // a letter and two digits
	Title string
	Facts []Fact

	hosts []string         // names that it has on the list, port 443
	live  []netip.AddrPort // addresses that must be live for it to prove anything
	alone bool             // it starts guards of its own: the shared one is stopped
	real  bool             // it needs a real machine of a provider
	skip  string           // why it is never run
	run   func(*trial) error
}

// want is what must be seen of one request.
type want struct {
	status  []int         // one of these; nil for a connection that ends without an answer
	reason  policy.Reason // "" for an allowed one
	accepts []netip.AddrPort
	order   []netip.AddrPort // where packets may go besides accepts, such as an address that is dead
	asked   []string         // names, each once for each family

	questions []string // instead of asked: "name A", in the order of the alphabet
	lines     int      // decisions; 0 is one, -1 none
	silent    bool     // no byte arrived where a connection did
	ends      bool     // the connection ends after the answer, and nothing else comes
	dribble   bool     // the head comes byte by byte and never ends
	anyReason bool     // a denial, whatever it is called
	partly    bool     // it may have given up before the second question was asked or logged
}

// check says what is wrong.
func (w want) check(b *bench, status int, s *trace) error {
	// Without a classifier the kernel alone holds: nothing special is reached and
	// no packet leaves for it. What the guard says of it, and whether it first
	// tried a public address of the same answer, is not judged.
	kernel := !b.judged() && slices.Contains([]policy.Reason{
		policy.ReasonAnswerNotPublic, policy.ReasonInfraAddress, policy.ReasonConnectNotPublic,
	}, w.reason)
	if kernel {
		return errors.Join(s.onlyPublic(), w.resolver(s))
	}
	var errs []error
	if want := w.status; !slices.Contains(want, status) && (len(want) > 0 || status != closed) {
		errs = append(errs, fmt.Errorf("status: expected %v, got %d", want, status))
	}
	for _, a := range s.accepts {
		if w.silent && a.Bytes > 0 {
			errs = append(errs, fmt.Errorf("%d bytes arrived at %s, the first are %q", a.Bytes, a.Local, a.First))
		}
	}
	errs = append(errs, s.reached(w.accepts...), s.explained(slices.Concat(w.accepts, w.order)...), w.resolver(s), w.decided(s))
	return errors.Join(errs...)
}

func (w want) resolver(s *trace) error {
	if w.partly && len(s.queries) == 1 {
		return nil
	}
	if w.questions != nil {
		return s.questions(w.questions)
	}
	return s.asked(w.asked...)
}

func (w want) decided(s *trace) error {
	n := w.lines
	switch n {
	case 0:
		n = 1
	case -1:
		n = 0
	}
	if len(s.decisions) != n {
		return fmt.Errorf("decisions: expected %d, got %d: %v", n, len(s.decisions), s.decisions)
	}
	if n == 0 {
		return nil
	}
	got := s.decisions[n-1]
	decision := guard.Allow
	if w.reason != "" || w.anyReason {
		decision = guard.Deny
	}
	if got.Decision != decision || got.Reason != w.reason && !w.anyReason {
		return fmt.Errorf("decision: expected %s %s, got %s %s", decision, w.reason, got.Decision, got.Reason)
	}
	return nil
}

// onlyPublic says which address was reached, or sent anything to, that is not
// public or is our own machinery's.
func (s *trace) onlyPublic() error {
	bad := func(a netip.Addr) bool {
		return slices.ContainsFunc(special(), func(p netip.Prefix) bool { return p.Contains(a) })
	}
	for _, a := range s.accepts {
		if bad(a.Local.Addr()) {
			return fmt.Errorf("accepted at %s", a.Local)
		}
	}
	for flow := range s.flows {
		if flow.Destination != lab.ResolverAddr && bad(flow.Destination.Addr()) {
			return fmt.Errorf("a packet of %s to %s", flow.Protocol, flow.Destination)
		}
	}
	return nil
}

// request sends one request to the guard and judges all that is seen of it.
// talk is called with the connection after an answer of 200.
func (t *trial) request(head string, w want, talk func(*client) error) error {
	status, logged := closed, 0
	s, err := t.watch(func() error {
		logged = t.guard.log.mark()
		c, err := dial(t.ctx, t.lab, t.guard.door.Entry)
		if late(err) {
			return blind(fmt.Errorf("connect to the guard: %w", err)) // the kernel takes it, and no guard
		}
		if err != nil {
			return fmt.Errorf("connect to the guard: %w", err)
		}
		defer c.Close()
		if w.dribble {
			status, err = c.dribbles()
		} else {
			status, err = c.ask(head)
		}
		if err != nil {
			return err
		}
		if w.ends {
			if more, err := c.ends(); err != nil || bytes.Contains(more, []byte("HTTP/1.")) {
				return fmt.Errorf("after the answer: expected the end, got %q: %w", more, err)
			}
		}
		if status == 200 && talk != nil {
			err = talk(c)
		}
		c.Close()
		return errors.Join(err, t.settleLog(logged, w.lines))
	})
	if err != nil {
		return err
	}
	return w.check(t.bench, status, s)
}

// settleLog waits for the decisions that must come.
func (t *trial) settleLog(mark, lines int) error {
	if lines < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	_, err := t.guard.log.wait(ctx, mark, guard.KindDecision, max(lines, 1))
	return err
}

// passes is a request that must get through to exactly one address and echo.
func (t *trial) passes(target string, at netip.AddrPort) error {
	return t.request(connectHead(target), want{
		status: []int{200}, accepts: []netip.AddrPort{at}, asked: []string{hostOf(target)},
	}, func(c *client) error { return c.greets(hostOf(target)) })
}

// refused is a request that must be refused before the resolver hears of it.
func (t *trial) refused(target string, status int, reason policy.Reason) error {
	return named(target, t.request(connectHead(target), want{status: []int{status}, reason: reason}, nil))
}

// resolves is a request for a listed name that must be refused after its
// question.
func (t *trial) resolves(host string, reason policy.Reason, status ...int) error {
	return t.request(connectHead(host+":443"), want{status: status, reason: reason, asked: []string{host}}, nil)
}

func named(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%q: %w", what, err)
	}
	return nil
}

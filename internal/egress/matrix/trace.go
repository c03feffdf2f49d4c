package matrix

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
)

// trace is everything that was seen of one attempt.
type trace struct {
	lab       *lab.Lab
	accepts   []lab.Accept
	flows     map[lab.Flow]int64
	plane     map[lab.Flow]int64
	queries   []lab.Query
	decisions []guard.Line
}

// watch does something and returns everything that was seen of it.
// Errors: of f; of a lab that did not see itself, so that no absence is proved.
func (t *trial) watch(f func() error) (*trace, error) {
	// What a case before sent unwatched must not be taken for this one's.
	if t.loose.Swap(false) {
		if err := t.lab.Settle(t.ctx); err != nil {
			return nil, blind(err)
		}
	}
	ledger, tap, plane, queries := t.lab.Ledger.Mark(), t.lab.Tap.Mark(), t.lab.PlaneTap.Mark(), t.lab.Resolver.Mark()
	decisions := 0
	if t.guard != nil {
		decisions = t.guard.log.mark()
	}
	err := f()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if settled := t.lab.Settle(ctx); settled != nil {
		return nil, errors.Join(err, blind(settled))
	}
	accepts, open := t.lab.Ledger.Closed(ctx, ledger)
	if open != nil && err == nil {
		err = fmt.Errorf("a connection of the guard stays open: %v", accepts)
	}
	s := &trace{lab: t.lab, accepts: accepts, flows: t.lab.Tap.Since(tap), plane: t.lab.PlaneTap.Since(plane), queries: t.lab.Resolver.Since(queries)}
	if t.guard != nil {
		s.decisions = t.guard.log.since(decisions)
	}
	return s, err
}

// blindError is a lab that cannot see. Nothing was judged.
type blindError struct{ error }

func (e blindError) Unwrap() error { return e.error }

func blind(err error) error { return blindError{err} }

// reached says what is wrong with the accepts: they must be exactly these, in
// this order.
func (s *trace) reached(want ...netip.AddrPort) error {
	var got []netip.AddrPort
	for _, a := range s.accepts {
		got = append(got, a.Local)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("accepted: expected %v, got %v", want, got)
	}
	return nil
}

// callers are who may have had a connection before.
var callers = []netip.Addr{
	lab.GuardAddr, lab.GuardAddr6, netip.MustParseAddr("fe80::200"), lab.OutsideAddr, lab.OutsideAddr6, netip.MustParseAddr("fe80::400"),
}

// explained says which packets were seen that nothing explains: what went to the
// resolver, and what went to an address where that is in order. Of connections
// that were accepted before, segments come late.
func (s *trace) explained(order ...netip.AddrPort) error {
	var odd []string
	for flow, n := range s.flows {
		to := flow.Destination
		before := slices.Contains(callers, flow.Source) && !flow.SYN && s.lab.Ledger.Known(to)
		switch {
		case to == lab.ResolverAddr && (flow.Protocol == lab.UDP || flow.Protocol == lab.TCP):
		case slices.Contains(order, to):
		case flow.Protocol == lab.TCP && before:
		case flow.Source == lab.GuardAddr && flow.Protocol == lab.ICMP && to.Addr() == lab.ResolverAddr.Addr(): // an answer to nobody any more
		default:
			odd = append(odd, fmt.Sprintf("%d × %s to %s", n, flow.Protocol, to))
		}
	}
	for flow, n := range s.atPlane() {
		odd = append(odd, fmt.Sprintf("%d × %s to the plane", n, flow.Protocol))
	}
	if len(odd) > 0 {
		slices.Sort(odd)
		return fmt.Errorf("packets: expected none but these to %v, got %s", order, strings.Join(odd, ", "))
	}
	return nil
}

// atPlane is what arrived at the plane, without late segments of a connection
// before: what opens one is counted.
func (s *trace) atPlane() map[lab.Flow]int64 {
	out := maps.Clone(s.plane)
	maps.DeleteFunc(out, func(flow lab.Flow, _ int64) bool {
		return flow.Source == lab.RelayAddr && flow.Protocol == lab.TCP && !flow.SYN && s.lab.Ledger.Known(flow.Destination)
	})
	return out
}

// asked says what is wrong with the questions: each of these names once for each
// family, and nothing else.
func (s *trace) asked(names ...string) error {
	var want []string
	for _, name := range names {
		want = append(want, name+" A", name+" AAAA")
	}
	return s.questions(want)
}

func (s *trace) questions(want []string) error {
	var got []string
	for _, q := range s.queries {
		got = append(got, q.Name+" "+dns.TypeToString[q.Type])
	}
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		return fmt.Errorf("questions: expected %v, got %v", want, got)
	}
	return nil
}

package gateway

import (
	"errors"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// stopping is a store where something happens on the way of counts to the disk.
type stopping struct {
	*Store
	used func(runID string)
}

func (s stopping) Used(runID string) (Usage, error) {
	u, err := s.Store.Used(runID)
	s.used(runID)
	return u, err
}

// ledgerOf is one with two leases, of two runs of one request each.
func ledgerOf(t *testing.T, used func(runID string)) (g *ledger, one, two Lease) {
	t.Helper()
	s := openStore(t, t.TempDir(), nil)
	end := time.Now().Add(time.Hour)
	one = Lease{RunID: "r1", LeaseID: "l1", LeaseEpoch: 1, ExpiresAt: end, Ceiling: Ceiling{Requests: 1}}
	two = Lease{RunID: "r2", LeaseID: "l2", LeaseEpoch: 1, ExpiresAt: end, Ceiling: Ceiling{Requests: 1}}
	for _, l := range []Lease{one, two} {
		if _, err := s.Grant(l); err != nil {
			t.Fatal(err)
		}
	}
	limits := Limits{Requests: 9, RunRequests: 9, HeldBytes: 1 << 20, BodyBytes: 1 << 10}
	return &ledger{limits: limits, counts: stopping{s, used}, runs: map[string]*account{}}, one, two
}

// within gives what f answers, or fails where it hangs.
func within(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("it hangs: " + what)
		return nil
	}
}

// A run whose counts wait for the disk holds up nothing of another.
func TestLedgerWaitsForNoOthersDisk(t *testing.T) {
	waits, goOn := make(chan struct{}), make(chan struct{})
	g, one, two := ledgerOf(t, func(runID string) {
		if runID == "r1" {
			close(waits)
			<-goOn
		}
	})
	first := make(chan error, 1)
	go func() { first <- g.begin(one) }()
	<-waits
	err := within(t, "a request of another run", func() error {
		err := errors.Join(g.begin(two), g.hold(two, 5), g.hold(two, -5))
		g.end(two, Usage{Requests: 1})
		<-g.idle("r2")
		return err
	})
	close(goOn)
	if err = errors.Join(err, <-first); err != nil {
		t.Error(err)
	}
}

// A request that ends while another begins is seen by its ceiling as one that ran
// or as one that was counted.
func TestLedgerMissesNoneThatEndsMeanwhile(t *testing.T) {
	var g *ledger
	var one Lease
	under := false
	g, one, _ = ledgerOf(t, func(string) {
		if under {
			g.end(one, Usage{Requests: 1})
		}
	})
	if err := g.begin(one); err != nil {
		t.Fatal(err)
	}
	under = true
	err := within(t, "a request beside one that ends", func() error { return g.begin(one) })
	if refused, ok := errors.AsType[*route.Refusal](err); !ok || refused.Reason != route.ReasonCeiling {
		t.Errorf("expected the ceiling, got %v", err)
	}
}

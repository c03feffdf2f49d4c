package client

import (
	"testing"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// Whoever holds the later epoch of a lease tears down what the earlier one made,
// also when nothing of the later one is left, and does nothing else with it.
func TestALaterEpochEndsWhatTheEarlierMade(t *testing.T) {
	p := memory.New(memory.Options{})
	c := connect(t, serve(t, p))
	q := request()
	first, err := c.Provision(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	q.RunID, q.AttemptID, q.LeaseEpoch = "r2", "a2", q.LeaseEpoch+1
	second, err := c.Provision(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Activate(t.Context(), first.Value.InstanceID); err == nil {
		t.Error("the earlier epoch goes on")
	}
	for _, id := range []sandbox.InstanceID{second.Value.InstanceID, first.Value.InstanceID} {
		if err := c.Destroy(t.Context(), id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if left := p.Census(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if len(c.leases.held)+len(c.leases.newest) > 0 {
		t.Errorf("remembers %v, %v", c.leases.held, c.leases.newest)
	}
}

func TestAnInstanceThatIsForgottenTwiceIsForgottenOnce(t *testing.T) {
	l := leases{held: map[sandbox.InstanceID]wire.Lease{}}
	for _, id := range []sandbox.InstanceID{"a", "b"} {
		if !l.keep(id, wire.Lease{ID: "l", Epoch: 1}) {
			t.Errorf("%s is not new", id)
		}
	}
	l.keep("b", wire.Lease{ID: "l", Epoch: 7})
	l.drop("b")
	l.drop("b")
	if got := l.ending("a"); got.Epoch != 7 || l.of("a").Epoch != 1 {
		t.Errorf("%+v", got)
	}
	l.drop("a")
	if len(l.newest) > 0 {
		t.Errorf("remembers %v", l.newest)
	}
}

package faults

import (
	"context"
	"sync"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// deliveries is how often a teardown is delivered: a lost reply can be lost
// again.
const deliveries = 4

func redeliveries() []probe.Probe {
	return []probe.Probe{
		drill("redelivered.destroy", "20", handoff, "a machine can be destroyed again and again", always, redeliverDestroy),
		drill("redelivered.destroy-snapshot", "21", handoff, "a snapshot can be destroyed again and again", durable, redeliverDestroySnapshot),
		once(drill("redelivered.provision", "22", handoff, "a provision that is sent again allocates nothing that no id names", always, redeliverProvision)),
		drill("concurrent.activate", "23", lifecycle, "of two activations at once at most one wins", always, concurrentActivate),
		drill("concurrent.provision", "24", handoff, "machines that are made at once are apart and all go", always, concurrentProvision),
	}
}

func redeliverDestroy(t *probe.T) {
	m := t.Machine(probe.Shape{})
	for range deliveries {
		err := t.Provider().Destroy(t.Context(), m.ID)
		t.Check("settles", err == nil, "success, as at the first delivery", err)
	}
}

func redeliverDestroySnapshot(t *probe.T) {
	id := snapshot(t, t.Machine(probe.Durable(probe.Shape{}))).Value.SnapshotID
	for range deliveries {
		err := t.Provider().DestroySnapshot(t.Context(), id)
		t.Check("settles", err == nil, "success, as at the first delivery", err)
	}
}

// The reply of the first is lost: the Runner asks for the same again. Whether
// it gets another machine, the same one or a refusal is not said.
func redeliverProvision(t *probe.T) {
	before := count(t)
	q := t.Request(probe.Shape{Lifetime: lifetime})
	first, err := t.Provider().Provision(t.Context(), q)
	t.Need("provision", err)
	second, err := t.Provider().Provision(t.Context(), q)
	switch {
	case err != nil:
		t.Observe("the same provision again is refused: %v", err)
	case second.Value.InstanceID == first.Value.InstanceID:
		t.Observe("the same provision again gives the same machine")
	}
	before.returned(string(first.Value.InstanceID), first.Rollback)
	if err == nil {
		before.returned(string(second.Value.InstanceID), second.Rollback)
	}
	before.unchanged(q.ExpiresAt)
}

func concurrentActivate(t *probe.T) {
	m := t.Provision(probe.Shape{})
	var errs [2]error
	atOnce(len(errs), func(n int) { _, errs[n] = t.Provider().Activate(t.Context(), m.ID) })
	t.Check("one", errs[0] != nil || errs[1] != nil, "at most one activation that succeeds", "two")
	if errs[0] != nil && errs[1] != nil {
		t.Observe("neither of two activations at once won: %v; %v", errs[0], errs[1])
		return
	}
	_, err := t.Provider().Execute(t.Context(), m.ID, probe.Command("true"))
	t.Check("runs", err == nil, "the machine that was activated runs", err)
}

func concurrentProvision(t *probe.T) {
	const many = 6
	var handoffs [many]sandbox.Handoff[sandbox.Instance]
	var errs [many]error
	requests := [many]sandbox.ProvisionRequest{}
	for n := range requests {
		requests[n] = t.Request(probe.Shape{})
	}
	atOnce(many, func(n int) { handoffs[n], errs[n] = t.Provider().Provision(t.Context(), requests[n]) })
	ids := map[sandbox.InstanceID]bool{}
	for n, err := range errs {
		if err == nil {
			t.Check("apart", !ids[handoffs[n].Value.InstanceID], "an id of its own for each machine", string(handoffs[n].Value.InstanceID))
			ids[handoffs[n].Value.InstanceID] = true
		} else {
			t.Observe("one of %d provisions at once was refused: %v", many, err)
		}
	}
	t.Check("some", len(ids) > 0, "at least one machine", len(ids))
	atOnce(many, func(n int) {
		if errs[n] == nil {
			errs[n] = t.Provider().Destroy(context.WithoutCancel(t.Context()), handoffs[n].Value.InstanceID)
		}
	})
	for id := range ids {
		gone(t, id)
	}
}

// atOnce calls f for 0 to n-1 on goroutines of their own and waits for all.
func atOnce(n int, f func(int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

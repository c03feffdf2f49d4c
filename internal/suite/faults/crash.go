package faults

import (
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

func crashes() []probe.Probe {
	return []probe.Probe{
		once(drill("restarted.cleanup", "40", sweeping, "a provider that was restarted sweeps what it made before", []report.Token{report.Cleanup}, restartCleanup)),
		drill("restarted.destroy", "41", handoff, "a provider that was restarted destroys what it made before", always, restartDestroy),
		drill("restarted.snapshot", "42", `concept "The capability envelope"`, "a snapshot in the provider's custody survives its restart", durable, restartSnapshot),
	}
}

// A provider may reap by itself what has expired: then there is nothing left
// to sweep.
func restartCleanup(t *probe.T) {
	m := t.Provision(probe.Shape{Lifetime: lifetime})
	t.Restart()
	t.Until(m.Request.ExpiresAt)
	swept := sweep(t).InstanceIDs
	t.Check("swept", slices.Contains(swept, m.ID) || isUnknown(touch(t, m.ID)), "the machine from before the restart, past its expiry", "it is still there")
}

func restartDestroy(t *probe.T) {
	m := t.Provision(probe.Shape{})
	t.Restart()
	err := t.Provider().Destroy(t.Context(), m.ID)
	t.Check("destroyed", err == nil, "success for an id from before the restart", err)
	gone(t, m.ID)
}

// In a Runner's custody bytes may die with the process that held them, and the
// answer says so.
func restartSnapshot(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	s := released(t, m).Value.Snapshot
	if s == nil {
		t.Fatal("snapshot", "a settled snapshot", "none")
	}
	t.Restart()
	_, err := resume(t, m, *s)
	if err != nil && t.Envelope().SnapshotCustody != sandbox.CustodyProvider {
		t.Refused("lost", err, &sandbox.Error{Kind: sandbox.SnapshotNotFound})
		t.Observe("a snapshot in the Runner's custody did not survive the restart")
		return
	}
	t.Served("survives", err == nil, "a snapshot that resumes after the restart", err)
}

package faults

import (
	"context"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

func interruptions() []probe.Probe {
	return []probe.Probe{
		once(drill("interrupted.provision", "30", handoff, "a caller that goes away while a machine is made leaves nothing", always, interruptProvision)),
		once(drill("interrupted.snapshot", "35", handoff, "a caller that goes away while a snapshot is taken leaves nothing", durable, interruptSnapshot)),
		once(drill("interrupted.resume", "36", handoff, "a caller that goes away during a resumption leaves nothing", durable, interruptResume)),
		once(drill("interrupted.refused-provision", "31", handoff, "a provision that is refused leaves nothing", always, refusedProvision)),
		drill("interrupted.failed-provisions", "32", handoff, "failed creations use up nothing", always, failedProvisions),
		drill("interrupted.destroy-running", "33", lifecycle, "a machine is destroyed under a running command", []report.Token{report.Filesystem}, destroyRunning),
		drill("interrupted.destroy-staged", "34", lifecycle, "a machine with staged files is destroyed before it runs", always, destroyStaged),
	}
}

// cancelAfter are the moments at which the caller goes away: before the call,
// and on the way.
var cancelAfter = []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 125 * time.Millisecond, 625 * time.Millisecond}

// Whatever the provider answers: what it returned is rolled back, what it did
// not return it still owns.
func interruptProvision(t *probe.T) {
	before := count(t)
	var last sandbox.ProvisionRequest
	leave(t, func(ctx context.Context) error {
		last = t.Request(probe.Shape{Lifetime: lifetime})
		h, err := t.Provider().Provision(ctx, last)
		if err == nil {
			before.returned(string(h.Value.InstanceID), h.Rollback)
		}
		return err
	})
	before.unchanged(last.ExpiresAt)
}

func interruptSnapshot(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	before := count(t)
	var last sandbox.Timestamp
	leave(t, func(ctx context.Context) error {
		last = sandbox.At(t.Now().Add(lifetime))
		h, err := t.Provider().Snapshot(ctx, m.ID, sandbox.SnapshotRequest{ExpiresAt: last})
		if err == nil {
			before.returned(string(h.Value.SnapshotID), h.Rollback)
		}
		return err
	})
	before.unchanged(last)
}

func interruptResume(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	s := snapshot(t, m).Value
	before := count(t)
	var last sandbox.Timestamp
	leave(t, func(ctx context.Context) error {
		q := another(t, m)
		last = sandbox.At(t.Now().Add(lifetime))
		q.ExpiresAt = last
		h, err := t.Provider().Resume(ctx, sandbox.ResumeRequest{Request: q, Snapshot: s})
		if err == nil {
			before.returned(string(h.Value.InstanceID), h.Rollback)
		}
		return err
	})
	before.unchanged(last)
}

// leave calls f as a caller that goes away at each of the moments.
func leave(t *probe.T, f func(context.Context) error) {
	for _, d := range cancelAfter {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		err := f(ctx)
		cancel()
		if probe.Hung(err) {
			t.Fatal("answers", "an answer after the caller went away", err)
		}
	}
}

// The Runner sends none of these. They are the ones that a provider can notice
// only when it has begun.
func refusedProvision(t *probe.T) {
	before := count(t)
	var last sandbox.ProvisionRequest
	for _, spoil := range []func(q *sandbox.ProvisionRequest){
		func(q *sandbox.ProvisionRequest) { // two mounts at one place
			m := sandbox.Mount{MountPath: "/" + t.Nonce(), Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit}
			q.Mounts = []sandbox.Mount{m, m}
		},
		func(q *sandbox.ProvisionRequest) { // more than there is
			q.Profile.ResourceLimits.DiskBytes = t.Envelope().MaximumResources.DiskBytes + 1
		},
	} {
		last = t.Request(probe.Shape{Lifetime: lifetime})
		spoil(&last)
		h, err := t.Provider().Provision(t.Context(), last)
		if err == nil {
			t.Observe("a provision that no Runner sends was accepted")
			before.returned(string(h.Value.InstanceID), h.Rollback)
		}
	}
	before.unchanged(last.ExpiresAt)
}

// A Run that is tried again keeps its lease. What each failed creation held,
// a place, a quota, a route, must be there for the next.
func failedProvisions(t *probe.T) {
	const failures = 6
	q := t.Request(probe.Shape{})
	for range failures {
		q.AttemptID = t.ID("att_")
		h, err := t.Provider().Provision(t.Context(), q)
		if !t.Check("again", err == nil, "another machine after creations that were rolled back", err) {
			return
		}
		_ = h.Rollback(t.Context())
	}
}

func destroyRunning(t *probe.T) {
	m := t.Machine(probe.Shape{})
	file, never := sandbox.OutputPath+"/"+t.Nonce(), sandbox.OutputPath+"/"+t.Nonce()
	c := probe.Command("echo > " + file + "; while test ! -e " + never + "; do :; done")
	c.TimeoutSeconds = 300
	type end struct {
		settlement sandbox.Settlement
		err        error
	}
	ended := make(chan end, 1)
	go func() {
		s, err := t.Provider().Execute(t.Context(), m.ID, c)
		ended <- end{s, err}
	}()
	for running := false; !running; {
		_, err := m.Read(file, sandbox.OutputPath, 16)
		running = err == nil
		select {
		case e := <-ended:
			t.Control("running", false, outcome(e.err))
		default:
			t.Sleep(20 * time.Millisecond)
		}
	}
	t.Control("running", true, nil)
	err := t.Provider().Destroy(t.Context(), m.ID)
	t.Check("destroyed", err == nil, "success under a running command", err)
	// By an error or by the signal that killed it: that is not said.
	e := <-ended
	t.Check("ended", !probe.Hung(e.err) && !e.settlement.TimedOut, "a command that ends with its machine", outcome(e.err))
	gone(t, m.ID)
}

func destroyStaged(t *probe.T) {
	m := t.Provision(probe.Shape{Files: []sandbox.FileWrite{{Path: sandbox.OutputPath + "/" + t.Nonce(), Content: []byte("x")}}})
	err := t.Provider().Destroy(t.Context(), m.ID)
	t.Check("destroyed", err == nil, "success", err)
	gone(t, m.ID)
}

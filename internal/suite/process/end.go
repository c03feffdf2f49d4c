package process

import (
	"context"
	"encoding/json"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// endProbes hold what the end of the instance does to its process.
func endProbes() []probe.Probe {
	release := holds("release", "35", "a process that got SIGTERM settles in 5 s, and its instance is released into a snapshot", release)
	release.Requires = append(release.Requires, report.Durable, report.SnapshotToken)
	return []probe.Probe{
		holds("instance-destroy", "34", "the end of the instance is the end of its process, and wait says so", instanceDestroy),
		release,
	}
}

func instanceDestroy(t *probe.T) {
	m := t.Machine(probe.Shape{})
	l := endless(t, m)
	t.Need("destroy", t.Provider().Destroy(t.Context(), m.ID))
	l.silent()
	l.gone = true
	// With the instance the exit may be lost; then a typed error says so.
	exit, err := l.p.Wait(t.Context())
	t.Check("settles", !probe.Hung(err), "an exit or an error", settled(exit, err))
}

// termination is how long a release waits for a process that got SIGTERM.
// Source: contract "openProcess", wait.
const termination = 5 * time.Second

// release does what a Runner does at a Checkpoint.
func release(t *probe.T) {
	ready := t.Nonce()
	m := t.Machine(probe.Durable(probe.Shape{}))
	l := start(t, m, program("echo "+ready+"; exec cat"))
	if !l.expect("ready", ready) {
		return
	}
	t.Need("signal", l.p.Signal(t.Context(), sandbox.SignalTerminate))
	ctx, cancel := context.WithTimeout(t.Context(), termination)
	defer cancel()
	exit, err := l.p.Wait(ctx)
	t.Check("settles", err == nil, "an exit within 5 s", settled(exit, err))
	h, err := t.Provider().Release(t.Context(), m.ID, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(t.Now().Add(time.Hour))})
	t.Need("release", err)
	t.Check("snapshot", h.Value.Snapshot != nil, "a snapshot", "none")
	l.gone = true
}

// evidenceOwn lets the workload lay out evidence of its own before the process
// is opened, in the places where a careless provider might keep some. It is
// right in all but its times, so that it would pass every comparison.
func evidenceOwn(t *probe.T) {
	m := t.Machine(probe.Shape{})
	id := "pr_" + t.Nonce() + t.Nonce()
	began := time.Date(2001, 2, 3, 4, 5, 6, int(t.Bytes(1)[0])*1e6, time.UTC)
	planted := sandbox.EvidenceOf(m.Instance, id, t.Envelope().Enforcement, sandbox.At(began), sandbox.At(began))
	spelled, err := json.Marshal(planted)
	if err != nil {
		t.Unjudged("planted", err.Error())
	}
	q := program(`printf '%s\n' "$1"`, string(spelled))
	plant := probe.Command(`none=1; while read -r path; do printf '%s\n' "$1" > "$path" && none=0; done; exit $none`)
	plant.Arguments = append(plant.Arguments, "sh", string(spelled))
	for _, dir := range []string{sandbox.HomePath, sandbox.OutputPath, "/tmp"} {
		for _, name := range []string{"evidence.json", "process-evidence.json", id + ".json"} {
			plant.Stdin = append(plant.Stdin, dir+"/"+name+"\n"...)
		}
	}
	t.Control("planted", probe.Code(m.Run(plant)) == 0, "none of the files could be written")
	p, err := t.Optional().OpenProcess.OpenProcess(t.Context(), m.ID, id, q)
	t.Need("open", err)
	got := p.Evidence()
	t.Check("own", got.StartedAt != planted.StartedAt && got.ObservedAt != planted.ObservedAt, "times of the provider's own", "those that the workload wrote")
	_ = p.Destroy(t.Context())
	// Not every target is a sandbox.
	clear := probe.Command(`while read -r path; do rm -f "$path"; done`)
	clear.Stdin = plant.Stdin
	m.Run(clear)
}

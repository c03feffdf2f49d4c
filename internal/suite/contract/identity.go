package contract

import (
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// identity asks for instances in full: every field has a value that whoever
// parses, sorts, cuts or fills in defaults would change. What comes back is
// held to the request by the standing checks, as it is for every call.
func identity() []probe.Probe {
	const source = `contract "Identity is cross-checked, not trusted"`
	return []probe.Probe{
		{
			ID: "identity.request-in-full", Suite: report.Contract, Clause: "CF-CI-01", Source: source,
			Title: "a full request is taken, made active, and taken again under the next epoch of its lease", Run: requestInFull,
		},
		{
			ID: "identity.resume-in-full", Suite: report.Contract, Clause: "CF-CI-02", Source: source,
			Title:    "a snapshot is resumed by a run, an attempt and a lease that its instance never knew",
			Requires: []report.Token{report.SnapshotToken, report.Durable}, Run: resumeInFull,
		},
	}
}

// full makes a request hard to echo: mounts and destinations in no order,
// milliseconds that are not whole, numbers above one.
func full(t *probe.T, s probe.Shape) sandbox.ProvisionRequest {
	c := t.Envelope()
	s.Mounts = plan(t, 4, sandbox.AccessReadWrite, sandbox.AccessReadOnly, sandbox.AccessReadWrite)
	q := t.Request(s)
	q.LeaseEpoch = 1<<40 + 7
	q.Profile.ProfileVersion = 1<<40 + 11
	q.ExpiresAt = sandbox.At(t.Now().Truncate(time.Second).Add(time.Hour + 347*time.Millisecond))
	allowlist := sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{
		{Host: "b-" + t.Nonce() + ".example.com", Port: 8443}, {Host: "a-" + t.Nonce() + ".example.com", Port: 443},
	}}
	if grade.Network(c, allowlist) == nil {
		q.Profile.NetworkPolicy = allowlist
	}
	return q
}

func requestInFull(t *probe.T) {
	q := full(t, probe.Shape{})
	h, err := t.Provider().Provision(t.Context(), q)
	t.Need("provision", err)
	_, err = t.Provider().Activate(t.Context(), h.Value.InstanceID)
	t.Need("activate", err)
	// The lease is claimed anew: another run, the next epoch, another instance.
	q.RunID, q.AttemptID, q.LeaseEpoch = t.ID("run_"), t.ID("att_"), q.LeaseEpoch+1
	_, err = t.Provider().Provision(t.Context(), q)
	t.Need("provision-again", err)
}

func resumeInFull(t *probe.T) {
	q := full(t, probe.Durable(probe.Shape{}))
	q.LeaseEpoch = 1
	h, err := t.Provider().Provision(t.Context(), q)
	t.Need("provision", err)
	_, err = t.Provider().Activate(t.Context(), h.Value.InstanceID)
	t.Need("activate", err)
	s, err := t.Provider().Snapshot(t.Context(), h.Value.InstanceID, sandbox.SnapshotRequest{ExpiresAt: later(t)})
	t.Need("capture", err)
	q.RunID, q.AttemptID, q.LeaseID, q.LeaseEpoch = t.ID("run_"), t.ID("att_"), t.ID("lease_"), 1<<40+13
	q.ExpiresAt = sandbox.At(t.Now().Truncate(time.Second).Add(90*time.Minute + 659*time.Millisecond))
	_, err = t.Provider().Resume(t.Context(), sandbox.ResumeRequest{Request: q, Snapshot: s.Value})
	t.Need("resume", err)
}

package sandboxruntime

import (
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/sandbox"
)

// mismatch is the refusal that a failed check leads to.
func mismatch(op sandbox.Operation, d crosscheck.Difference) error {
	e := protocolInvalid(op, d.Field, d.Expected, d.Got)
	e.Check = d.Number
	return e
}

// checkInstance cross-checks an instance. known is the id that it must keep,
// or "" if the provider may choose one now.
func checkInstance(want, got sandbox.Instance, known sandbox.InstanceID) error {
	if d, differs := crosscheck.First(crosscheck.Instance(&want, &got)); differs {
		return mismatch(OpInstanceIdentity, d)
	}
	if err := sandbox.CheckInstanceID("instance_id", got.InstanceID); err != nil {
		return rejected(OpInstanceIdentity, err)
	}
	if known != "" && got.InstanceID != known {
		return protocolInvalid(OpInstanceIdentity, "instance_id", string(known), string(got.InstanceID))
	}
	return nil
}

// checkSnapshot cross-checks a snapshot against the one that was asked for,
// then its form.
func checkSnapshot(want, got sandbox.Snapshot) error {
	if d, differs := crosscheck.First(crosscheck.Snapshot(&want, &got)); differs {
		return mismatch(OpSnapshotIdentity, d)
	}
	if err := got.Validate(); err != nil {
		return rejected(OpSnapshotIdentity, err)
	}
	return nil
}

// snapshotOf is what a snapshot of i must look like, apart from its id and the
// time it was made.
func (i *instance) snapshotOf(expires sandbox.Timestamp) sandbox.Snapshot {
	r := &i.request
	return sandbox.Snapshot{
		Provider: r.Target.Provider, Placement: r.Target.Placement, SourceInstanceID: i.id,
		WorkspaceID: r.WorkspaceID, SessionID: r.SessionID,
		ProfileID: r.Profile.ProfileID, ProfileVersion: r.Profile.ProfileVersion, ProfileDigest: i.digest,
		ExpiresAt: expires,
	}
}

// checkClone cross-checks a clone against its source.
// Source: contract "Identity is cross-checked, not trusted", last paragraph.
func checkClone(r sandbox.CloneRequest, got sandbox.Snapshot) error {
	if d, differs := crosscheck.First(crosscheck.Clone(&r, &got)); differs {
		return mismatch(OpSnapshotIdentity, d)
	}
	if err := got.Validate(); err != nil {
		return rejected(OpSnapshotIdentity, err)
	}
	return nil
}

// profileDigest is the identity of the derived image.
// Source: contract "Identity is cross-checked, not trusted".
func profileDigest(p sandbox.Profile) sandbox.Digest {
	return sandbox.Digest(canonical.Digest(p.ImageIdentity()))
}

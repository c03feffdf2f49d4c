package sandbox

// ProvisionRequest asks for one instance. It carries everything that the
// returned instance must echo byte for byte.
// Source: contract "The operations", row provision; "Identity is
// cross-checked, not trusted".
type ProvisionRequest struct {
	WorkspaceID string    `json:"workspace_id"`
	SessionID   string    `json:"session_id"`
	RunID       string    `json:"run_id"`
	AttemptID   string    `json:"attempt_id"`
	LeaseID     string    `json:"lease_id"`
	LeaseEpoch  int64     `json:"lease_epoch"`
	Target      Target    `json:"target"`
	Profile     Profile   `json:"profile"`
	Platform    Platform  `json:"platform"`
	RootImage   string    `json:"root_image"`
	Mounts      []Mount   `json:"mounts"`
	ExpiresAt   Timestamp `json:"expires_at"`
}

// Validate checks every field and the mount plan.
func (r ProvisionRequest) Validate() error {
	return first(
		checkIdentity("workspace_id", r.WorkspaceID),
		checkIdentity("session_id", r.SessionID),
		checkIdentity("run_id", r.RunID),
		checkIdentity("attempt_id", r.AttemptID),
		checkIdentity("lease_id", r.LeaseID),
		checkInteger("lease_epoch", r.LeaseEpoch, 0, MaxInteger),
		prefix("target", r.Target.Validate()),
		prefix("profile", r.Profile.Validate()),
		prefix("platform", r.Platform.Validate()),
		checkImage("root_image", r.RootImage),
		ValidateMounts(r.Mounts),
		checkTimestamp("expires_at", r.ExpiresAt),
	)
}

// Instance is what a provider says it allocated. The Runner compares every
// field with its own request; instance_id alone is the provider's to choose.
// Source: contract "Identity is cross-checked, not trusted".
type Instance struct {
	InstanceID      InstanceID      `json:"instance_id"`
	Provider        string          `json:"provider"`
	Placement       Placement       `json:"placement"`
	State           State           `json:"state"`
	WorkspaceID     string          `json:"workspace_id"`
	SessionID       string          `json:"session_id"`
	RunID           string          `json:"run_id"`
	AttemptID       string          `json:"attempt_id"`
	LeaseID         string          `json:"lease_id"`
	LeaseEpoch      int64           `json:"lease_epoch"`
	Target          Target          `json:"target"`
	Profile         Profile         `json:"profile"`
	Platform        Platform        `json:"platform"`
	RootImage       string          `json:"root_image"`
	Mounts          []Mount         `json:"mounts"`
	OutputPath      string          `json:"output_path"`
	ExpiresAt       Timestamp       `json:"expires_at"`
	Materialization Materialization `json:"materialization"`
}

// Materialization says what the derived image was made from.
// Source: contract "Identity is cross-checked, not trusted".
type Materialization struct {
	ProfileDigest           Digest `json:"profile_digest"`
	ImageReference          string `json:"image_reference"`
	ImageDigest             Digest `json:"image_digest"`
	ProviderRevision        string `json:"provider_revision"`
	MaterializationRevision string `json:"materialization_revision"`
}

// InstanceOf returns the instance that an honest provider returns for r: every
// field echoed, the materialization derived. profileDigest is the SHA-256 of
// r.Profile.ImageIdentity.
func InstanceOf(r ProvisionRequest, id InstanceID, state State, profileDigest Digest) Instance {
	return Instance{
		InstanceID: id, Provider: r.Target.Provider, Placement: r.Target.Placement, State: state,
		WorkspaceID: r.WorkspaceID, SessionID: r.SessionID, RunID: r.RunID, AttemptID: r.AttemptID,
		LeaseID: r.LeaseID, LeaseEpoch: r.LeaseEpoch, Target: r.Target, Profile: r.Profile, Platform: r.Platform,
		RootImage: r.RootImage, Mounts: r.Mounts, OutputPath: OutputPath, ExpiresAt: r.ExpiresAt,
		Materialization: Materialization{
			ProfileDigest: profileDigest, ImageReference: r.RootImage, ImageDigest: ImageDigest(r.RootImage),
			ProviderRevision: r.Target.ProviderRevision, MaterializationRevision: r.Target.MaterializationRevision,
		},
	}
}

// CheckInstanceID holds the provider's own id to the form of an identity.
func CheckInstanceID(field string, id InstanceID) error { return checkIdentity(field, string(id)) }

// CheckSnapshotID holds the provider's own id to the form of an identity.
func CheckSnapshotID(field string, id SnapshotID) error { return checkIdentity(field, string(id)) }

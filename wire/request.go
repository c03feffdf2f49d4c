package wire

import "github.com/checkfu/checkfu/sandbox"

// The requests of the members. Field names are the contract's; values that are
// whole values of the contract lie inside unchanged.

// Empty is the body of a request or an answer that says nothing: {}.
type Empty struct{}

// ProvisionRequest is the request of provision. Its lease must equal the
// fencing headers.
type ProvisionRequest sandbox.ProvisionRequest

// InstanceRequest is the request of activate and destroy.
type InstanceRequest struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
}

// FileCall is the call of write_file; the content follows as data, of exactly
// Size bytes with the digest Digest. A symbolic link has its target here and no
// content.
type FileCall struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
	Path       string             `json:"path"`
	Size       int64              `json:"size"`
	Digest     sandbox.Digest     `json:"digest"`
	Executable bool               `json:"executable,omitzero"`
	Symlink    string             `json:"symlink,omitzero"`
}

// ExecuteCall is the call of execute; standard input follows as data.
type ExecuteCall struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
	Command    sandbox.Command    `json:"command"`
}

// ReadFileRequest is the request of read_file.
type ReadFileRequest struct {
	InstanceID   sandbox.InstanceID `json:"instance_id"`
	Path         string             `json:"path"`
	AllowedRoot  string             `json:"allowed_root"`
	MaximumBytes int64              `json:"maximum_bytes"`
}

// ReadFilesRequest is the request of read_files.
type ReadFilesRequest struct {
	InstanceID            sandbox.InstanceID   `json:"instance_id"`
	AllowedRoot           string               `json:"allowed_root"`
	Files                 []sandbox.FileMember `json:"files"`
	AggregateMaximumBytes int64                `json:"aggregate_maximum_bytes"`
}

// ListRequest is the request of list_dir and list_project_dir.
type ListRequest struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
	Root       string             `json:"root"`
	MaxEntries int64              `json:"max_entries"`
}

// SnapshotRequest is the request of snapshot.
type SnapshotRequest struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
	ExpiresAt  sandbox.Timestamp  `json:"expires_at"`
}

// CloneRequest is the request of clone_snapshot.
type CloneRequest sandbox.CloneRequest

// ReleaseRequest is the request of release.
type ReleaseRequest struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
	ExpiresAt  sandbox.Timestamp  `json:"expires_at,omitzero"`
}

// ResumeRequest is the request of resume.
type ResumeRequest sandbox.ResumeRequest

// DestroySnapshotRequest is the request of destroy_snapshot.
type DestroySnapshotRequest struct {
	SnapshotID sandbox.SnapshotID `json:"snapshot_id"`
}

// CleanupRequest is the request of cleanup.
type CleanupRequest sandbox.CleanupRequest

func (Empty) form() error                  { return nil }
func (InstanceRequest) form() error        { return nil }
func (ExecuteCall) form() error            { return nil }
func (ReadFileRequest) form() error        { return nil }
func (ReadFilesRequest) form() error       { return nil }
func (ListRequest) form() error            { return nil }
func (DestroySnapshotRequest) form() error { return nil }

func (r ProvisionRequest) form() error {
	return first(count("lease_epoch", r.LeaseEpoch), timestamp("expires_at", r.ExpiresAt))
}

func (c FileCall) form() error {
	return first(count("size", c.Size), digest("digest", c.Digest))
}

func (r SnapshotRequest) form() error { return timestamp("expires_at", r.ExpiresAt) }

func (r CloneRequest) form() error { return snapshot("snapshot", r.Snapshot) }

func (r ReleaseRequest) form() error {
	if r.ExpiresAt == "" {
		return nil
	}
	return timestamp("expires_at", r.ExpiresAt)
}

func (r ResumeRequest) form() error {
	return first(within("request", ProvisionRequest(r.Request).form()), snapshot("snapshot", r.Snapshot))
}

func (r CleanupRequest) form() error {
	return first(timestamp("now", r.Now), timestamp("orphaned_before", r.OrphanedBefore))
}

package sandbox

import (
	"context"
	"io"
)

// ProcessRequest starts one live process. It is deliberately smaller than
// Command: stdin arrives on the stream, lifetime is bounded by the instance,
// output by the consumer. A provider invents no timeout and no ceiling.
// Source: contract "openProcess".
type ProcessRequest struct {
	Executable       string            `json:"executable"`
	Arguments        []string          `json:"arguments"`
	WorkingDirectory string            `json:"working_directory"`
	Environment      map[string]string `json:"environment"`
}

// Validate checks every bound.
func (r ProcessRequest) Validate() error {
	return checkProgram(r.Executable, r.Arguments, r.WorkingDirectory, r.Environment)
}

// Process is one live process: two readable byte streams, one writable sink,
// an exit that settles once, a control signal, an idempotent teardown.
//
// Concurrency: the streams may be used each by one goroutine at a time, all at
// once; the other methods by any number.
// Source: contract "openProcess".
type Process interface {
	// Input takes ordered bytes; Close is the half-close that the child sees
	// as end of file.
	Input() io.WriteCloser
	// Output delivers ordered bytes, nothing lost, nothing twice, with a real
	// end of file. Chunk boundaries mean nothing.
	Output() io.Reader
	// Error is diagnostic: bounded, best effort.
	Error() io.Reader
	// Wait blocks until the process ended or ctx is done and gives the same
	// answer however often it is called.
	Wait(ctx context.Context) (Exit, error)
	// Signal delivers one control signal. After the exit it does nothing.
	Signal(ctx context.Context, s ControlSignal) error
	// Destroy kills the process and all its descendants. It is idempotent and
	// bounded by ctx.
	Destroy(ctx context.Context) error
	// Evidence is the provider's own statement about the process. Workload
	// output can never author it.
	Evidence() Evidence
}

// EvidenceSchema names the form of Evidence.
const EvidenceSchema = "checkfu.sandbox-process-evidence.v1"

// Evidence says under what confinement a process was started.
// Source: contract "openProcess"; grading "evidence stops being an isolation
// cross-check". The field list is ours (docs/divergences.md).
type Evidence struct {
	Schema                  string      `json:"schema"`
	ProcessID               string      `json:"process_id"`
	InstanceID              InstanceID  `json:"instance_id"`
	Provider                string      `json:"provider"`
	ProviderRevision        string      `json:"provider_revision"`
	MaterializationRevision string      `json:"materialization_revision"`
	RootImage               string      `json:"root_image"`
	ImageDigest             Digest      `json:"image_digest"`
	ProfileDigest           Digest      `json:"profile_digest"`
	Platform                Platform    `json:"platform"`
	NetworkMode             NetworkMode `json:"network_mode"`
	ResourceLimits          Resources   `json:"resource_limits"`
	Enforcement             Enforcement `json:"enforcement"`
	StartedAt               Timestamp   `json:"started_at"`
	ObservedAt              Timestamp   `json:"observed_at"`
}

// EvidenceOf returns the statement that an honest provider makes about a
// process of instance.
func EvidenceOf(i Instance, processID string, e Enforcement, started, observed Timestamp) Evidence {
	return Evidence{
		Schema: EvidenceSchema, ProcessID: processID, InstanceID: i.InstanceID, Provider: i.Provider,
		ProviderRevision:        i.Materialization.ProviderRevision,
		MaterializationRevision: i.Materialization.MaterializationRevision,
		RootImage:               i.RootImage, ImageDigest: i.Materialization.ImageDigest,
		ProfileDigest: i.Materialization.ProfileDigest, Platform: i.Platform, NetworkMode: i.Profile.NetworkPolicy.Mode,
		ResourceLimits: i.Profile.ResourceLimits, Enforcement: e, StartedAt: started, ObservedAt: observed,
	}
}

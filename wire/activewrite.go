package wire

import "github.com/checkfu/checkfu/sandbox"

// An active write over the wire is five calls: begin, stage each file,
// dispatch, and abort or inspect. The operation id of begin_active_write is the
// transaction's id. A caller calls its dispatch marker before it sends
// dispatch_active_write: any outcome but a typed answer is then indeterminate
// and is redelivered.
// Source: contract "The operations", the paragraph on beginActiveWrite.

// BeginActiveWriteRequest is the request of begin_active_write. It names the
// targets and no mount: the provider finds the deepest read-write mount that
// owns them all, because a name that the caller gives could be another's.
// Contents come with stage_active_write, each with its own size and digest.
type BeginActiveWriteRequest struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
	Targets    []string           `json:"targets"`
}

// StageCall is the call of stage_active_write; the content follows as data.
type StageCall struct {
	InstanceID    sandbox.InstanceID `json:"instance_id"`
	TransactionID OperationID        `json:"transaction_id"`
	Path          string             `json:"path"`
	Size          int64              `json:"size"`
	Digest        sandbox.Digest     `json:"digest"`
	Executable    bool               `json:"executable,omitzero"`
	Symlink       string             `json:"symlink,omitzero"` // providers refuse it: a batch of regular files
}

// TransactionRequest is the request of dispatch_active_write,
// abort_active_write and inspect_active_write.
type TransactionRequest struct {
	InstanceID    sandbox.InstanceID `json:"instance_id"`
	TransactionID OperationID        `json:"transaction_id"`
}

// Journal answers all five: the durable state of the transaction.
type Journal struct {
	Journal sandbox.JournalState `json:"journal"`
}

func (BeginActiveWriteRequest) form() error { return nil }

func (c StageCall) form() error {
	return first(operationID("transaction_id", c.TransactionID), count("size", c.Size), digest("digest", c.Digest))
}

func (r TransactionRequest) form() error { return operationID("transaction_id", r.TransactionID) }

func (j Journal) form() error {
	if !j.Journal.Valid() {
		return refuse("journal", "open, dispatched, committed or rolled_back")
	}
	return nil
}

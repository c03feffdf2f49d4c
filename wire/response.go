package wire

import (
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// The answers of the members. What they say of the contract is not judged here:
// whoever asked holds it against what was asked for.

// Rollback says how an allocation can be undone: by the id that the Runner
// minted, which this must echo. Nothing in the value is needed for it.
// Source: contract "Allocation handoff".
type Rollback struct {
	OperationID OperationID `json:"operation_id"`
}

// Echo refuses the id of another operation.
// Errors: *Error with TagMalformed.
func (r Rollback) Echo(id OperationID) error {
	if r.OperationID != id {
		return refuse("rollback.operation_id", "the id of the request, "+string(id))
	}
	return nil
}

// InstanceHandoff answers provision, activate and resume.
type InstanceHandoff struct {
	Value    sandbox.Instance `json:"value"`
	Rollback Rollback         `json:"rollback"`
}

// SnapshotHandoff answers snapshot and clone_snapshot.
type SnapshotHandoff struct {
	Value    sandbox.Snapshot `json:"value"`
	Rollback Rollback         `json:"rollback"`
}

// ReleasedHandoff answers release.
type ReleasedHandoff struct {
	Value    sandbox.Released `json:"value"`
	Rollback Rollback         `json:"rollback"`
}

// ExecuteResult is the result of execute, after its out and err frames. Exactly
// one of the three causes holds.
type ExecuteResult struct {
	ExitCode   *int64            `json:"exit_code,omitzero"`
	Signal     string            `json:"signal,omitzero"`
	TimedOut   bool              `json:"timed_out,omitzero"`
	StartedAt  sandbox.Timestamp `json:"started_at"`
	FinishedAt sandbox.Timestamp `json:"finished_at"`
}

// FileResult is the result of read_file, after its data.
type FileResult struct {
	Size   int64          `json:"size"`
	Digest sandbox.Digest `json:"digest"`
}

// ItemStatus says whether a file of a batch was read.
type ItemStatus string

// The two statuses.
const (
	ItemOK      ItemStatus = "ok"
	ItemRefused ItemStatus = "refused"
)

// FileItem ends one file of read_files, after its data: items come in the order
// of the request, none left out. A file that was read has its size and digest,
// a refused one its reason and no data.
type FileItem struct {
	Index  int64           `json:"index"`
	Status ItemStatus      `json:"status"`
	Size   *int64          `json:"size,omitzero"`
	Digest sandbox.Digest  `json:"digest,omitzero"`
	Reason sandbox.Refusal `json:"reason,omitzero"`
}

// FilesResult is the result of read_files: how many items, how many bytes of
// data in all.
type FilesResult struct {
	Count      int64 `json:"count"`
	TotalBytes int64 `json:"total_bytes"`
}

// DirPage is one item of list_dir: at most 1,000 entries.
type DirPage struct {
	Entries []sandbox.DirEntry `json:"entries"`
}

// ProjectPage is one item of list_project_dir.
type ProjectPage struct {
	Entries []sandbox.Leaf `json:"entries"`
}

// ListResult is the result of list_dir: how many entries there were in all.
type ListResult struct {
	Count int64 `json:"count"`
}

// ProjectResult is the result of list_project_dir.
type ProjectResult struct {
	Count    int64 `json:"count"`
	Complete bool  `json:"complete"`
}

// CleanupResult answers cleanup.
type CleanupResult sandbox.Swept

// RollbackRequest is the request of rollback. Member is the endpoint that was
// called under the id.
type RollbackRequest struct {
	OperationID OperationID `json:"operation_id"`
	Member      Endpoint    `json:"member"`
}

// Settled answers rollback: {"settled": true}.
type Settled struct {
	Settled bool `json:"settled"`
}

// OperationRequest is the request of operation.
type OperationRequest struct {
	OperationID OperationID `json:"operation_id"`
	WaitMS      int64       `json:"wait_ms"`
}

// Running is the body of a 202: the operation goes on, ask again.
type Running struct {
	OperationID OperationID `json:"operation_id"`
	State       string      `json:"state"` // "running"
}

func (h InstanceHandoff) form() error { return within("rollback", h.Rollback.form()) }
func (h SnapshotHandoff) form() error { return within("rollback", h.Rollback.form()) }
func (h ReleasedHandoff) form() error { return within("rollback", h.Rollback.form()) }
func (r Rollback) form() error        { return operationID("operation_id", r.OperationID) }
func (ExecuteResult) form() error     { return nil }
func (CleanupResult) form() error     { return nil }

func (r FileResult) form() error { return first(count("size", r.Size), digest("digest", r.Digest)) }

func (i FileItem) form() error {
	if err := count("index", i.Index); err != nil {
		return err
	}
	switch i.Status {
	case ItemOK:
		if i.Size == nil || i.Reason != "" {
			return refuse("size", "present, without a reason")
		}
		return first(count("size", *i.Size), digest("digest", i.Digest))
	case ItemRefused:
		if i.Size != nil || i.Digest != "" || i.Reason == "" {
			return refuse("reason", "present, without size and digest")
		}
		return nil
	}
	return refuse("status", "ok or refused")
}

func (r FilesResult) form() error {
	return first(count("count", r.Count), count("total_bytes", r.TotalBytes))
}

func (p DirPage) form() error       { return page(len(p.Entries)) }
func (p ProjectPage) form() error   { return page(len(p.Entries)) }
func (r ListResult) form() error    { return count("count", r.Count) }
func (r ProjectResult) form() error { return count("count", r.Count) }

func page(entries int) error {
	if entries > MaxPageEntries {
		return refuse("entries", "at most "+strconv.Itoa(MaxPageEntries))
	}
	return nil
}

func (r RollbackRequest) form() error {
	if t, ok := r.Member.Traits(); !ok || !t.Mutating {
		return refuse("member", "an endpoint that carries an operation id")
	}
	return operationID("operation_id", r.OperationID)
}

func (s Settled) form() error {
	if !s.Settled {
		return refuse("settled", "true")
	}
	return nil
}

func (r OperationRequest) form() error {
	return first(operationID("operation_id", r.OperationID), between("wait_ms", r.WaitMS, 0, MaxWaitMS))
}

func (r Running) form() error {
	if r.State != "running" {
		return refuse("state", "running")
	}
	return operationID("operation_id", r.OperationID)
}

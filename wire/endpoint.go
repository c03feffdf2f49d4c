package wire

import (
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// Endpoint is the last segment of a request's path: one of the eighteen
// members, or one of the eleven helpers without which they cannot be had over
// HTTP.
type Endpoint string

// The eighteen members.
const (
	Capabilities     Endpoint = "capabilities"
	Provision        Endpoint = "provision"
	WriteFile        Endpoint = "write_file"
	BeginActiveWrite Endpoint = "begin_active_write"
	Activate         Endpoint = "activate"
	Execute          Endpoint = "execute"
	ReadFile         Endpoint = "read_file"
	ReadFiles        Endpoint = "read_files"
	ListDir          Endpoint = "list_dir"
	ListProjectDir   Endpoint = "list_project_dir"
	Snapshot         Endpoint = "snapshot"
	CloneSnapshot    Endpoint = "clone_snapshot"
	Release          Endpoint = "release"
	Resume           Endpoint = "resume"
	Destroy          Endpoint = "destroy"
	DestroySnapshot  Endpoint = "destroy_snapshot"
	Cleanup          Endpoint = "cleanup"
	OpenProcess      Endpoint = "open_process"
)

// The eleven helpers.
const (
	StageActiveWrite    Endpoint = "stage_active_write"
	DispatchActiveWrite Endpoint = "dispatch_active_write"
	AbortActiveWrite    Endpoint = "abort_active_write"
	InspectActiveWrite  Endpoint = "inspect_active_write"
	ProcessStream       Endpoint = "process_stream"
	ProcessInput        Endpoint = "process_input"
	ProcessWait         Endpoint = "process_wait"
	ProcessSignal       Endpoint = "process_signal"
	ProcessDestroy      Endpoint = "process_destroy"
	RollbackOperation   Endpoint = "rollback"
	PollOperation       Endpoint = "operation"
)

// Traits say how one endpoint is spoken to.
type Traits struct {
	// Member is the contract's operation that errors of this endpoint name.
	// Rollback and operation have none: theirs is the one that the body names.
	Member         sandbox.Operation
	Mutating       bool  // carries Checkfu-Operation-Id, and is journaled under it
	Handoff        bool  // answers {value, rollback}
	Lease          bool  // carries the fencing headers
	FramedRequest  bool  // the request is frames: call, then data
	FramedResponse bool  // the response is frames
	RequestBytes   int64 // the longest request body
	ResponseBytes  int64 // the longest response body; 0: a stream without end
}

const (
	mutating = 1 << iota
	handoff
	framedRequest
	framedResponse
)

// table is in the order of the contract's operations table, helpers after.
var table = []struct {
	endpoint  Endpoint
	member    sandbox.Operation
	flags     int
	request   int64
	responses int64
}{
	{Capabilities, sandbox.OpCapabilities, 0, MaxRequestBytes, MaxResponseBytes},
	{Provision, sandbox.OpProvision, mutating | handoff, MaxRequestBytes, MaxResponseBytes},
	{WriteFile, sandbox.OpWriteFile, mutating | framedRequest, MaxFramedRequestBytes, MaxResponseBytes},
	{BeginActiveWrite, sandbox.OpBeginActiveWrite, mutating, MaxRequestBytes, MaxResponseBytes},
	{Activate, sandbox.OpActivate, mutating | handoff, MaxRequestBytes, MaxResponseBytes},
	{Execute, sandbox.OpExecute, mutating | framedRequest | framedResponse, MaxFramedRequestBytes, MaxExecuteBytes},
	{ReadFile, sandbox.OpReadFile, framedResponse, MaxRequestBytes, MaxReadFileBytes},
	{ReadFiles, sandbox.OpReadFiles, framedResponse, MaxRequestBytes, MaxReadFilesBytes},
	{ListDir, sandbox.OpListDir, framedResponse, MaxRequestBytes, MaxListingBytes},
	{ListProjectDir, sandbox.OpListProjectDir, framedResponse, MaxRequestBytes, MaxListingBytes},
	{Snapshot, sandbox.OpSnapshot, mutating | handoff, MaxRequestBytes, MaxResponseBytes},
	{CloneSnapshot, sandbox.OpCloneSnapshot, mutating | handoff, MaxRequestBytes, MaxResponseBytes},
	{Release, sandbox.OpRelease, mutating | handoff, MaxRequestBytes, MaxResponseBytes},
	{Resume, sandbox.OpResume, mutating | handoff, MaxRequestBytes, MaxResponseBytes},
	{Destroy, sandbox.OpDestroy, mutating, MaxRequestBytes, MaxResponseBytes},
	{DestroySnapshot, sandbox.OpDestroySnapshot, mutating, MaxRequestBytes, MaxResponseBytes},
	{Cleanup, sandbox.OpCleanup, mutating, MaxRequestBytes, MaxResponseBytes},
	{OpenProcess, sandbox.OpOpenProcess, mutating, MaxRequestBytes, MaxResponseBytes},
	{StageActiveWrite, sandbox.OpBeginActiveWrite, mutating | framedRequest, MaxFramedRequestBytes, MaxResponseBytes},
	{DispatchActiveWrite, sandbox.OpBeginActiveWrite, mutating, MaxRequestBytes, MaxResponseBytes},
	{AbortActiveWrite, sandbox.OpBeginActiveWrite, mutating, MaxRequestBytes, MaxResponseBytes},
	{InspectActiveWrite, sandbox.OpBeginActiveWrite, 0, MaxRequestBytes, MaxResponseBytes},
	{ProcessStream, sandbox.OpOpenProcess, framedResponse, MaxRequestBytes, 0},
	// Input is idempotent by its offset, teardown by the process id.
	{ProcessInput, sandbox.OpOpenProcess, framedRequest, MaxInputRequestBytes, MaxResponseBytes},
	{ProcessWait, sandbox.OpOpenProcess, 0, MaxRequestBytes, MaxResponseBytes},
	{ProcessSignal, sandbox.OpOpenProcess, mutating, MaxRequestBytes, MaxResponseBytes},
	{ProcessDestroy, sandbox.OpOpenProcess, 0, MaxRequestBytes, MaxResponseBytes},
	// These two name an operation in their body. The answer of operation is, at
	// last, that of the endpoint which was called under the id, frames and all.
	{RollbackOperation, "", 0, MaxRequestBytes, MaxResponseBytes},
	{PollOperation, "", 0, MaxRequestBytes, MaxExecuteBytes},
}

// Endpoints returns the eighteen members in the order of the contract's table,
// then the eleven helpers.
func Endpoints() []Endpoint {
	all := make([]Endpoint, len(table))
	for i := range table {
		all[i] = table[i].endpoint
	}
	return all
}

// Traits returns how e is spoken to; ok is false where e is none of the
// twenty-nine.
func (e Endpoint) Traits() (t Traits, ok bool) {
	for i := range table {
		if row := &table[i]; row.endpoint == e {
			return Traits{
				Member: row.member, Mutating: row.flags&mutating != 0, Handoff: row.flags&handoff != 0,
				Lease:         e != Capabilities,
				FramedRequest: row.flags&framedRequest != 0, FramedResponse: row.flags&framedResponse != 0,
				RequestBytes: row.request, ResponseBytes: row.responses,
			}, true
		}
	}
	return Traits{}, false
}

const prefix = "/v1/"

// Path is the path of e below the base URL of an enrollment: "/v1/provision".
// The method is POST; capabilities also answers GET, without a body.
func (e Endpoint) Path() string { return prefix + string(e) }

// ParsePath is the inverse of Path. It takes the exact path only: no trailing
// slash, no query, no escape, no other case.
func ParsePath(path string) (Endpoint, bool) {
	name, ok := strings.CutPrefix(path, prefix)
	if !ok {
		return "", false
	}
	e := Endpoint(name)
	_, ok = e.Traits()
	return e, ok
}

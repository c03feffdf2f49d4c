package authorkit

import (
	"reflect"

	"github.com/checkfu/checkfu/wire"
)

// Message is one kind of JSON message of the wire.
type Message struct {
	Name   string // as in schema/Name.json
	Type   reflect.Type
	Decode func(data []byte) (wire.Message, error)
}

func of[M wire.Message]() Message {
	t := reflect.TypeFor[M]()
	return Message{t.Name(), t, func(data []byte) (wire.Message, error) {
		m, err := wire.Decode[M](data)
		return m, err
	}}
}

// ErrorName is the name of the one message that no Go type has: an error body.
const ErrorName = "Error"

// Messages returns every kind but the error body: requests and answers in the
// order of the endpoints, frames after them.
func Messages() []Message {
	return []Message{
		of[wire.Empty](), of[wire.CapabilitiesResponse](), of[wire.ProvisionRequest](), of[wire.InstanceHandoff](),
		of[wire.FileCall](), of[wire.BeginActiveWriteRequest](), of[wire.Journal](), of[wire.InstanceRequest](),
		of[wire.ExecuteCall](), of[wire.ExecuteResult](), of[wire.ReadFileRequest](), of[wire.FileResult](),
		of[wire.ReadFilesRequest](), of[wire.FileItem](), of[wire.FilesResult](), of[wire.ListRequest](),
		of[wire.DirPage](), of[wire.ListResult](), of[wire.ProjectPage](), of[wire.ProjectResult](),
		of[wire.SnapshotRequest](), of[wire.SnapshotHandoff](), of[wire.CloneRequest](), of[wire.ReleaseRequest](),
		of[wire.ReleasedHandoff](), of[wire.ResumeRequest](), of[wire.DestroySnapshotRequest](), of[wire.CleanupRequest](),
		of[wire.CleanupResult](), of[wire.OpenProcessRequest](), of[wire.Opened](), of[wire.StageCall](),
		of[wire.TransactionRequest](), of[wire.StreamRequest](), of[wire.InputCall](), of[wire.Window](),
		of[wire.WaitRequest](), of[wire.Waited](), of[wire.SignalRequest](), of[wire.Signaled](), of[wire.ProcessRequest](),
		of[wire.RollbackRequest](), of[wire.Settled](), of[wire.OperationRequest](), of[wire.Running](),
		of[wire.OutEnd](), of[wire.ErrEnd](), of[wire.Exit](), of[wire.Detach](), of[wire.Truncated](),
	}
}

// MessageNamed finds one of Messages.
func MessageNamed(name string) (Message, bool) {
	for _, m := range Messages() {
		if m.Name == name {
			return m, true
		}
	}
	return Message{}, false
}

// Speech is which messages one endpoint is spoken to with.
type Speech struct {
	Request string // the JSON request, or the call of a framed one
	Data    string // what the data frames of a framed request hold
	Answer  string // the JSON answer, or the result of a framed one
	Item    string // the item frames of a framed answer
	Bytes   string // what the other frames of a framed answer hold
}

var speeches = map[wire.Endpoint]Speech{
	wire.Capabilities:        {Request: "Empty", Answer: "CapabilitiesResponse"},
	wire.Provision:           {Request: "ProvisionRequest", Answer: "InstanceHandoff"},
	wire.WriteFile:           {Request: "FileCall", Data: "the content, of exactly size bytes", Answer: "Empty"},
	wire.BeginActiveWrite:    {Request: "BeginActiveWriteRequest", Answer: "Journal"},
	wire.Activate:            {Request: "InstanceRequest", Answer: "InstanceHandoff"},
	wire.Execute:             {Request: "ExecuteCall", Data: "standard input, all of it", Answer: "ExecuteResult", Bytes: "out and err frames: the two streams, each from offset 0"},
	wire.ReadFile:            {Request: "ReadFileRequest", Answer: "FileResult", Bytes: "data frames: the content"},
	wire.ReadFiles:           {Request: "ReadFilesRequest", Answer: "FilesResult", Item: "FileItem", Bytes: "data frames: the content of the file whose item follows"},
	wire.ListDir:             {Request: "ListRequest", Answer: "ListResult", Item: "DirPage"},
	wire.ListProjectDir:      {Request: "ListRequest", Answer: "ProjectResult", Item: "ProjectPage"},
	wire.Snapshot:            {Request: "SnapshotRequest", Answer: "SnapshotHandoff"},
	wire.CloneSnapshot:       {Request: "CloneRequest", Answer: "SnapshotHandoff"},
	wire.Release:             {Request: "ReleaseRequest", Answer: "ReleasedHandoff"},
	wire.Resume:              {Request: "ResumeRequest", Answer: "InstanceHandoff"},
	wire.Destroy:             {Request: "InstanceRequest", Answer: "Empty"},
	wire.DestroySnapshot:     {Request: "DestroySnapshotRequest", Answer: "Empty"},
	wire.Cleanup:             {Request: "CleanupRequest", Answer: "CleanupResult"},
	wire.OpenProcess:         {Request: "OpenProcessRequest", Answer: "Opened"},
	wire.StageActiveWrite:    {Request: "StageCall", Data: "the content, of exactly size bytes", Answer: "Journal"},
	wire.DispatchActiveWrite: {Request: "TransactionRequest", Answer: "Journal"},
	wire.AbortActiveWrite:    {Request: "TransactionRequest", Answer: "Journal"},
	wire.InspectActiveWrite:  {Request: "TransactionRequest", Answer: "Journal"},
	wire.ProcessStream:       {Request: "StreamRequest", Bytes: "open, then out, err, window, ping, out_end, err_end, exit; at last detach or truncated"},
	wire.ProcessInput:        {Request: "InputCall", Data: "the bytes of standard input, at most 256 KiB", Answer: "Window"},
	wire.ProcessWait:         {Request: "WaitRequest", Answer: "Waited"},
	wire.ProcessSignal:       {Request: "SignalRequest", Answer: "Signaled"},
	wire.ProcessDestroy:      {Request: "ProcessRequest", Answer: "Empty"},
	wire.RollbackOperation:   {Request: "RollbackRequest", Answer: "Settled"},
	wire.PollOperation:       {Request: "OperationRequest", Bytes: "the answer of the endpoint that was called under the id, unchanged"},
}

// SpeechOf returns the messages of e, which is one of the twenty-nine.
func SpeechOf(e wire.Endpoint) Speech { return speeches[e] }

// frameNames are the names of the frame types, and the message that is the
// payload of those which are JSON of one kind.
var frameNames = map[wire.Type]struct{ name, message string }{
	wire.TypeCall: {"call", ""}, wire.TypeData: {"data", ""}, wire.TypeItem: {"item", ""}, wire.TypeError: {"error", ErrorName},
	wire.TypeOpen: {"open", "Opened"}, wire.TypeOut: {"out", ""}, wire.TypeErr: {"err", ""}, wire.TypeOutEnd: {"out_end", "OutEnd"},
	wire.TypeErrEnd: {"err_end", "ErrEnd"}, wire.TypeWindow: {"window", "Window"}, wire.TypeExit: {"exit", "Exit"},
	wire.TypeDetach: {"detach", "Detach"}, wire.TypeTruncated: {"truncated", "Truncated"}, wire.TypePing: {"ping", ""},
}

// FrameName is the name of a frame type; type 1 is call in a request and result
// in a response.
func FrameName(t wire.Type, response bool) string {
	if t == wire.TypeCall && response {
		return "result"
	}
	return frameNames[t].name
}

package authorkit

import (
	"bytes"
	"encoding/hex"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// call is one exchange: what is asked, and what comes back.
type call struct {
	name, says string
	endpoint   wire.Endpoint
	request    wire.Message
	data       []byte // of a framed request
	answer     wire.Message
	frames     func(*wire.Writer) error // of a framed response
	failure    error                    // instead of either
	status     int                      // 202
	method     string                   // GET
}

func exchanges() (all []Scenario) {
	for _, c := range calls() {
		all = append(all, Scenario{Kind: "exchange", Name: c.name, Says: c.says, Endpoint: string(c.endpoint), Request: c.ask(), Response: c.reply()})
	}
	return all
}

func (c call) ask() *Half {
	t, _ := c.endpoint.Traits()
	half := &Half{Method: "POST", Path: c.endpoint.Path(), Schema: nameOfMessage(c.request)}
	header := map[string][]string{}
	wire.RequestHeader{Token: token, Lease: wire.Lease{ID: "lease-1", Epoch: 7}, Operation: operationID,
		Deadline: 2 * time.Minute, Wait: wire.DefaultWaitMS * time.Millisecond}.Set(header, c.endpoint)
	var body []byte
	switch {
	case c.method == "GET":
		half.Method, half.Schema = c.method, ""
	case t.FramedRequest:
		b, err := wire.NewBody(c.request, c.data)
		if err != nil {
			panic("authorkit: " + err.Error())
		}
		body, _ = io.ReadAll(b.Reader())
		half.Frames = takeApart(body, false)
		header["Content-Type"] = []string{wire.MediaFrames}
	default:
		body = encode(c.request)
		half.JSON = literal(body)
		header["Content-Type"] = []string{wire.MediaJSON}
	}
	if c.method != "GET" {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	header["Accept-Encoding"] = []string{"identity"}
	half.Headers, half.Body, half.Digest = headerList(header), hex.EncodeToString(body), wire.RequestDigest(body)
	return half
}

func (c call) reply() *Half {
	half := &Half{Status: 200}
	framed := c.frames != nil
	var body []byte
	switch {
	case c.failure != nil:
		data, status, err := wire.EncodeError(c.failure)
		if err != nil {
			panic("authorkit: " + err.Error())
		}
		half.Status, half.Schema, half.JSON, body = status, ErrorName, literal(data), data
	case framed:
		var b bytes.Buffer
		if err := c.frames(wire.NewWriter(&b)); err != nil {
			panic("authorkit: " + err.Error())
		}
		body = b.Bytes()
		half.Frames = takeApart(body, true)
	default:
		body = encode(c.answer)
		half.Schema, half.JSON = nameOfMessage(c.answer), literal(body)
	}
	if c.status != 0 {
		half.Status = c.status
	}
	header := map[string][]string{}
	wire.ResponseHeader{Capabilities: capabilitiesDigest(), Boot: bootID}.Set(header, framed)
	half.Headers, half.Body, half.Digest = headerList(header), hex.EncodeToString(body), digest(body)
	return half
}

func headerList(header map[string][]string) (list [][2]string) {
	for name, values := range header {
		list = append(list, [2]string{name, values[0]})
	}
	slices.SortFunc(list, func(a, b [2]string) int {
		if a[0] < b[0] {
			return -1
		}
		return 1
	})
	return list
}

// does runs steps until one fails.
func does(steps ...func(*wire.Writer) error) func(*wire.Writer) error {
	return func(w *wire.Writer) error {
		for _, step := range steps {
			if err := step(w); err != nil {
				return err
			}
		}
		return nil
	}
}

func data(text string) func(*wire.Writer) error {
	return func(w *wire.Writer) error { return w.Data([]byte(text)) }
}

func out(offset int64, text string) func(*wire.Writer) error {
	return func(w *wire.Writer) error { return w.Output(wire.TypeOut, offset, []byte(text)) }
}

func stderr(offset int64, text string) func(*wire.Writer) error {
	return func(w *wire.Writer) error { return w.Output(wire.TypeErr, offset, []byte(text)) }
}

func says(t wire.Type, m wire.Message) func(*wire.Writer) error {
	return func(w *wire.Writer) error { return w.Message(t, m) }
}

func result(m wire.Message) func(*wire.Writer) error { return says(wire.TypeResult, m) }

func fails(err error) func(*wire.Writer) error {
	return func(w *wire.Writer) error { return w.Error(err) }
}

func calls() []call {
	id := wire.InstanceRequest{InstanceID: instanceID}
	transaction := wire.TransactionRequest{InstanceID: instanceID, TransactionID: operationID}
	list := wire.ListRequest{InstanceID: instanceID, Root: "/workspace/project", MaxEntries: 1000}
	file := wire.ReadFileRequest{InstanceID: instanceID, Path: "/workspace/project/a.txt", AllowedRoot: "/workspace/project", MaximumBytes: 10}
	d := digest([]byte(hello))
	released := snapshot()
	exit := sandbox.Exited(0)
	provisioned := wire.InstanceHandoff{Value: instance(sandbox.StateProvisioning), Rollback: rollback()}
	active := wire.InstanceHandoff{Value: instance(sandbox.StateActive), Rollback: rollback()}
	stream := wire.StreamRequest{InstanceID: instanceID, ProcessID: processID, AttachID: attachID, HeartbeatMS: wire.DefaultHeartbeatMS}
	return []call{
		{name: "capabilities", says: "the envelope and what of it can be had over this wire", endpoint: wire.Capabilities, request: wire.Empty{}, answer: capabilities()},
		{name: "capabilities-get", says: "the same by GET, for a person with curl", endpoint: wire.Capabilities, request: wire.Empty{}, method: "GET", answer: capabilities()},
		{name: "provision", says: "an allocation, and by which id it is undone", endpoint: wire.Provision, request: wire.ProvisionRequest(provision()), answer: provisioned},
		{name: "provision-202", says: "the answer takes longer than the hold", endpoint: wire.Provision, request: wire.ProvisionRequest(provision()), answer: wire.Running{OperationID: operationID, State: "running"}, status: 202},
		{name: "operation-done", says: "and is fetched by the id, byte for byte what provision would have answered", endpoint: wire.PollOperation, request: wire.OperationRequest{OperationID: operationID, WaitMS: wire.DefaultWaitMS}, answer: provisioned},
		{name: "operation-running", says: "or is still not there", endpoint: wire.PollOperation, request: wire.OperationRequest{OperationID: operationID, WaitMS: 0}, answer: wire.Running{OperationID: operationID, State: "running"}, status: 202},
		{name: "operation-unknown", says: "an id that nobody sent", endpoint: wire.PollOperation, request: wire.OperationRequest{OperationID: rolledBack, WaitMS: 0}, failure: &wire.Error{Tag: wire.TagOperationUnknown, Operation: "operation"}},
		{name: "provision-refused", says: "a profile that cannot be met", endpoint: wire.Provision, request: wire.ProvisionRequest(provision()), failure: sandbox.Unavailable(sandbox.OpProvision, sandbox.RequireTier, "microvm", "container")},
		{name: "write-file", says: "a file: the call, then its content", endpoint: wire.WriteFile, request: fileCall(), data: []byte(hello), answer: wire.Empty{}},
		{name: "write-file-empty", says: "no content is no data frame", endpoint: wire.WriteFile, request: wire.FileCall{InstanceID: instanceID, Path: "/workspace/repo/empty", Digest: digest(nil)}, answer: wire.Empty{}},
		{name: "begin-active-write", says: "a transaction", endpoint: wire.BeginActiveWrite, request: wire.BeginActiveWriteRequest{InstanceID: instanceID, Targets: []string{"/workspace/project/a.txt"}}, answer: wire.Journal{Journal: sandbox.JournalOpen}},
		{name: "stage-active-write", says: "one target's content", endpoint: wire.StageActiveWrite, request: stageCall(), data: []byte(hello), answer: wire.Journal{Journal: sandbox.JournalOpen}},
		{name: "dispatch-active-write", says: "published at once", endpoint: wire.DispatchActiveWrite, request: transaction, answer: wire.Journal{Journal: sandbox.JournalCommitted}},
		{name: "abort-active-write", says: "dropped", endpoint: wire.AbortActiveWrite, request: transaction, answer: wire.Journal{Journal: sandbox.JournalRolledBack}},
		{name: "abort-active-write-late", says: "what was dispatched cannot be dropped", endpoint: wire.AbortActiveWrite, request: transaction, failure: sandbox.Conflict(sandbox.OpBeginActiveWrite, "open", "dispatched")},
		{name: "inspect-active-write", says: "the durable state", endpoint: wire.InspectActiveWrite, request: transaction, answer: wire.Journal{Journal: sandbox.JournalDispatched}},
		{name: "activate", says: "runnable", endpoint: wire.Activate, request: id, answer: active},
		{name: "execute", says: "the two streams, each from offset 0, then the result", endpoint: wire.Execute, request: wire.ExecuteCall{InstanceID: instanceID, Command: command()}, data: []byte(hello),
			frames: does(out(0, hello), stderr(0, "w\n"), result(executed()))},
		{name: "execute-late-failure", says: "a failure after the first frame is the error frame; the status was 200", endpoint: wire.Execute, request: wire.ExecuteCall{InstanceID: instanceID, Command: command()},
			frames: does(out(0, hello), fails(sandbox.OverLimit(sandbox.StreamStdout, 1<<20)))},
		{name: "execute-not-found", says: "a failure before the first frame is a status", endpoint: wire.Execute, request: wire.ExecuteCall{InstanceID: instanceID, Command: command()}, failure: sandbox.NoInstance(sandbox.OpExecute, instanceID)},
		{name: "read-file", says: "the content, then its size and digest", endpoint: wire.ReadFile, request: file, frames: does(data(hello), result(wire.FileResult{Size: 6, Digest: d}))},
		{name: "read-file-absent", says: "there is none", endpoint: wire.ReadFile, request: file, failure: sandbox.FailedAt(sandbox.OpReadFile, file.Path, sandbox.ReasonNotFound, nil)},
		{name: "read-files", says: "in the order of the request, one refused", endpoint: wire.ReadFiles, request: readFiles(),
			frames: does(data("hel"), data("lo\n"), says(wire.TypeItem, wire.FileItem{Status: wire.ItemOK, Size: ref(int64(6)), Digest: d}),
				says(wire.TypeItem, wire.FileItem{Index: 1, Status: wire.ItemRefused, Reason: sandbox.RefusedNotFound}), result(wire.FilesResult{Count: 2, TotalBytes: 6}))},
		{name: "list-dir", says: "pages, then the count", endpoint: wire.ListDir, request: list,
			frames: does(says(wire.TypeItem, wire.DirPage{Entries: []sandbox.DirEntry{{Path: "a.txt", Size: 6, Digest: d}}}),
				says(wire.TypeItem, wire.DirPage{Entries: []sandbox.DirEntry{{Path: "b.txt", Size: 6, Digest: d}}}), result(wire.ListResult{Count: 2}))},
		{name: "list-dir-empty", says: "no page at all", endpoint: wire.ListDir, request: list, frames: does(result(wire.ListResult{}))},
		{name: "list-dir-absent", says: "a member that is not there", endpoint: wire.ListDir, request: list, failure: sandbox.Conflict(sandbox.OpListDir, "", sandbox.ActualListDirUnsupported)},
		{name: "list-project-dir", says: "every leaf", endpoint: wire.ListProjectDir, request: list,
			frames: does(says(wire.TypeItem, wire.ProjectPage{Entries: []sandbox.Leaf{{Path: "a.txt", Type: sandbox.LeafRegular, Size: 6, Digest: d}, {Path: "l", Type: sandbox.LeafSymlink, Target: "a.txt"}}}), result(wire.ProjectResult{Count: 2, Complete: true}))},
		{name: "snapshot", says: "captured", endpoint: wire.Snapshot, request: wire.SnapshotRequest{InstanceID: instanceID, ExpiresAt: retained}, answer: wire.SnapshotHandoff{Value: snapshot(), Rollback: rollback()}},
		{name: "snapshot-forbidden", says: "zero retention", endpoint: wire.Snapshot, request: wire.SnapshotRequest{InstanceID: instanceID, ExpiresAt: retained}, failure: sandbox.Forbidden(sandbox.OpSnapshot, instanceID)},
		{name: "clone-snapshot", says: "copied", endpoint: wire.CloneSnapshot, request: wire.CloneRequest(cloneRequest()), answer: wire.SnapshotHandoff{Value: clone(), Rollback: rollback()}},
		{name: "release", says: "a durable session", endpoint: wire.Release, request: wire.ReleaseRequest{InstanceID: instanceID, ExpiresAt: retained}, answer: wire.ReleasedHandoff{Value: sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &released}, Rollback: rollback()}},
		{name: "release-zdr", says: "zero retention", endpoint: wire.Release, request: wire.ReleaseRequest{InstanceID: instanceID}, answer: wire.ReleasedHandoff{Value: sandbox.Released{Disposition: sandbox.DispositionDestroyed}, Rollback: rollback()}},
		{name: "resume", says: "a fresh instance", endpoint: wire.Resume, request: wire.ResumeRequest{Request: provision(), Snapshot: snapshot()}, answer: active},
		{name: "destroy", says: "gone, also when nobody knew it", endpoint: wire.Destroy, request: id, answer: wire.Empty{}},
		{name: "destroy-snapshot", says: "likewise", endpoint: wire.DestroySnapshot, request: wire.DestroySnapshotRequest{SnapshotID: snapshotID}, answer: wire.Empty{}},
		{name: "cleanup", says: "two lists", endpoint: wire.Cleanup, request: wire.CleanupRequest{Now: finished, OrphanedBefore: created, PinnedSnapshots: []sandbox.SnapshotID{snapshotID}}, answer: wire.CleanupResult{InstanceIDs: []sandbox.InstanceID{"inst-0"}, SnapshotIDs: []sandbox.SnapshotID{}}},
		{name: "open-process", says: "a live process, with evidence", endpoint: wire.OpenProcess, request: wire.OpenProcessRequest{InstanceID: instanceID, ProcessID: processID, Process: live()}, answer: opened()},
		{name: "open-process-second", says: "one at a time", endpoint: wire.OpenProcess, request: wire.OpenProcessRequest{InstanceID: instanceID, ProcessID: processID, Process: live()}, failure: sandbox.Conflict(sandbox.OpOpenProcess, "no_process", sandbox.ActualProcessAlreadyOpen)},
		{name: "process-stream", says: "a whole life in one attachment", endpoint: wire.ProcessStream, request: stream,
			frames: does(says(wire.TypeOpen, opened()), out(0, hello), stderr(0, "w\n"), (*wire.Writer).Ping, says(wire.TypeWindow, wire.Window{InputOffset: 6, InputCredit: wire.DefaultInputBufferBytes}),
				says(wire.TypeOutEnd, wire.OutEnd{Digest: d, Offset: 6}), says(wire.TypeErrEnd, wire.ErrEnd{Offset: 2}), says(wire.TypeExit, wire.Exit(exit)))},
		{name: "process-stream-poll", says: "a poll that had something to say", endpoint: wire.ProcessStream, request: wire.StreamRequest{InstanceID: instanceID, ProcessID: processID, AttachID: attachID, Cursor: 0, WaitMS: wire.DefaultWaitMS, HeartbeatMS: wire.DefaultHeartbeatMS},
			frames: does(says(wire.TypeOpen, opened()), out(0, hello), says(wire.TypeDetach, wire.Detach{Reason: wire.DetachPollEnd}))},
		{name: "process-stream-truncated", says: "the reader was away for too long", endpoint: wire.ProcessStream, request: stream, failure: &wire.Error{Tag: wire.TagOutputTruncated, Operation: "process_stream", LowWater: 11611392}},
		{name: "process-input", says: "bytes, then the half-close", endpoint: wire.ProcessInput, request: wire.InputCall{InstanceID: instanceID, ProcessID: processID, End: true}, data: []byte(hello), answer: wire.Window{InputOffset: 6, InputCredit: wire.DefaultInputBufferBytes}},
		{name: "process-input-full", says: "nothing of it was taken", endpoint: wire.ProcessInput, request: wire.InputCall{InstanceID: instanceID, ProcessID: processID, Offset: 65536}, data: []byte(hello), failure: &wire.Error{Tag: wire.TagInputBufferFull, Operation: "process_input", InputOffset: 65536}},
		{name: "process-wait", says: "the exit", endpoint: wire.ProcessWait, request: wire.WaitRequest{InstanceID: instanceID, ProcessID: processID, WaitMS: wire.MaxWaitMS}, answer: wire.Waited{Exit: &exit}},
		{name: "process-wait-running", says: "not within the wait", endpoint: wire.ProcessWait, request: wire.WaitRequest{InstanceID: instanceID, ProcessID: processID, WaitMS: 0}, answer: wire.Waited{Running: true}},
		{name: "process-signal", says: "delivered", endpoint: wire.ProcessSignal, request: wire.SignalRequest{InstanceID: instanceID, ProcessID: processID, Signal: sandbox.SignalInterrupt}, answer: wire.Signaled{Delivered: true}},
		{name: "process-destroy", says: "killed with its whole tree", endpoint: wire.ProcessDestroy, request: wire.ProcessRequest{InstanceID: instanceID, ProcessID: processID}, answer: wire.Empty{}},
		{name: "rollback", says: "undone by the id alone", endpoint: wire.RollbackOperation, request: wire.RollbackRequest{OperationID: operationID, Member: wire.Provision}, answer: wire.Settled{Settled: true}},
		{name: "rollback-owned", says: "too late: the allocation was used", endpoint: wire.RollbackOperation, request: wire.RollbackRequest{OperationID: operationID, Member: wire.Provision}, failure: sandbox.Conflict("provision_rollback", "an allocation that nobody named yet", "owned")},
	}
}

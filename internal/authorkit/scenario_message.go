package authorkit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// example is one message that is right.
type example struct {
	name, says string
	value      wire.Message
}

func examples() []example {
	zdr := provision()
	zdr.Profile.RetentionMode = sandbox.RetentionEphemeralZDR
	zdr.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}
	zdr.Profile.Packages = nil
	zdr.Mounts = nil
	empty := provision()
	empty.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}}
	released := snapshot()
	exit := sandbox.Exited(3)
	digestOfHello := digest([]byte(hello))
	return []example{
		{"empty", "nothing to say", wire.Empty{}},
		{"capabilities", "a provider with every member", capabilities()},
		{"capabilities-least", "a provider with the required members only: what is false or empty and optional is left out", leastCapabilities()},
		{"provision", "a durable session with an allowlist and two mounts", wire.ProvisionRequest(provision())},
		{"provision-zdr", "zero retention, no network, no mounts, no packages: empty lists are [], never absent", wire.ProvisionRequest(zdr)},
		{"provision-empty-allowlist", "an allowlist that names nothing is a list all the same", wire.ProvisionRequest(empty)},
		{"instance-provisioning", "the answer to provision", wire.InstanceHandoff{Value: instance(sandbox.StateProvisioning), Rollback: rollback()}},
		{"instance-active", "the answer to activate and resume", wire.InstanceHandoff{Value: instance(sandbox.StateActive), Rollback: rollback()}},
		{"write-file", "a plain file", fileCall()},
		{"write-file-executable", "executable is left out unless it is true", wire.FileCall{InstanceID: instanceID, Path: "/workspace/repo/run", Size: 6, Digest: digestOfHello, Executable: true}},
		{"write-file-symlink", "a symbolic link has a target and no content", wire.FileCall{InstanceID: instanceID, Path: "/workspace/repo/link", Digest: digest(nil), Symlink: "../README"}},
		{"write-file-bytes", "a name that is not UTF-8 is escaped", wire.FileCall{InstanceID: instanceID, Path: "/workspace/repo/caf\xe9", Size: 6, Digest: digestOfHello}},
		{"begin-active-write", "the targets; the operation id of this call is the transaction's", wire.BeginActiveWriteRequest{InstanceID: instanceID, Targets: []string{"/workspace/project/a.txt", "/workspace/project/sub/b.txt"}}},
		{"stage-active-write", "one target's content", stageCall()},
		{"transaction", "dispatch, abort and inspect name the transaction", wire.TransactionRequest{InstanceID: instanceID, TransactionID: operationID}},
		{"journal-open", "begun", wire.Journal{Journal: sandbox.JournalOpen}},
		{"journal-dispatched", "dispatched", wire.Journal{Journal: sandbox.JournalDispatched}},
		{"journal-committed", "committed", wire.Journal{Journal: sandbox.JournalCommitted}},
		{"journal-rolled-back", "rolled back", wire.Journal{Journal: sandbox.JournalRolledBack}},
		{"instance", "activate and destroy name the instance", wire.InstanceRequest{InstanceID: instanceID}},
		{"execute", "one bounded command", wire.ExecuteCall{InstanceID: instanceID, Command: command()}},
		{"execute-bytes", "arguments and values that are not UTF-8", wire.ExecuteCall{InstanceID: instanceID, Command: sandbox.Command{
			Executable: "cat", Arguments: []string{"\xff\xfe", "é\xc3"}, WorkingDirectory: "/", Environment: map[string]string{"RAW": "\x80"}, TimeoutSeconds: 1, OutputLimitBytes: 1}}},
		{"executed", "an exit by code", executed()},
		{"executed-signal", "an exit by signal", wire.ExecuteResult{Signal: "SIGKILL", StartedAt: started, FinishedAt: finished}},
		{"executed-timeout", "the provider ended it at its timeout", wire.ExecuteResult{TimedOut: true, StartedAt: started, FinishedAt: started}},
		{"read-file", "one file below a root", wire.ReadFileRequest{InstanceID: instanceID, Path: "/workspace/project/a.txt", AllowedRoot: "/workspace/project", MaximumBytes: sandbox.MaxFileBytes}},
		{"read-file-result", "behind its data", wire.FileResult{Size: 6, Digest: digestOfHello}},
		{"read-files", "a batch; the aggregate is the sum of the bounds", readFiles()},
		{"read-files-ok", "ends one file, behind its data", wire.FileItem{Index: 0, Status: wire.ItemOK, Size: ref(int64(6)), Digest: digestOfHello}},
		{"read-files-empty", "a file of no bytes has its size all the same", wire.FileItem{Index: 2, Status: wire.ItemOK, Size: ref(int64(0)), Digest: digest(nil)}},
		{"read-files-refused", "not_found is an answer, not an error", wire.FileItem{Index: 1, Status: wire.ItemRefused, Reason: sandbox.RefusedNotFound}},
		{"read-files-result", "every item counts", wire.FilesResult{Count: 2, TotalBytes: 6}},
		{"list", "list_dir and list_project_dir", wire.ListRequest{InstanceID: instanceID, Root: "/workspace/project", MaxEntries: sandbox.MaxListEntries}},
		{"list-dir-page", "regular files, ascending by path bytes", wire.DirPage{Entries: []sandbox.DirEntry{{Path: "a.txt", Size: 6, Digest: digestOfHello}, {Path: "sub/\xff", Size: 0, Digest: digest(nil)}}}},
		{"list-dir-result", "how many in all", wire.ListResult{Count: 2}},
		{"list-project-dir-page", "every leaf by its type", wire.ProjectPage{Entries: []sandbox.Leaf{
			{Path: "a.txt", Type: sandbox.LeafRegular, Size: 6, Digest: digestOfHello, Executable: true}, {Path: "device", Type: sandbox.LeafDevice},
			{Path: "empty", Type: sandbox.LeafRegular, Digest: digest(nil)}, {Path: "fifo", Type: sandbox.LeafFIFO, GuestObserved: true},
			{Path: "link", Type: sandbox.LeafSymlink, Target: "../\xff"}, {Path: "other", Type: sandbox.LeafOther},
			{Path: "socket", Type: sandbox.LeafSocket}, {Path: "submodule", Type: sandbox.LeafSubmodule}}}},
		{"list-project-dir-result", "complete, or it is a failure", wire.ProjectResult{Count: 8, Complete: true}},
		{"snapshot", "with the deadline of its retention", wire.SnapshotRequest{InstanceID: instanceID, ExpiresAt: retained}},
		{"snapshot-answer", "a snapshot", wire.SnapshotHandoff{Value: snapshot(), Rollback: rollback()}},
		{"clone-snapshot", "into another session", wire.CloneRequest(cloneRequest())},
		{"clone-answer", "another id, the source's deadline byte for byte", wire.SnapshotHandoff{Value: clone(), Rollback: rollback()}},
		{"release-durable", "with the deadline of the settled snapshot", wire.ReleaseRequest{InstanceID: instanceID, ExpiresAt: retained}},
		{"release-zdr", "without one", wire.ReleaseRequest{InstanceID: instanceID}},
		{"released", "a durable release settles a snapshot", wire.ReleasedHandoff{Value: sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &released}, Rollback: rollback()}},
		{"destroyed", "zero retention leaves nothing", wire.ReleasedHandoff{Value: sandbox.Released{Disposition: sandbox.DispositionDestroyed}, Rollback: rollback()}},
		{"resume", "a fresh instance from a snapshot", wire.ResumeRequest{Request: provision(), Snapshot: snapshot()}},
		{"destroy-snapshot", "by its id", wire.DestroySnapshotRequest{SnapshotID: snapshotID}},
		{"cleanup", "pins exempt a snapshot from the cutoff", wire.CleanupRequest{Now: finished, OrphanedBefore: created, PinnedSnapshots: []sandbox.SnapshotID{snapshotID}}},
		{"cleanup-no-pins", "no pins are left out", wire.CleanupRequest{Now: finished, OrphanedBefore: created}},
		{"cleaned", "what was destroyed", wire.CleanupResult{InstanceIDs: []sandbox.InstanceID{"inst-0"}, SnapshotIDs: []sandbox.SnapshotID{}}},
		{"open-process", "a live process", wire.OpenProcessRequest{InstanceID: instanceID, ProcessID: processID, Process: live()}},
		{"opened", "with the provider's evidence; also the open frame", opened()},
		{"process-stream-follow", "wait_ms 0 follows", wire.StreamRequest{InstanceID: instanceID, ProcessID: processID, AttachID: attachID, HeartbeatMS: wire.DefaultHeartbeatMS}},
		{"process-stream-poll", "more is a poll", wire.StreamRequest{InstanceID: instanceID, ProcessID: processID, AttachID: attachID, Cursor: 6, WaitMS: wire.DefaultWaitMS, HeartbeatMS: wire.DefaultHeartbeatMS}},
		{"process-input", "bytes at an offset", wire.InputCall{InstanceID: instanceID, ProcessID: processID}},
		{"process-input-end", "the half-close", wire.InputCall{InstanceID: instanceID, ProcessID: processID, Offset: 6, End: true}},
		{"window", "what was taken, and how much more would be", wire.Window{InputOffset: 6, InputCredit: wire.DefaultInputBufferBytes}},
		{"process-wait", "waits", wire.WaitRequest{InstanceID: instanceID, ProcessID: processID, WaitMS: wire.MaxWaitMS}},
		{"waited-exit", "it ended", wire.Waited{Exit: &exit}},
		{"waited-running", "it runs", wire.Waited{Running: true}},
		{"process-signal", "one of three signals", wire.SignalRequest{InstanceID: instanceID, ProcessID: processID, Signal: sandbox.SignalTerminate}},
		{"signaled", "delivered", wire.Signaled{Delivered: true}},
		{"signaled-late", "after the exit nothing is", wire.Signaled{}},
		{"process-destroy", "names the process", wire.ProcessRequest{InstanceID: instanceID, ProcessID: processID}},
		{"rollback", "the id and the endpoint that was called under it", wire.RollbackRequest{OperationID: operationID, Member: wire.Provision}},
		{"settled", "undone, or never done", wire.Settled{Settled: true}},
		{"operation", "asks for the answer", wire.OperationRequest{OperationID: operationID, WaitMS: wire.DefaultWaitMS}},
		{"running", "not yet", wire.Running{OperationID: operationID, State: "running"}},
		{"out-end", "all of standard output: how much, and its digest", wire.OutEnd{Digest: digestOfHello, Offset: 6}},
		{"out-end-forced", "something held it ten seconds after the exit", wire.OutEnd{Digest: digestOfHello, Forced: true, Offset: 6}},
		{"err-end", "all of standard error", wire.ErrEnd{Offset: 2}},
		{"exit-code", "an exit by code", wire.Exit(sandbox.Exited(0))},
		{"exit-code-255", "the highest", wire.Exit(sandbox.Exited(255))},
		{"exit-signal", "an exit by signal", wire.Exit(sandbox.Signaled("SIGTERM"))},
		{"exit-signal-real-time", "a signal that has no name of its own", wire.Exit(sandbox.Signaled("SIGRTMIN+15"))},
		{"detach-poll-end", "ask again", wire.Detach{Reason: wire.DetachPollEnd}},
		{"detach-superseded", "a newer reader is there", wire.Detach{Reason: wire.DetachSuperseded, AttachID: otherAttach}},
		{"detach-superseded-unnamed", "who it is may be left out", wire.Detach{Reason: wire.DetachSuperseded}},
		{"detach-fenced", "a higher epoch is there", wire.Detach{Reason: wire.DetachFenced, LeaseEpoch: 8}},
		{"detach-draining", "attach again at once", wire.Detach{Reason: wire.DetachDraining}},
		{"truncated", "output below this is gone", wire.Truncated{LowWater: 11611392}},
	}
}

func messages() (all []Scenario) {
	for _, e := range examples() {
		data := encode(e.value)
		s := Scenario{Kind: "message", Name: e.name, Says: e.says, Schema: nameOfMessage(e.value), Decoded: literal(data)}
		all = append(all, s.jsonText(data))
	}
	return all
}

func nameOfMessage(m wire.Message) string {
	for _, k := range Messages() {
		if reflect.TypeOf(m) == k.Type {
			return k.Name
		}
	}
	panic("authorkit: a message of no kind")
}

// refusedMessage is a text that no strict reader may take.
type refusedMessage struct {
	name, says, example string
	old, new            string // replaced once in the text of the example
	visible             bool   // to a JSON Schema
}

func refusedMessages() (all []Scenario) {
	texts := map[string][]byte{}
	for _, e := range examples() {
		texts[e.name] = encode(e.value)
	}
	schemas := map[string]string{}
	for _, e := range examples() {
		schemas[e.name] = nameOfMessage(e.value)
	}
	for _, r := range refusals() {
		whole := texts[r.example]
		data := bytes.Replace(whole, []byte(r.old), []byte(r.new), 1)
		if bytes.Equal(data, whole) {
			panic("authorkit: " + r.name + " changes nothing in " + string(whole))
		}
		s := Scenario{Kind: "refused-message", Name: r.name, Says: r.says, Schema: schemas[r.example], Expressible: ref(r.visible)}
		all = append(all, refusal(s, data))
	}
	for _, r := range refusedErrors() {
		s := Scenario{Kind: "refused-message", Name: "error-" + r.name, Says: r.says, Schema: ErrorName, Expressible: ref(r.visible)}
		all = append(all, refusal(s, []byte(r.new)))
	}
	return all
}

// refusal asks the codec for its reason.
func refusal(s Scenario, data []byte) Scenario {
	var err error
	if s.Schema == ErrorName {
		_, err = wire.DecodeError(data)
	} else if m, ok := MessageNamed(s.Schema); ok {
		_, err = m.Decode(data)
	}
	var e *wire.Error
	if !errors.As(err, &e) {
		panic("authorkit: " + s.Name + " is taken")
	}
	s.Pointer, s.Reason = &e.Pointer, "form"
	if c := (*canonical.Error)(nil); errors.As(err, &c) {
		s.Reason = string(c.Reason)
	} else if e.Tag != wire.TagMalformed {
		s.Reason = string(e.Tag)
	}
	s.Text, s.Hex = plain(data), hex.EncodeToString(data)
	return s
}

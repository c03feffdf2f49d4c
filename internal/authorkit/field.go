package authorkit

import (
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// rules are the forms and bounds of fields whose Go type does not say them: the
// name of a form, or a schema.
// Source: contract "Bounds"; package sandbox, the Validate methods; package
// wire, the form methods.
var rules = map[string]any{
	"Capabilities.provider": "Coordinate", "Capabilities.provider_revision": "Identity",
	"Capabilities.materialization_revision": "Identity", "Capabilities.fixed_base_images[]": "Image",
	"Capabilities.max_mounts": whole,
	"Resources.cpu_millis":    amount, "Resources.memory_bytes": amount, "Resources.disk_bytes": amount,
	"Resources.max_processes": amount, "Resources.max_duration_seconds": amount,

	"Info.revision":              Schema{"const": wire.Revision},
	"Limits.max_wait_ms":         integer(1, wire.MaxWaitMS),
	"Limits.output_window_bytes": integer(wire.MinOutputWindowBytes, wire.MaxOutputWindowBytes),
	"Limits.input_buffer_bytes":  integer(wire.MinInputBufferBytes, wire.MaxInputBufferBytes),

	"Target.provider": "Coordinate", "Target.provider_revision": "Identity", "Target.materialization_revision": "Identity",
	"Platform.os": Schema{"const": "linux"}, "Platform.architecture": Schema{"enum": []any{"amd64", "arm64"}},
	"Profile.profile_id": "Identity", "Profile.profile_version": amount, "Profile.base_image": "Image",
	"Package.name": dashless, "Package.version": dashless,
	"NetworkPolicy.required_egress_certification": Schema{"enum": words(sandbox.EgressAdvisoryFilter, sandbox.EgressSecurityBoundary)},
	"Destination.host":                            "Host", "Destination.port": integer(1, 65535), "Destination.mode": Schema{"enum": []any{"tls", "opaque"}},
	"Mount.mount_path": "Path",

	"ProvisionRequest.workspace_id": "Identity", "ProvisionRequest.session_id": "Identity", "ProvisionRequest.run_id": "Identity",
	"ProvisionRequest.attempt_id": "Identity", "ProvisionRequest.lease_id": "Identity", "ProvisionRequest.lease_epoch": whole,
	"ProvisionRequest.root_image": "Image",
	"Instance.provider":           "Coordinate", "Instance.workspace_id": "Identity", "Instance.session_id": "Identity",
	"Instance.run_id": "Identity", "Instance.attempt_id": "Identity", "Instance.lease_id": "Identity", "Instance.lease_epoch": whole,
	"Instance.root_image": "Image", "Instance.output_path": Schema{"const": sandbox.OutputPath},
	"Materialization.image_reference": "Image", "Materialization.provider_revision": "Identity",
	"Materialization.materialization_revision": "Identity",

	"Snapshot.provider": "Coordinate", "Snapshot.workspace_id": "Identity", "Snapshot.session_id": "Identity",
	"Snapshot.profile_id": "Identity", "Snapshot.profile_version": amount,
	"CloneRequest.target_session_id": "Identity",

	"FileCall.path": "Path", "FileCall.size": integer(0, sandbox.MaxFileBytes), "FileCall.symlink": "LinkTarget",
	"StageCall.path": "Path", "StageCall.size": integer(0, sandbox.MaxFileBytes), "StageCall.symlink": "LinkTarget",
	"BeginActiveWriteRequest.targets[]": "Path",
	"Command.executable":                "Executable", "Command.arguments[]": "Argument", "Command.working_directory": directory,
	"Command.environment[]": "Value", "Command.timeout_seconds": amount, "Command.output_limit_bytes": integer(1, sandbox.MaxOutputBytes),
	"LiveProcess.executable": "Executable", "LiveProcess.arguments[]": "Argument", "LiveProcess.working_directory": directory,
	"LiveProcess.environment[]": "Value",
	"ExecuteResult.exit_code":   integer(0, 255), "ExecuteResult.signal": "SignalName", "ExecuteResult.timed_out": yes,
	"Exit.exit_code": integer(0, 255), "Exit.signal": "SignalName",

	"ReadFileRequest.path": "Path", "ReadFileRequest.allowed_root": "Path", "ReadFileRequest.maximum_bytes": integer(0, sandbox.MaxFileBytes),
	"FileMember.path": "Path", "FileMember.maximum_bytes": integer(0, sandbox.MaxFileBytes),
	"ReadFilesRequest.allowed_root": "Path", "ReadFilesRequest.aggregate_maximum_bytes": integer(0, sandbox.MaxReadFilesBytes),
	"FileResult.size": integer(0, sandbox.MaxFileBytes),
	"FileItem.index":  integer(0, sandbox.MaxReadFiles-1), "FileItem.size": integer(0, sandbox.MaxFileBytes),
	"FilesResult.count": integer(0, sandbox.MaxReadFiles), "FilesResult.total_bytes": integer(0, sandbox.MaxReadFilesBytes),
	"ListRequest.root": "Path", "ListRequest.max_entries": integer(1, sandbox.MaxListEntries),
	"DirEntry.path": "RelativePath", "DirEntry.size": whole,
	"Leaf.path": "RelativePath", "Leaf.size": whole, "Leaf.target": "LinkTarget",
	"ListResult.count": integer(0, sandbox.MaxListEntries), "ProjectResult.count": integer(0, sandbox.MaxListEntries),
	"ProjectResult.complete": yes,

	"Opened.input_offset": whole, "Opened.input_credit": credit, "Opened.low_water": whole,
	"Opened.output_window_bytes": integer(wire.MinOutputWindowBytes, wire.MaxOutputWindowBytes),
	"StreamRequest.cursor":       whole, "StreamRequest.wait_ms": integer(0, wire.MaxWaitMS),
	"StreamRequest.heartbeat_ms": integer(wire.MinHeartbeatMS, wire.MaxHeartbeatMS),
	"InputCall.offset":           whole, "Window.input_offset": whole, "Window.input_credit": credit,
	"WaitRequest.wait_ms": integer(0, wire.MaxWaitMS), "OperationRequest.wait_ms": integer(0, wire.MaxWaitMS),
	"Waited.running": yes, "Settled.settled": yes, "Running.state": Schema{"const": "running"},
	"OutEnd.offset": whole, "ErrEnd.offset": whole, "Truncated.low_water": whole, "Detach.lease_epoch": amount,

	"Evidence.schema": Schema{"const": sandbox.EvidenceSchema}, "Evidence.process_id": "ProcessID", "Evidence.provider": "Coordinate",
	"Evidence.provider_revision": "Identity", "Evidence.materialization_revision": "Identity", "Evidence.root_image": "Image",
}

var (
	yes       = Schema{"const": true}
	credit    = integer(0, wire.MaxInputBufferBytes)
	dashless  = pattern(`^[!#-&(-,.-\[\]-~][!#-&(-\[\]-~]{0,254}$`) // a leading dash would be an option
	directory = Schema{"type": "string", "maxLength": escaped * sandbox.MaxPathBytes, "pattern": `^(/|(/[^/]+)+)$`,
		"not": Schema{"anyOf": []any{pattern(`/\.\.?(/|$)`), brokenEscape}}}
)

package crosscheck

import (
	"slices"

	"github.com/checkfu/checkfu/sandbox"
)

// Misfit says why e cannot be an answer of op, or of op's compensation; "" if it
// can.
// Source: contract "Errors".
func Misfit(op sandbox.Operation, e *sandbox.Error) string {
	for _, s := range []string{e.Expected, e.Actual, e.Reason, e.Path, e.ID} {
		if len(s) > sandbox.MaxPathBytes {
			return "a field of over 4096 bytes"
		}
	}
	if e.Operation != op && e.Operation+"_rollback" != op {
		return "the error of another operation"
	}
	ok := false
	switch e.Kind {
	case sandbox.CapabilityUnavailable:
		ok = e.Requirement.Valid()
	case sandbox.LifecycleConflict:
		ok = e.Actual != ""
	case sandbox.OperationFailed:
		ok = e.Reason != ""
	case sandbox.FileTooLarge:
		ok = slices.Contains([]sandbox.Operation{sandbox.OpWriteFile, sandbox.OpReadFile, sandbox.OpReadFiles, sandbox.OpListDir,
			sandbox.OpListProjectDir, sandbox.OpBeginActiveWrite}, op)
	case sandbox.OutputLimitExceeded:
		ok = op == sandbox.OpExecute
	case sandbox.InstanceNotFound:
		// Teardown of what is gone is a success, and the rest name no instance.
		ok = !slices.Contains([]sandbox.Operation{sandbox.OpCapabilities, sandbox.OpProvision, sandbox.OpResume, sandbox.OpCloneSnapshot,
			sandbox.OpDestroy, sandbox.OpDestroySnapshot, sandbox.OpCleanup}, op)
	case sandbox.SnapshotForbidden:
		ok = op == sandbox.OpSnapshot || op == sandbox.OpCloneSnapshot || op == sandbox.OpRelease
	case sandbox.SnapshotNotFound:
		ok = op == sandbox.OpCloneSnapshot || op == sandbox.OpResume
	}
	if !ok {
		return "a kind or a field that does not belong to the operation"
	}
	return ""
}

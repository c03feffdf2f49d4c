package authorkit

import (
	"reflect"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// JSON Schema counts characters and the contract counts bytes. A byte that is
// not valid UTF-8 travels as three characters, so a bound of n bytes is at most
// 3n characters: the schema refuses what is too long in any case, the bytes are
// for whoever unescapes.
const escaped = 3

// texts are the forms of strings. Patterns stay within what every dialect of
// regular expressions has: no look-around, no classes by name.
var texts = map[string]Schema{
	"Identity":       pattern(`^[!#-&(-\[\]-~]{1,255}$`),
	"Coordinate":     pattern(`^[a-z0-9][a-z0-9._-]{0,254}$`),
	"Image":          {"type": "string", "maxLength": sandbox.MaxIdentityBytes, "pattern": `^[!#-&(-?A-\[\]-~]+@sha256:[0-9a-f]{64}$`},
	"Digest":         pattern(`^sha256:[0-9a-f]{64}$`),
	"OperationID":    pattern(`^op_[0-9a-f]{32}$`),
	"ProcessID":      pattern(`^pr_[0-9a-f]{32}$`),
	"AttachID":       pattern(`^at_[0-9a-f]{32}$`),
	"SignalName":     pattern(`^SIG[A-Z0-9+]{1,12}$`),
	"EnvironmentKey": pattern(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`),
	"Host":           {"type": "string", "maxLength": 253, "pattern": `^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`},
	// The form of toISOString, in 1970 to 9999, on days that exist.
	"Timestamp": {"type": "string",
		"pattern": `^(19[7-9][0-9]|[2-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z$`,
		"anyOf": []any{Schema{"not": pattern(`^[0-9]{4}-02-29`)},
			pattern(`^([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-`)}},
	"Path": {"type": "string", "maxLength": escaped * sandbox.MaxPathBytes, "pattern": `^(/[^/]+)+$`,
		"not": Schema{"anyOf": []any{pattern(`/\.\.?(/|$)`), brokenEscape}}},
	"RelativePath": {"type": "string", "maxLength": escaped * sandbox.MaxPathBytes, "pattern": `^[^/]+(/[^/]+)*$`, "not": Schema{"anyOf": []any{pattern(`(^|/)\.\.?(/|$)`), brokenEscape}}},
	"Executable":   text(1, sandbox.MaxPathBytes),
	"LinkTarget":   text(1, sandbox.MaxPathBytes-1),
	"Argument":     text(0, sandbox.MaxArgumentBytes),
	"Value":        text(0, sandbox.MaxEnvironmentBytes),
	"ErrorText":    text(0, wire.MaxErrorTextBytes),
	"MessageText":  text(0, wire.MaxMessageBytes),
}

// brokenEscape is U+0000 without two lower-case hex digits behind it.
var brokenEscape = pattern(`\x00([^0-9a-f]|$)|\x00[0-9a-f]([^0-9a-f]|$)`)

func pattern(p string) Schema { return Schema{"type": "string", "pattern": p} }

func text(low, high int) Schema {
	return Schema{"type": "string", "minLength": low, "maxLength": escaped * high, "not": brokenEscape}
}

func integer(low, high int64) Schema {
	return Schema{"type": "integer", "minimum": low, "maximum": high}
}

var (
	whole  = integer(0, sandbox.MaxInteger)
	amount = integer(1, sandbox.MaxInteger)
)

// forms are the Go types of text that have one form wherever they stand.
var forms = map[reflect.Type]string{
	reflect.TypeFor[sandbox.Timestamp]():  "Timestamp",
	reflect.TypeFor[sandbox.Digest]():     "Digest",
	reflect.TypeFor[sandbox.InstanceID](): "Identity",
	reflect.TypeFor[sandbox.SnapshotID](): "Identity",
	reflect.TypeFor[wire.OperationID]():   "OperationID",
	reflect.TypeFor[wire.ProcessID]():     "ProcessID",
	reflect.TypeFor[wire.AttachID]():      "AttachID",
}

// closed are the closed sets. What a set holds is checked by its own Valid.
var closed = map[reflect.Type][]any{
	set[sandbox.Placement]():           words(sandbox.PlacementTest, sandbox.PlacementLocal, sandbox.PlacementHosted, sandbox.PlacementBYOC),
	set[sandbox.Tier]():                words(sandbox.TierContainer, sandbox.TierMicroVM),
	set[sandbox.ImageMode]():           words(sandbox.ImageProfile, sandbox.ImageFixed),
	set[sandbox.PackageManager]():      words(sandbox.ManagerApt, sandbox.ManagerCargo, sandbox.ManagerGem, sandbox.ManagerGo, sandbox.ManagerNpm, sandbox.ManagerPip),
	set[sandbox.NetworkMode]():         words(sandbox.NetworkNone, sandbox.NetworkAllowlist, sandbox.NetworkUnrestricted),
	set[sandbox.RetentionMode]():       words(sandbox.RetentionDurable, sandbox.RetentionEphemeralZDR),
	set[sandbox.Custody]():             words(sandbox.CustodyRunner, sandbox.CustodyProvider),
	set[sandbox.Authority]():           words(sandbox.RunnerEnforced, sandbox.ProviderAttested, sandbox.GuestObserved, sandbox.NotEnforced),
	set[sandbox.EgressCertification](): words(sandbox.EgressUnsupported, sandbox.EgressAdvisoryFilter, sandbox.EgressSecurityBoundary),
	set[sandbox.Access]():              words(sandbox.AccessReadOnly, sandbox.AccessReadWrite),
	set[sandbox.MountKind]():           words(sandbox.MountGit, sandbox.MountProject, sandbox.MountMemory),
	set[sandbox.State]():               words(sandbox.StateProvisioning, sandbox.StateActive),
	set[sandbox.Disposition]():         words(sandbox.DispositionReleased, sandbox.DispositionDestroyed),
	set[sandbox.LeafType]():            words(sandbox.LeafRegular, sandbox.LeafSymlink, sandbox.LeafSubmodule, sandbox.LeafDevice, sandbox.LeafSocket, sandbox.LeafFIFO, sandbox.LeafOther),
	set[sandbox.Refusal]():             words(sandbox.RefusedOutsideRoot, sandbox.RefusedNotFound, sandbox.RefusedNotRegular, sandbox.RefusedTooLarge),
	set[sandbox.ControlSignal]():       words(sandbox.SignalInterrupt, sandbox.SignalTerminate, sandbox.SignalKill),
	set[sandbox.JournalState]():        words(sandbox.JournalOpen, sandbox.JournalDispatched, sandbox.JournalCommitted, sandbox.JournalRolledBack),
	set[sandbox.Operation]():           words(sandbox.Operations()...),
	set[wire.ItemStatus]():             words(wire.ItemOK, wire.ItemRefused),
	set[wire.DetachReason]():           words(wire.DetachPollEnd, wire.DetachSuperseded, wire.DetachFenced, wire.DetachDraining),
	set[wire.Endpoint]():               words(mutating()...), // only rollback names an endpoint
}

func set[T ~string](...T) reflect.Type { return reflect.TypeFor[T]() }

func words[T ~string](all ...T) []any {
	out := make([]any, len(all))
	for i, w := range all {
		out[i] = string(w)
	}
	return out
}

// mutating are the endpoints that carry an operation id.
func mutating() (all []wire.Endpoint) {
	for _, e := range wire.Endpoints() {
		if t, _ := e.Traits(); t.Mutating {
			all = append(all, e)
		}
	}
	return all
}

// lists are the bounds of arrays, by place.
var lists = map[string]Schema{
	"Capabilities.tiers":              {"minItems": 1, "uniqueItems": true},
	"Capabilities.platforms":          {"minItems": 1, "uniqueItems": true},
	"Capabilities.fixed_base_images":  {"uniqueItems": true},
	"Capabilities.package_managers":   {"uniqueItems": true},
	"Capabilities.network_modes":      {"minItems": 1, "uniqueItems": true},
	"Capabilities.retention_modes":    {"minItems": 1, "uniqueItems": true},
	"Info.members":                    {"uniqueItems": true},
	"Profile.packages":                {"maxItems": sandbox.MaxPackages, "uniqueItems": true},
	"NetworkPolicy.destinations":      {"maxItems": sandbox.MaxDestinations, "uniqueItems": true},
	"ProvisionRequest.mounts":         {"maxItems": sandbox.MaxMounts, "uniqueItems": true},
	"Instance.mounts":                 {"maxItems": sandbox.MaxMounts, "uniqueItems": true},
	"Command.arguments":               {"maxItems": sandbox.MaxArguments},
	"LiveProcess.arguments":           {"maxItems": sandbox.MaxArguments},
	"ReadFilesRequest.files":          {"minItems": 1, "maxItems": sandbox.MaxReadFiles},
	"DirPage.entries":                 {"maxItems": wire.MaxPageEntries, "uniqueItems": true},
	"ProjectPage.entries":             {"maxItems": wire.MaxPageEntries, "uniqueItems": true},
	"CleanupRequest.pinned_snapshots": {"maxItems": sandbox.MaxPinnedSnapshots},
	"CleanupResult.instance_ids":      {"uniqueItems": true},
	"CleanupResult.snapshot_ids":      {"uniqueItems": true},
	// How many targets one transaction may have is the provider's to say.
	"BeginActiveWriteRequest.targets": {},
}

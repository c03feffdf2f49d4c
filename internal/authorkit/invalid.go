package authorkit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// refusedRequests are requests that the codec takes and the contract refuses: a
// provider answers SandboxOperationFailed with the reason invalid_request, or to
// a mount plan SandboxCapabilityUnavailable with the requirement mounts, and
// does nothing. The pointer is the field that the contract names.
// Source: contract "Paths, mounts, and what the Runner admits first".
func refusedRequests() (all []Scenario) {
	texts := map[string]example{}
	for _, e := range examples() {
		texts[e.name] = e
	}
	for _, r := range []refusedMessage{
		{name: "mount-reserved", says: "a mount over the control root", example: "provision", old: `/workspace/repo`, new: `/workspace/.checkfu/x`},
		{name: "mount-above-reserved", says: "a mount that would hold it", example: "provision", old: `/workspace/repo`, new: `/workspace`},
		{name: "mount-dots", says: "a path that climbs", example: "provision", old: `/workspace/repo`, new: `/workspace/../etc`, visible: true},
		{name: "mount-relative", says: "a path that is not absolute", example: "provision", old: `/workspace/repo`, new: `workspace/repo`, visible: true},
		{name: "mount-slash-at-end", says: "a second form of a path", example: "provision", old: `/workspace/repo`, new: `/workspace/repo/`, visible: true},
		{name: "mount-twice", says: "one path, two mounts", example: "provision", old: `/workspace/repo`, new: `/workspace/project`},
		{name: "mount-access", says: "two accesses", example: "provision", old: `read_only`, new: `read_once`, visible: true},
		{name: "image-without-digest", says: "a name can be moved", example: "provision", old: string(provision().RootImage), new: `registry.example/derived:latest`, visible: true},
		{name: "packages-out-of-order", says: "one set of packages has one digest", example: "provision", old: `{"manager":"apt","name":"git"}`, new: `{"manager":"pip","name":"zz"}`},
		{name: "package-option", says: "a name that a package manager reads as an option", example: "provision", old: `"name":"git"`, new: `"name":"-git"`, visible: true},
		{name: "destination-address", says: "a destination is a name", example: "provision", old: `proxy.example`, new: `127.0.0.1`, visible: true},
		{name: "destination-decimal-address", says: "in every spelling", example: "provision", old: `proxy.example`, new: `2130706433`, visible: true},
		{name: "destination-wildcard", says: "and one name", example: "provision", old: `proxy.example`, new: `*.example`, visible: true},
		{name: "destination-upper-case", says: "in lower case", example: "provision", old: `proxy.example`, new: `Proxy.example`, visible: true},
		{name: "destinations-beside-none", says: "destinations belong to an allowlist", example: "provision", old: `"mode":"allowlist"`, new: `"mode":"none"`, visible: true},
		{name: "unsupported-egress-required", says: "no policy may ask that nothing applies it", example: "provision", old: `security_boundary`, new: `unsupported`, visible: true},
		{name: "tier", says: "two tiers", example: "provision", old: `microvm`, new: `process`, visible: true},
		{name: "platform", says: "one operating system", example: "provision", old: `"os":"linux"`, new: `"os":"windows"`, visible: true},
		{name: "resources-zero", says: "no limit is zero", example: "provision", old: `"max_processes":512`, new: `"max_processes":0`, visible: true},
		{name: "identity-with-space", says: "identities need no quoting anywhere", example: "provision", old: `lease-1`, new: `lease 1`, visible: true},
		{name: "coordinate-upper-case", says: "a provider has one spelling", example: "provision", old: `"provider":"acme"`, new: `"provider":"Acme"`, visible: true},
		{name: "environment-key", says: "names of the environment", example: "execute", old: `"LANG"`, new: `"1LANG"`, visible: true},
		{name: "timeout-zero", says: "a timeout is at least a second", example: "execute", old: `"timeout_seconds":60`, new: `"timeout_seconds":0`, visible: true},
		{name: "output-limit", says: "16 MiB for each stream", example: "execute", old: `1048576`, new: `16777217`, visible: true},
		{name: "executable-empty", says: "what to run", example: "execute", old: `"executable":"sh"`, new: `"executable":""`, visible: true},
		{name: "working-directory-relative", says: "an absolute directory", example: "execute", old: `/workspace/project`, new: `project`, visible: true},
		{name: "argument-nul", says: "no argument can hold a NUL, escaped or not", example: "execute", old: `-c`, new: `a\u000000b`},
		{name: "read-outside-root", says: "a path below its root", example: "read-file", old: `/workspace/project/a.txt`, new: `/workspace/projects/a.txt`},
		{name: "read-too-much", says: "16 MiB", example: "read-file", old: `16777216`, new: `16777217`, visible: true},
		{name: "aggregate-wrong", says: "the exact sum of the bounds", example: "read-files", old: `"aggregate_maximum_bytes":20`, new: `"aggregate_maximum_bytes":21`},
		{name: "list-none", says: "at least one entry", example: "list", old: `100000`, new: `0`, visible: true},
		{name: "list-too-many", says: "at most 100,000", example: "list", old: `100000`, new: `100001`, visible: true},
		{name: "clone-into-itself", says: "another session", example: "clone-snapshot", old: `sess-2`, new: `sess-1`},
		{name: "clone-expired", says: "made before it expires", example: "clone-snapshot", old: string(created), new: string(retained)},
		{name: "cutoff-in-the-future", says: "no later than now", example: "cleanup", old: string(created), new: string(retained)},
		{name: "symlink-executable", says: "a link has no mode of its own", example: "write-file-symlink", old: `"instance_id"`, new: `"executable":true,"instance_id"`, visible: true},
	} {
		e := texts[r.example]
		whole := encode(e.value)
		data := bytes.Replace(whole, []byte(r.old), []byte(r.new), 1)
		m, _ := MessageNamed(nameOfMessage(e.value))
		decoded, err := m.Decode(data)
		if err != nil || bytes.Equal(data, whole) {
			panic("authorkit: " + r.name + " is no matter of the contract")
		}
		var i *sandbox.Invalid
		if !errors.As(Contract(decoded), &i) {
			panic("authorkit: " + r.name + " is taken")
		}
		s := Scenario{Kind: "refused-request", Name: r.name, Says: r.says, Schema: m.Name, Expressible: ref(r.visible), Pointer: &i.Field,
			Tag: string(sandbox.OperationFailed), Reason: sandbox.ReasonInvalidRequest}
		if strings.HasPrefix(i.Field, "mounts") {
			s.Tag, s.Reason = string(sandbox.CapabilityUnavailable), string(sandbox.RequireMounts)
		}
		s.Text, s.Hex, s.Decoded = plain(data), hex.EncodeToString(data), literal(data)
		all = append(all, s)
	}
	return all
}

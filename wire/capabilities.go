package wire

import (
	"slices"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// CapabilitiesResponse answers capabilities: the contract's envelope, and what
// of it can be had over this wire.
type CapabilitiesResponse struct {
	Capabilities sandbox.Capabilities `json:"capabilities"`
	Wire         Info                 `json:"wire"`
}

// Info is what a server says about its side of the wire.
type Info struct {
	Revision string `json:"revision"`
	// Members are the contract's members that it serves. Helpers are not
	// listed: each comes with the member that needs it, rollback always.
	Members []sandbox.Operation `json:"members"`
	Limits  Limits              `json:"limits"`
	// AsyncOperations says that it may answer 202 and serves operation.
	AsyncOperations bool `json:"async_operations"`
}

// Limits are a server's own, within those of the wire.
type Limits struct {
	MaxWaitMS         int64 `json:"max_wait_ms"`                  // the longest hold of one request
	OutputWindowBytes int64 `json:"output_window_bytes,omitzero"` // kept of a live process's output; with open_process
	InputBufferBytes  int64 `json:"input_buffer_bytes,omitzero"`  // taken beyond what the process has read; with open_process
}

// form checks Info and that it agrees with the envelope. The envelope itself is
// judged by whoever selects.
func (r CapabilitiesResponse) form() error {
	return first(within("wire", r.Wire.form()), within("wire", r.agree()))
}

func (i Info) form() error {
	if i.Revision != Revision {
		return refuse("revision", Revision)
	}
	for n, m := range i.Members {
		if !slices.Contains(sandbox.Operations(), m) || slices.Contains(i.Members[:n], m) {
			return refuse(at("members", n), "a member of the contract, once")
		}
	}
	if err := between("limits.max_wait_ms", i.Limits.MaxWaitMS, 1, MaxWaitMS); err != nil {
		return err
	}
	if !slices.Contains(i.Members, sandbox.OpOpenProcess) {
		if i.Limits.OutputWindowBytes != 0 || i.Limits.InputBufferBytes != 0 {
			return refuse("limits", "no process limits without open_process")
		}
		return nil
	}
	return first(
		between("limits.output_window_bytes", i.Limits.OutputWindowBytes, MinOutputWindowBytes, MaxOutputWindowBytes),
		between("limits.input_buffer_bytes", i.Limits.InputBufferBytes, MinInputBufferBytes, MaxInputBufferBytes))
}

// agree refuses members that say something else than the envelope: either of
// them would be believed by somebody.
func (r CapabilitiesResponse) agree() error {
	for _, op := range sandbox.Operations() {
		has := slices.Contains(r.Wire.Members, op)
		switch claimed, free := claim(r.Capabilities, op); {
		case !free && claimed && !has:
			return refuse("members", string(op)+", which the envelope says")
		case !free && !claimed && has:
			return refuse("members", "no "+string(op)+", which the envelope denies")
		}
	}
	return nil
}

// claim says whether the envelope c has op; free is where it is silent.
func claim(c sandbox.Capabilities, op sandbox.Operation) (claimed, free bool) {
	switch op {
	case sandbox.OpReadFiles, sandbox.OpListProjectDir, sandbox.OpOpenProcess:
		return false, true
	case sandbox.OpListDir:
		return c.ListDir, false
	case sandbox.OpBeginActiveWrite:
		return c.ActiveMountWrite, false
	case sandbox.OpSnapshot, sandbox.OpResume:
		return c.Snapshots, false
	case sandbox.OpCloneSnapshot:
		return c.SnapshotClone, false
	}
	return true, false
}

// Members returns the members that a provider with this envelope and these
// optional members serves, in the order of the contract.
func Members(c sandbox.Capabilities, o sandbox.Optional) []sandbox.Operation {
	var members []sandbox.Operation
	for _, op := range sandbox.Operations() {
		claimed, _ := claim(c, op)
		switch op {
		case sandbox.OpReadFiles:
			claimed = o.ReadFiles != nil
		case sandbox.OpListProjectDir:
			claimed = o.ListProjectDir != nil
		case sandbox.OpOpenProcess:
			claimed = o.OpenProcess != nil
		}
		if claimed {
			members = append(members, op)
		}
	}
	return members
}

// CapabilitiesDigest is the digest of the canonical envelope, which leaves out
// every optional field that says no more than its absence. It stands in a
// header of every response and never changes within one provider revision.
// Errors: *Error with TagMalformed.
func CapabilitiesDigest(c sandbox.Capabilities) (sandbox.Digest, error) {
	data, err := canonical.Encode(c)
	if err != nil {
		return "", malformed(err)
	}
	return sandbox.Digest(canonical.Digest(data)), nil
}

// RequestDigest is the digest of a request's whole body, by which a retry is
// told from another request under the same operation id.
func RequestDigest(body []byte) sandbox.Digest { return sandbox.Digest(canonical.Digest(body)) }

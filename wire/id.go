package wire

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// OperationID names one logical mutating call, "op_" and 32 lower-case hex
// digits. The Runner mints it before the call and keeps it over retries. The
// id of a begin_active_write is also the id of its transaction.
type OperationID string

// ProcessID names one live process, "pr_" and 32 lower-case hex digits, minted
// by the Runner.
type ProcessID string

// AttachID names one attachment of a reader to a process's stream, "at_" and 32
// lower-case hex digits, minted by the reader, new for each attachment.
type AttachID string

// BootID names one loss of volatile state of a provider, "bt_" and 32
// lower-case hex digits. It is diagnostic.
type BootID string

// NewOperationID mints an id from the system's random source.
func NewOperationID() OperationID { return OperationID("op_" + random()) }

// NewProcessID mints likewise.
func NewProcessID() ProcessID { return ProcessID("pr_" + random()) }

// NewAttachID mints likewise.
func NewAttachID() AttachID { return AttachID("at_" + random()) }

// NewBootID mints likewise.
func NewBootID() BootID { return BootID("bt_" + random()) }

// Valid reports whether the id has its one form.
func (id OperationID) Valid() bool { return minted(string(id), "op_") }

// Valid reports whether the id has its one form.
func (id ProcessID) Valid() bool { return minted(string(id), "pr_") }

// Valid reports whether the id has its one form.
func (id AttachID) Valid() bool { return minted(string(id), "at_") }

// Valid reports whether the id has its one form.
func (id BootID) Valid() bool { return minted(string(id), "bt_") }

func random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func minted(id, prefix string) bool {
	digits, ok := strings.CutPrefix(id, prefix)
	if !ok || len(digits) != 32 {
		return false
	}
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

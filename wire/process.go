package wire

import "github.com/checkfu/checkfu/sandbox"

// OpenProcessRequest is the request of open_process.
type OpenProcessRequest struct {
	InstanceID sandbox.InstanceID     `json:"instance_id"`
	ProcessID  ProcessID              `json:"process_id"`
	Process    sandbox.ProcessRequest `json:"process"`
}

// Opened answers open_process, and is the open frame: the first of every
// attachment. The evidence of every attachment equals the first, byte for byte
// in canonical form.
type Opened struct {
	ProcessID         ProcessID        `json:"process_id"`
	Evidence          sandbox.Evidence `json:"evidence"`
	InputOffset       int64            `json:"input_offset"`
	InputCredit       int64            `json:"input_credit"`
	LowWater          int64            `json:"low_water"`           // the first byte of output that is still kept
	OutputWindowBytes int64            `json:"output_window_bytes"` // how many are kept
}

// StreamRequest is the request of process_stream. WaitMS 0 follows the process;
// more is a poll, which ends with a detach. HeartbeatMS is the longest silence.
type StreamRequest struct {
	InstanceID  sandbox.InstanceID `json:"instance_id"`
	ProcessID   ProcessID          `json:"process_id"`
	AttachID    AttachID           `json:"attach_id"`
	Cursor      int64              `json:"cursor"` // the first byte of standard output that is wanted
	WaitMS      int64              `json:"wait_ms"`
	HeartbeatMS int64              `json:"heartbeat_ms"`
}

// InputCall is the call of process_input; the bytes follow as data. Offset is
// where they begin in the whole of standard input. End is the half-close after
// them; it is sticky.
type InputCall struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
	ProcessID  ProcessID          `json:"process_id"`
	Offset     int64              `json:"offset"`
	End        bool               `json:"end"`
}

// Window answers process_input and is the window frame. The sum of both is the
// limit up to which input is taken and never decreases.
type Window struct {
	InputOffset int64 `json:"input_offset"`
	InputCredit int64 `json:"input_credit"`
}

// WaitRequest is the request of process_wait.
type WaitRequest struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
	ProcessID  ProcessID          `json:"process_id"`
	WaitMS     int64              `json:"wait_ms"`
}

// Waited answers process_wait: an exit, or that the process still runs.
type Waited struct {
	Exit    *sandbox.Exit `json:"exit,omitzero"`
	Running bool          `json:"running,omitzero"`
}

// SignalRequest is the request of process_signal.
type SignalRequest struct {
	InstanceID sandbox.InstanceID    `json:"instance_id"`
	ProcessID  ProcessID             `json:"process_id"`
	Signal     sandbox.ControlSignal `json:"signal"`
}

// Signaled answers process_signal. After the exit nothing is delivered.
type Signaled struct {
	Delivered bool `json:"delivered"`
}

// ProcessRequest is the request of process_destroy.
type ProcessRequest struct {
	InstanceID sandbox.InstanceID `json:"instance_id"`
	ProcessID  ProcessID          `json:"process_id"`
}

// OutEnd is the out_end frame: the end of standard output, with the digest of
// all of it from byte 0. Forced says that something still held it 10 seconds
// after the exit.
type OutEnd struct {
	Digest sandbox.Digest `json:"digest"`
	Forced bool           `json:"forced"`
	Offset int64          `json:"offset"`
}

// ErrEnd is the err_end frame.
type ErrEnd struct {
	Offset int64 `json:"offset"`
}

// Exit is the exit frame: an exit code xor a signal.
type Exit sandbox.Exit

// DetachReason is why a provider ended an attachment.
type DetachReason string

// The four reasons.
const (
	DetachPollEnd    DetachReason = "poll_end"
	DetachSuperseded DetachReason = "superseded" // by another attachment of the same epoch
	DetachFenced     DetachReason = "fenced"     // by a higher epoch
	DetachDraining   DetachReason = "draining"   // attach again at once
)

// Detach is the detach frame, the last of an attachment.
type Detach struct {
	Reason     DetachReason `json:"reason"`
	AttachID   AttachID     `json:"attach_id,omitzero"`   // superseded: by whom, where it is said
	LeaseEpoch int64        `json:"lease_epoch,omitzero"` // fenced: the current one
}

// Truncated is the truncated frame, the last of an attachment: output below
// LowWater is gone, and the process was killed for it.
type Truncated struct {
	LowWater int64 `json:"low_water"`
}

func (r OpenProcessRequest) form() error { return processID("process_id", r.ProcessID) }

func (o Opened) form() error {
	return first(processID("process_id", o.ProcessID),
		Window{o.InputOffset, o.InputCredit}.form(), count("low_water", o.LowWater),
		between("output_window_bytes", o.OutputWindowBytes, MinOutputWindowBytes, MaxOutputWindowBytes))
}

func (r StreamRequest) form() error {
	return first(processID("process_id", r.ProcessID), attachID("attach_id", r.AttachID), count("cursor", r.Cursor),
		between("wait_ms", r.WaitMS, 0, MaxWaitMS), between("heartbeat_ms", r.HeartbeatMS, MinHeartbeatMS, MaxHeartbeatMS))
}

func (c InputCall) form() error {
	return first(processID("process_id", c.ProcessID), count("offset", c.Offset))
}

func (w Window) form() error {
	return first(count("input_offset", w.InputOffset), between("input_credit", w.InputCredit, 0, MaxInputBufferBytes))
}

func (r WaitRequest) form() error {
	return first(processID("process_id", r.ProcessID), between("wait_ms", r.WaitMS, 0, MaxWaitMS))
}

func (w Waited) form() error {
	if (w.Exit == nil) != w.Running {
		return refuse("exit", "an exit xor running: true")
	}
	if w.Exit == nil {
		return nil
	}
	return within("exit", Exit(*w.Exit).form())
}

func (r SignalRequest) form() error { return processID("process_id", r.ProcessID) }

func (Signaled) form() error { return nil }

func (r ProcessRequest) form() error { return processID("process_id", r.ProcessID) }

func (e OutEnd) form() error { return first(digest("digest", e.Digest), count("offset", e.Offset)) }

func (e ErrEnd) form() error { return count("offset", e.Offset) }

func (e Exit) form() error { return invalid(sandbox.Exit(e).Validate()) }

func (d Detach) form() error {
	switch d.Reason {
	case DetachPollEnd, DetachDraining:
		if d.AttachID != "" || d.LeaseEpoch != 0 {
			return refuse("reason", "no attach_id and no lease_epoch beside it")
		}
	case DetachSuperseded:
		if d.AttachID != "" && !d.AttachID.Valid() || d.LeaseEpoch != 0 {
			return refuse("attach_id", "at_ and 32 lower-case hex digits, no lease_epoch beside it")
		}
	case DetachFenced:
		if d.AttachID != "" {
			return refuse("attach_id", "absent unless superseded")
		}
		return between("lease_epoch", d.LeaseEpoch, 1, maxOffset)
	default:
		return refuse("reason", "poll_end, superseded, fenced or draining")
	}
	return nil
}

func (t Truncated) form() error { return count("low_water", t.LowWater) }

package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/store"
)

// Options are what a Server is made from. Provider and one way of access must
// be set; everything else has a default.
type Options struct {
	// Provider is what is served. Its instances must be allocated through this
	// server: an id that the server did not hand out names nothing.
	Provider sandbox.Provider

	// Journal opens the store of the journal: logstore.At of a directory,
	// which one server holds at a time. It must outlive this process
	// if an instance or a snapshot does. nil keeps the journal in memory: then
	// whatever this server handed out is unknown after a restart, so that a
	// retried command meets SandboxInstanceNotFound and never runs twice.
	Journal store.Opener

	// Tokens are the bearer tokens, at most two valid at once.
	Tokens []string
	// ClientKeys are the SHA-256 digests of the public keys
	// (SubjectPublicKeyInfo) of client certificates. With Tokens both are asked.
	ClientKeys [][32]byte
	// Authenticate decides instead of the two above. It returns a *wire.Error
	// with TagUnauthenticated or TagForbidden; any other error is the former.
	Authenticate func(*http.Request) error

	// Clock is the time of heartbeats, holds and retention; nil is the system's.
	Clock Clock

	OutputWindow int // bytes of output kept of one live process; 4 to 64 MiB, default 8 MiB
	// HoldOutput lets a process wait for a reader that is slow, once half of the window
	// is unread, where else it would be lost (output_truncated). It is for a server whose
	// callers are on its own host, and who ends what nobody follows: a reader that stands
	// still holds its process up for as long as Stall, and one that is gone for good. The
	// other half of the window is for a reader that comes again, and has to hold what a
	// socket does: it is made for unix sockets.
	HoldOutput  bool
	InputBuffer int           // bytes of input taken beyond what a process read; 64 KiB to 4 MiB, default 256 KiB
	Heartbeat   time.Duration // the longest silence of a stream, at most what its reader asks; 1 s to 30 s, default 10 s
	MaxWait     time.Duration // the longest hold of one request; up to 30 s, default 30 s
	Stall       time.Duration // how long one write to a caller, or one request's body at 64 KiB/s, may stand still; default 60 s

	// MaxOperations bounds the operations that are remembered, default 131,072;
	// ResultBytes what of their answers is, default 256 MiB. Over the first a
	// call is refused as overloaded; over the second the oldest answers go, and
	// a retry of one of those is OperationFailed{indeterminate}.
	MaxOperations int
	ResultBytes   int64
	// MaxCalls bounds the calls that are served at once, streams and holds
	// aside, default 256; MaxBodyBytes the request bytes held for them, default
	// 512 MiB. Over either a call is refused as overloaded.
	MaxCalls     int
	MaxBodyBytes int64

	// Log gets what no caller is told: defects of the provider, a store that
	// fails. It may be called by many goroutines. nil drops it.
	Log func(error)
}

// Anybody is an Authenticate that lets everybody in: for a unix socket that only
// its owner can open.
func Anybody(*http.Request) error { return nil }

func (o Options) withDefaults() (Options, error) {
	if o.Provider == nil {
		return o, errors.New("provider: expected one, got none")
	}
	if o.Authenticate == nil && len(o.Tokens) == 0 && len(o.ClientKeys) == 0 {
		return o, errors.New("access: expected tokens, client keys or an Authenticate, got none")
	}
	if o.Journal == nil {
		o.Journal = store.Memory
	}
	if o.Clock == nil {
		o.Clock = System
	}
	if o.Log == nil {
		o.Log = func(error) {}
	}
	def := func(p *int, value int) {
		if *p == 0 {
			*p = value
		}
	}
	def(&o.OutputWindow, wire.DefaultOutputWindowBytes)
	def(&o.InputBuffer, wire.DefaultInputBufferBytes)
	def(&o.MaxOperations, 1<<17)
	def(&o.MaxCalls, 256)
	span := func(p *time.Duration, value time.Duration) {
		if *p == 0 {
			*p = value
		}
	}
	span(&o.Heartbeat, wire.DefaultHeartbeatMS*time.Millisecond)
	span(&o.MaxWait, wire.MaxWaitMS*time.Millisecond)
	span(&o.Stall, 60*time.Second)
	if o.ResultBytes == 0 {
		o.ResultBytes = 256 << 20
	}
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = 512 << 20
	}
	for _, b := range []struct {
		name           string
		got, low, high int64
	}{
		{"output window", int64(o.OutputWindow), wire.MinOutputWindowBytes, wire.MaxOutputWindowBytes},
		{"input buffer", int64(o.InputBuffer), wire.MinInputBufferBytes, wire.MaxInputBufferBytes},
		{"heartbeat", o.Heartbeat.Milliseconds(), wire.MinHeartbeatMS, wire.MaxHeartbeatMS},
		{"max wait", o.MaxWait.Milliseconds(), 1, wire.MaxWaitMS},
		{"stall", o.Stall.Milliseconds(), 1, int64(time.Hour / time.Millisecond)},
		{"max operations", int64(o.MaxOperations), 1, 1 << 24},
		{"result bytes", o.ResultBytes, 1 << 20, 1 << 40},
		{"max calls", int64(o.MaxCalls), 1, 1 << 20},
		{"max body bytes", o.MaxBodyBytes, wire.MaxFramedRequestBytes, 1 << 40},
	} {
		if b.got < b.low || b.got > b.high {
			return o, &sandbox.Invalid{Field: b.name, Expected: itoa(b.low) + " to " + itoa(b.high), Got: itoa(b.got)}
		}
	}
	return o, nil
}

// Package relay is the model relay of one sandbox: it leads the five path shapes
// of package route to one model gateway, and nothing to anywhere else.
//
//	accept   serve.go    bounded; the oldest unfinished head gives way to a new one
//	head     head.go     a strict parser of its own: CRLF, visible ASCII, 16 KiB, 5 s
//	decide   request.go  Host, shape, token, lease, framing
//	forward  forward.go  to the gateway, streamed both ways, each piece as it comes
//	body     body.go     the workload's body, bounded, and whether it is still there
//	answer   answer.go   status, five headers, the body in chunks
//	log      log.go      one line for each request
//
// One connection carries one request, so nothing that stands behind it is ever
// read as another. It knows its own run's token by its digest only, and refuses
// every other one before the gateway hears of it. Its clock ends every request
// when the lease is over, ahead of the gateway's own. It links no control plane,
// holds no provider's key and no allowlist, follows no redirect, and carries no
// CONNECT and no upgrade. It counts nothing: usage is the gateway's.
//
// Trusts: its configuration; the gateway, to answer. Does not trust: the
// workload; one header of an answer.
// Units: bytes, time.Duration; in the configuration and log as named.
// Errors: a configuration is refused with *canonical.Error or *sandbox.Invalid; a
// request with *route.Refusal, which the workload is told as the APIs tell it.
// Ownership: Serve owns its listener and every connection; the log is the caller's.
// Concurrency: a Relay serves one listener.
// Bounds: Limits and the constants of limit.go.
// Source: concept "Network posture"; design "Egress".
package relay

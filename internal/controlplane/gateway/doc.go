// Package gateway is the model gateway: the one process that holds the keys of
// model providers. A sandbox holds a run's token instead, which is good for as
// long as the run's lease and for nothing but the five shapes of package route.
//
//	shape, token, lease   handler.go  refused before a byte of the body is read
//	ceiling               ledger.go   what the lease's run has used up
//	body                  request.go  bounded; the model, and whether usage will be told
//	forward               handler.go  the key in the token's place, to a fixed upstream
//	stream                stream.go   each piece as it comes, and an end that shows
//	count                 usage.go    tokens, out of JSON and of server-sent events
//	store                 store.go    leases and counts, on the disk before they are answered
//	control               control.go  grants and ends leases, for its operator alone
//	holder                holder.go   ends the lease of a process that was killed
//	log                   logfile.go  two files of bounded size
//
// It looks at nothing but token and lease: not at an address, and not at the relay,
// which may be absent or somebody else's.
//
// Trusts: its operator's configuration, the lease store, who can reach its
// control; an upstream, behind verified TLS, to count what it bills. Does not trust: the workload, a relay.
// Units: tokens as the providers count them, bytes, time.Duration.
// Errors: a request is refused with *route.Refusal, in the form that both APIs
// have. An upstream's refusal of our key is never passed on: its text may hold a
// part of it.
// Ownership: keys are in this process's memory only; Close of the store is its
// opener's.
// Concurrency: a Gateway serves many requests at once.
// Bounds: Limits and the constants of limit.go.
// Source: concept "What Checkfu supplies versus what you supply", "Network
// posture"; design "Egress".
package gateway

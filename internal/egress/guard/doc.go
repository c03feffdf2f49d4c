// Package guard is the egress guard: a proxy that knows one request, CONNECT,
// and leads it to the listed hosts and ports and to nothing else, whatever the
// workload sends and whatever the resolver answers.
//
// The path of one request, each step a file
// (Guard itself is in guard.go, the count of connections in session.go):
//
//	accept     accept.go   bounded; the oldest unfinished head gives way to a new one
//	head       head.go     a strict parser of its own; CRLF, visible ASCII, 8 KiB, 5 s
//	decide     request.go  method, target, Host, body, list, resolver, addresses, socket
//	resolve    resolve.go  one A and one AAAA question, asked once, cached nowhere;
//	           message.go  what of an answer counts
//	dial       dial.go     the judged addresses themselves, checked again on the socket
//	hello      hello.go    on a tls port: the ClientHello names the host, and hides none
//	tunnel     tunnel.go   bytes both ways; splice.go leaves them in the kernel where that pays
//	log        log.go      one line for each request, one for each tunnel's end, chained
//
// The order is the rule: the list is asked before the resolver, or a question
// about a name would carry a secret out; the addresses are judged before the
// dial, or the refusal itself would be a probe of the inner network; the hello
// is read before the first byte of payload goes out. Each refusal has one reason
// of a closed set, is written down before it is said, and ends the connection.
//
// It terminates no TLS and holds no key, token or name of the control plane.
//
// Trusts: its configuration, and the resolver to answer with any public address
// of a listed name (the client's certificate check is what holds there). Does
// not trust: the workload, the origin, one byte of a resolver's message.
// Units: bytes, time.Duration; on disk milliseconds and seconds as named.
// Errors: a configuration is refused with *canonical.Error or *sandbox.Invalid
// and no guard exists; a request with *policy.Refusal, which the log and, as its
// status and reason alone, the workload are told.
// Ownership: Serve owns its listener and every connection; the log is the caller's.
// Concurrency: a Guard serves one listener; two goroutines for each tunnel.
// Bounds: see Config.Limits and the constants of limit.go. A log that cannot be
// written is the end of all tunnels and a refusal of all requests.
//
// Source: grading "The five facts, and the three that cannot be self-attested";
// design "Egress".
package guard

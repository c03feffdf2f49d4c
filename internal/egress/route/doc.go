// Package route is what both ends of the model route agree on: the five path
// shapes, the headers that pass either way, the form of a run's token, and the
// one body of an error. It is pure.
//
// The relay holds to it in front of the workload, and the gateway holds to it
// again, because a relay may be somebody else's, or absent.
//
// Trusts: nothing. Does not trust: one byte of a request.
// Errors: *Refusal, which is answered to the workload.
// Concurrency: every name here can be used from many goroutines.
// Source: concept "Network posture"; design "Egress".
package route

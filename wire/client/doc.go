// Package client is a [sandbox.Provider] that lives somewhere else: it speaks
// the wire of package wire over HTTP/1.1 or HTTP/2 to whatever serves it.
//
//	c, err := client.Dial(ctx, client.Options{Base: "https://acme.example/checkfu", Token: token, Pin: pin})
//	…
//	defer c.Close()
//
// What it adds to a call: an operation id from the system's random source that
// stays the same over every delivery, the fencing headers of the instance's
// lease, deadlines, deliveries repeated where nothing was answered, and the end
// by id of whatever nobody waits for any more. A lost answer never leaves an
// allocation behind that this side could have named.
//
// What it takes away: authority. Nothing that crosses a wire shows who set a
// control, so a Runner counts whatever this provider claims as runner_enforced
// as provider_attested at most: it adopts a Client as a remote adapter
// ([Client.Remote]). The envelope itself is returned as it was advertised, so
// that a suite sees an overclaim.
//
// Trusts: nothing that arrives. Headers and bodies are bounded, frames are
// refused before they are allocated, nothing is inflated, no redirect is
// followed, no cookie is kept, no proxy is taken from the environment.
// Does not check: what the contract says of a value. The Runner cross-checks
// values the same way with and without a wire.
// Errors: [*sandbox.Error], the context's own, or [*ProtocolError] for a peer
// that broke the wire.
// Concurrency: a Client may be used by any number of goroutines.
// Ownership: a Client owns its connections and goroutines until Close.
// Source: contract "The operations", "Allocation handoff", "openProcess";
// docs/divergences.md.
package client

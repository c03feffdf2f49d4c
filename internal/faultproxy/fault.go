package faultproxy

import (
	"hash/fnv"
	"math/rand/v2"
)

// Kind is what goes wrong with one exchange.
type Kind string

// What can go wrong. "After" is [Fault.After].
const (
	Pass        Kind = ""
	Refuse      Kind = "refuse"       // the connection goes before anything of the request reaches the server
	CutRequest  Kind = "cut-request"  // After bytes of the request reach the server, then both sides are closed
	CutResponse Kind = "cut-response" // After bytes of the response reach the client, then both sides are closed
	Lose        Kind = "lose"         // the server answers to its end, or for After bytes if After > 0; nothing comes back
	Untyped     Kind = "untyped"      // like Lose, but the client gets a 502 that no provider wrote
	Double      Kind = "double"       // the request is delivered twice at once; the first delivery's answer comes back
	Echo        Kind = "echo"         // the request is delivered again once its answer has come back
	HalfClose   Kind = "half-close"   // the server sees the end of the connection right behind the request
	Garbage     Kind = "garbage"      // After bytes of the response, then noise, then the end
	Stall       Kind = "stall"        // After bytes of the response, then nothing for Options.Stall, then the end
	Drip        Kind = "drip"         // the response comes a few bytes at a time, After bytes of it
	Stale       Kind = "stale"        // the connection goes once the response is through, before the next request
)

// Fault is one fault.
type Fault struct {
	Kind  Kind
	After int64 // bytes that pass before it, head and framing included
}

// Exchange is one request and its response.
type Exchange struct {
	N    int    // of all, from 0
	Path string // of the request
	Nth  int    // of those with this path, from 0
}

// Script says what goes wrong with an exchange. It may be called by many
// goroutines at once.
type Script func(Exchange) Fault

// On is a script that does f to every exchange with path.
func On(path string, f Fault) Script {
	return func(e Exchange) Fault {
		if e.Path != path {
			return Fault{}
		}
		return f
	}
}

// First is a script that does f to the first exchange with path.
func First(path string, f Fault) Script {
	return func(e Exchange) Fault {
		if e.Path != path || e.Nth != 0 {
			return Fault{}
		}
		return f
	}
}

// Seeded is a script that does one of kinds to each exchange with probability
// rate, after up to most bytes. The same exchange of the same path always meets
// the same fault, whatever else goes on at the time.
func Seeded(seed uint64, rate float64, most int64, kinds ...Kind) Script {
	return func(e Exchange) Fault {
		h := fnv.New64a()
		_, _ = h.Write([]byte(e.Path)) // never fails
		r := rand.New(rand.NewPCG(seed, h.Sum64()+uint64(e.Nth)))
		if r.Float64() >= rate {
			return Fault{}
		}
		// Small numbers as often as big ones: faults inside a head, a frame's
		// header and a body are all worth meeting.
		span := int64(1) << r.IntN(63)
		return Fault{Kind: kinds[r.IntN(len(kinds))], After: r.Int64N(min(span, most) + 1)}
	}
}

package gateway

import "time"

// Bounds that no option widens.
const (
	MaxBodyBytes   = 64 << 20 // that Limits.BodyBytes may ask for
	MaxHeaderBytes = 16 << 10
	MaxKeyBytes    = 4 << 10
	MaxModelBytes  = 256  // of a model's name
	MaxModels      = 256  // of a lease
	MaxHeads       = 1024 // connections without a whole head; one more, and the oldest is ended
)

// Limits are a gateway's bounds; one that is zero has its default.
type Limits struct {
	Requests    int64         // at once; default 4,096
	RunRequests int64         // of one run at once, where its lease says nothing; default 128
	BodyBytes   int64         // of a request; default 32 MiB, at most MaxBodyBytes
	HeldBytes   int64         // of all bodies at once, of which a run has at most an eighth, or one body; default 512 MiB
	Idle        time.Duration // without a byte of the upstream's answer; default 10 minutes
}

func (l Limits) orDefaults() Limits {
	if l.Requests <= 0 {
		l.Requests = 4096
	}
	if l.RunRequests <= 0 {
		l.RunRequests = 128
	}
	if l.BodyBytes <= 0 {
		l.BodyBytes = 32 << 20
	}
	l.BodyBytes = min(l.BodyBytes, MaxBodyBytes)
	if l.HeldBytes <= 0 {
		l.HeldBytes = 512 << 20
	}
	if l.Idle <= 0 {
		l.Idle = 10 * time.Minute
	}
	return l
}

const (
	headTime    = 5 * time.Second  // for a request's head
	bodyTime    = 60 * time.Second // for the next piece of its body
	replyTime   = 60 * time.Second // for a piece of an answer to be taken
	connectTime = 10 * time.Second // for an upstream to take a connection, and for its TLS
	keepTime    = 30 * time.Second // that a connection stays without a request
	leaseTime   = 5 * time.Second  // after which a lease is looked up again while its request runs
	drainTime   = 2 * time.Second  // for the rest of a body that nobody wants
	closeTime   = 5 * time.Second  // for requests to end when the gateway does
)

// drainBytes is how much of such a body is taken.
const drainBytes = 8 << 20

// pieceBytes bounds one piece of an answer, and with it the memory of a stream.
const pieceBytes = 8 << 10

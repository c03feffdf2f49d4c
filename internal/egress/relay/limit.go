package relay

import "time"

// Bounds that no configuration widens.
const (
	MaxConfigBytes = 64 << 10
	MaxHeadBytes   = 16 << 10 // of a request's head
	MaxHeaders     = 64       // header lines of a head
	MaxHeads       = 256      // connections whose head has not come whole; one more, and the oldest is ended
	MaxBodyBytes   = 64 << 20 // that Limits.BodyBytes may ask for
	MaxRequests    = 4096     // that Limits.Requests may ask for
	MaxIdleSeconds = 3600     // that Limits.IdleSeconds may ask for
)

// What Limits are where they are left out.
const (
	DefaultBodyBytes   = 32 << 20 // what the providers take
	DefaultRequests    = 64
	DefaultIdleSeconds = 600 // a model may think for minutes without a byte
)

const (
	headTime    = 5 * time.Second  // for a whole head
	bodyTime    = 60 * time.Second // for the next piece of a body
	connectTime = 10 * time.Second // for the gateway to take a connection
	replyTime   = 60 * time.Second // for the workload to take a piece of an answer
	lingerTime  = 2 * time.Second  // for a refused workload to read why
	leaseStep   = 30 * time.Second // how late a clock that was set forward is noticed at most
	firstPause  = 5 * time.Millisecond
	lastPause   = time.Second
)

// lingerBytes is how much of a body that nobody wanted is still read. What is
// unread when a connection closes makes the kernel send a reset, which destroys
// the answer before the workload has read it.
const lingerBytes = 1 << 20

// pieceBytes bounds one piece of an answer, and with it the memory of a stream.
const pieceBytes = 8 << 10

package guard

import "time"

// Bounds that no configuration widens.
const (
	MaxConfigBytes = 1 << 20   // of a configuration
	MaxHeadBytes   = 8 << 10   // of a request's head, and the default
	MaxHeaders     = 64        // header lines of a head
	MaxHeads       = 1024      // connections whose head has not come whole; one more, and the oldest is ended
	MaxHelloBytes  = 16 << 10  // of a ClientHello with its record headers
	MaxRawBytes    = 300       // of a target, in the log; a host and a port have at most 259
	MaxLineBytes   = 8 << 10   // of a line of the log
	MaxTunnels     = 64 << 10  // that Limits.Tunnels may ask for
	MaxIdleSeconds = 24 * 3600 // that Limits.IdleSeconds may ask for
)

// How long the guard waits for others. None of them is in the configuration:
// a request's fate must not depend on a number that somebody forgot.
const (
	headTime    = 5 * time.Second  // for a whole head, and the default
	helloTime   = 10 * time.Second // for a whole ClientHello
	resolveTime = 5 * time.Second  // for both answers of the resolver
	connectTime = 5 * time.Second  // for one address
	dialTime    = 15 * time.Second // for all addresses of an answer
	replyTime   = 5 * time.Second  // for a status line to be taken
	lingerTime  = time.Second      // for a refused client to read why
	logTime     = 5 * time.Second  // for a line to be taken, where the log has deadlines
	leaseStep   = 30 * time.Second // how late a clock that was set forward is noticed at most
)

// lingerBytes is how much a refused client may still have under way. What is
// unread when a connection closes makes the kernel send a reset, which destroys
// the answer before the client has read it.
const lingerBytes = 64 << 10

// DefaultTunnels is what Limits.Tunnels is where it is left out.
const DefaultTunnels = 1024

const defaultIdle = 10 * time.Minute

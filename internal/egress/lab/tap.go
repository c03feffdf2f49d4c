package lab

import (
	"context"
	"encoding/binary"
	"maps"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The protocols that a tap tells apart. Everything else on the link is Other,
// by its number.
const (
	TCP       = "tcp"
	UDP       = "udp"
	ICMP      = "icmp"
	ICMPv6    = "icmpv6"
	Neighbour = "neighbour" // ARP, neighbour discovery, group membership: the link itself
	Other     = "other"
)

// maxFlows bounds what a tap keeps apart; what is more is counted as one flow.
const maxFlows = 1 << 16

// Flow is what packets have in common. Ports are 0 where a protocol has none.
type Flow struct {
	Protocol    string
	Source      netip.Addr
	Destination netip.AddrPort
	SYN         bool // of TCP: opens a connection
	Multipath   bool // of TCP: carries an option of Multipath TCP
}

// Tap counts every packet that arrives at any link of a namespace, before any
// rule of the namespace is asked.
type Tap struct {
	file *os.File
	done chan struct{}

	mu      sync.Mutex
	flows   map[Flow]int64
	changed chan struct{}
}

// tap opens one.
func (n *Namespace) tap() (*Tap, error) {
	t := &Tap{done: make(chan struct{}), flows: map[Flow]int64{}, changed: make(chan struct{})}
	err := n.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
		}
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL)})
		}
		if err != nil {
			unix.Close(fd)
			return err
		}
		t.file = os.NewFile(uintptr(fd), "tap "+n.Name)
		return nil
	})
	if err != nil {
		return nil, &Error{"tap " + n.Name, err}
	}
	go t.read()
	return t, nil
}

func (t *Tap) read() {
	defer close(t.done)
	frame := make([]byte, 1<<16)
	for {
		n, err := t.file.Read(frame)
		if err != nil {
			return // closed
		}
		flow := parse(frame[:n])
		t.mu.Lock()
		if _, known := t.flows[flow]; !known && len(t.flows) >= maxFlows {
			flow = Flow{Protocol: Other}
		}
		if t.flows[flow]++; t.flows[flow] == 1 || flow == planeBarrier {
			close(t.changed)
			t.changed = make(chan struct{})
		}
		t.mu.Unlock()
	}
}

// Mark is what the tap has counted so far.
func (t *Tap) Mark() map[Flow]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.flows)
}

// Since returns what was counted after a mark, without Neighbour and without the
// lab's own probes.
func (t *Tap) Since(mark map[Flow]int64) map[Flow]int64 {
	now := t.Mark()
	for flow, count := range now {
		if now[flow] = count - mark[flow]; now[flow] == 0 || flow.Protocol == Neighbour || barriers.Contains(flow.Destination.Addr()) || flow.Destination.Addr() == publicEdge || flow == planeBarrier {
			delete(now, flow)
		}
	}
	return now
}

// Lost returns how many packets the tap could not take since it was asked last.
// Where that is not 0, nothing that was counted proves an absence.
// Errors: *Error.
func (t *Tap) Lost() (n uint32, err error) {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return 0, &Error{"statistics of tap", err}
	}
	var stats *unix.TpacketStats
	var failed error
	if err := raw.Control(func(fd uintptr) {
		stats, failed = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	}); err != nil {
		return 0, &Error{"statistics of tap", err}
	}
	if failed != nil {
		return 0, &Error{"statistics of tap", failed}
	}
	return stats.Drops, nil
}

// sees waits until a packet to an address was counted.
func (t *Tap) sees(ctx context.Context, to netip.Addr) error {
	return t.wait(ctx, "a packet to "+to.String(), func() bool {
		for flow := range t.flows {
			if flow.Destination.Addr() == to {
				return true
			}
		}
		return false
	})
}

// wait waits for a condition, which is asked under the lock.
func (t *Tap) wait(ctx context.Context, what string, met func() bool) error {
	for {
		t.mu.Lock()
		found, changed := met(), t.changed
		t.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-ctx.Done():
			return &Error{"wait for " + what, ctx.Err()}
		case <-changed:
		}
	}
}

func (t *Tap) close() {
	if t != nil {
		t.file.Close()
		<-t.done
	}
}

// parse says what a frame is. It looks at no length that it has not checked;
// what it does not know is Other.
func parse(frame []byte) Flow {
	const header = 14
	if len(frame) < header {
		return Flow{Protocol: Other}
	}
	body := frame[header:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_ARP:
		return Flow{Protocol: Neighbour}
	case unix.ETH_P_IP:
		if len(body) < 20 || int(body[0]&15)*4 < 20 || len(body) < int(body[0]&15)*4 {
			return Flow{Protocol: Other}
		}
		source, _ := netip.AddrFromSlice(body[12:16])
		to, _ := netip.AddrFromSlice(body[16:20])
		return transport(body[9], source, to, body[int(body[0]&15)*4:])
	case unix.ETH_P_IPV6:
		if len(body) < 40 {
			return Flow{Protocol: Other}
		}
		source, _ := netip.AddrFromSlice(body[8:24])
		to, _ := netip.AddrFromSlice(body[24:40])
		next, rest := body[6], body[40:]
		if next == unix.IPPROTO_HOPOPTS && len(rest) >= 8 && len(rest) >= 8+int(rest[1])*8 {
			next, rest = rest[0], rest[8+int(rest[1])*8:]
		}
		return transport(next, source, to, rest)
	}
	return Flow{Protocol: Other}
}

func transport(protocol byte, source, to netip.Addr, body []byte) Flow {
	flow := Flow{Protocol: Other, Source: source, Destination: netip.AddrPortFrom(to, 0)}
	port := func() {
		if len(body) >= 4 {
			flow.Destination = netip.AddrPortFrom(to, binary.BigEndian.Uint16(body[2:]))
		}
	}
	switch protocol {
	case unix.IPPROTO_TCP:
		flow.Protocol = TCP
		port()
		if len(body) >= 20 {
			const syn, ack = 2, 16
			flow.SYN = body[13]&(syn|ack) == syn
			flow.Multipath = multipath(body)
		}
	case unix.IPPROTO_UDP:
		flow.Protocol = UDP
		port()
	case unix.IPPROTO_ICMP:
		flow.Protocol = ICMP
	case unix.IPPROTO_ICMPV6:
		flow.Protocol = ICMPv6
		// 130–132 and 143 are group membership, 133–137 neighbour discovery.
		if len(body) > 0 && (body[0] >= 130 && body[0] <= 137 || body[0] == 143) {
			flow.Protocol = Neighbour
		}
	}
	return flow
}

// multipath looks for option 30 of a TCP header.
func multipath(header []byte) bool {
	const end, nothing, mptcp = 0, 1, 30
	options := header[20:max(20, min(len(header), int(header[12]>>4)*4))]
	for len(options) > 0 && options[0] != end {
		switch {
		case options[0] == mptcp:
			return true
		case options[0] == nothing:
			options = options[1:]
		case len(options) < 2 || options[1] < 2 || int(options[1]) > len(options):
			return false
		default:
			options = options[options[1]:]
		}
	}
	return false
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

package guard

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"syscall"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// resolver asks one resolver, at a literal address. It is not the system's: that
// one reads a hosts file and a search list, asks again, and shows no message.
type resolver struct{ address netip.AddrPort }

// lookup asks for the A and the AAAA records of host, one question each, over
// one socket of a fresh port, and waits for both answers: a judgement of the
// first would leave the second unjudged. A truncated answer is asked for once
// more by TCP. There is no second try and no cache.
// Errors: a *policy.Refusal with ReasonResolveFailed: 504 if an answer did not
// come in time or there is no resolver, else 502; ReasonLimit for no descriptor.
func (r resolver) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	name, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return nil, unresolved("name", "a name", host)
	}
	conn, err := open(unix.SOCK_DGRAM, r.address, nil)
	if err != nil {
		return nil, unanswered(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })()

	asked, err := questions(name)
	if err != nil {
		return nil, unresolved("question", "one that can be asked", err.Error())
	}
	for i := range asked {
		if _, err := conn.Write(asked[i].packed); err != nil {
			return nil, unanswered(err)
		}
	}
	buffer := make([]byte, maxUDP)
	for left := len(asked); left > 0; {
		n, err := conn.Read(buffer)
		if err != nil && !errors.Is(err, io.EOF) { // which an empty message looks like
			return nil, unanswered(err)
		}
		for i := range asked {
			q := &asked[i]
			if q.done {
				continue
			}
			reply, err := q.read(buffer[:n])
			if errors.Is(err, errNotOurs) {
				continue // forged or late: the answer may still come
			}
			if err == nil && reply.truncated {
				reply, err = r.byTCP(ctx, q)
			}
			if err != nil {
				return nil, err
			}
			q.done, q.addresses = true, reply.addresses
			left--
			break
		}
	}
	addresses := append(asked[0].addresses, asked[1].addresses...)
	if len(addresses) == 0 {
		return nil, unresolved("answers", "an address", "none")
	}
	return addresses, nil
}

// byTCP asks q again.
func (r resolver) byTCP(ctx context.Context, q *question) (reply, error) {
	conn, err := openTCP(ctx, r.address, nil)
	if err != nil {
		return reply{}, unanswered(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q.packed))), q.packed...)); err != nil {
		return reply{}, unanswered(err)
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return reply{}, unanswered(err)
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, message); err != nil {
		return reply{}, unanswered(err)
	}
	got, err := q.read(message)
	if errors.Is(err, errNotOurs) || err == nil && got.truncated {
		return reply{}, unresolved("message", "the whole answer", "another")
	}
	return got, err
}

func unresolved(field, expected, got string) error {
	return refuse(policy.ReasonResolveFailed, 502, field, expected, got)
}

// unanswered is a resolver that could not be asked, or did not answer.
func unanswered(err error) error {
	if exhausted(err) {
		return refuse(policy.ReasonLimit, 503, "descriptors", "one for the resolver", err.Error())
	}
	return refuse(policy.ReasonResolveFailed, 504, "resolver", "an answer in time", err.Error())
}

// exhausted reports whether err says that this process, or the machine, has no
// descriptors, ports or memory left.
func exhausted(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

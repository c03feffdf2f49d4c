package guard

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

const (
	maxHops    = 8    // CNAMEs between the name that was asked and its addresses
	maxUDP     = 1232 // what we say that we take in one datagram
	maxAliases = 32   // CNAMEs of a whole message; only a chain of maxHops is followed
)

// question is one that was asked.
type question struct {
	id        uint16
	asks      dnsmessage.Question
	packed    []byte
	done      bool
	addresses []netip.Addr
}

// questions packs the A and the AAAA question for name, under ids that nobody
// can guess.
func questions(name dnsmessage.Name) (*[2]question, error) {
	out := new([2]question) // names are large, and this is the deepest that a request gets
	var ids [4]byte
	_, _ = rand.Read(ids[:]) // never fails
	for i, t := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		q := &out[i]
		q.id = binary.BigEndian.Uint16(ids[2*i:])
		if i == 1 && q.id == out[0].id {
			q.id++
		}
		q.asks = dnsmessage.Question{Name: name, Type: t, Class: dnsmessage.ClassINET}
		b := dnsmessage.NewBuilder(make([]byte, 0, 300), dnsmessage.Header{ID: q.id, RecursionDesired: true})
		var header dnsmessage.ResourceHeader
		packed, err := []byte(nil), errors.Join(b.StartQuestions(), b.Question(q.asks), b.StartAdditionals(),
			header.SetEDNS0(maxUDP, dnsmessage.RCodeSuccess, false), b.OPTResource(header, dnsmessage.OPTResource{}))
		if err == nil {
			packed, err = b.Finish()
		}
		if err != nil {
			return nil, err
		}
		q.packed = packed
	}
	return out, nil
}

// reply is what a message answers.
type reply struct {
	addresses []netip.Addr
	truncated bool
}

// errNotOurs is a message that is no answer to the question.
var errNotOurs = errors.New("not an answer to this question")

// read takes what message answers q: the addresses of the name that was asked,
// or of where its CNAMEs lead inside this message. Records of other owners, types
// and classes are not looked at; none of them can put an address in.
// Bounds: linear in the message. It stops after policy.MaxAnswers+1 addresses,
// which are refused anyway.
// Errors: errNotOurs; a *policy.Refusal with ReasonResolveFailed, 502.
func (q *question) read(message []byte) (reply, error) {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil || h.ID != q.id || !h.Response || h.OpCode != 0 {
		return reply{}, errNotOurs
	}
	got, err := p.Question()
	if err != nil || got.Type != q.asks.Type || got.Class != q.asks.Class || !sameName(&got.Name, &q.asks.Name) {
		return reply{}, errNotOurs
	}
	if err := p.SkipQuestion(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return reply{}, errNotOurs
	}
	switch {
	case h.Truncated:
		return reply{truncated: true}, nil
	case h.RCode == dnsmessage.RCodeNameError:
		return reply{}, nil // there may be an answer to the other question, if hardly
	case h.RCode != dnsmessage.RCodeSuccess:
		return reply{}, unresolved("rcode", "NOERROR", strconv.Itoa(int(h.RCode)))
	}
	records, err := readAnswers(&p, q.asks.Type)
	if err != nil {
		return reply{}, err
	}
	owner, err := records.follow(&q.asks.Name)
	if err != nil {
		return reply{}, err
	}
	var out reply
	for i := range records.addresses {
		if a := &records.addresses[i]; sameName(&a.owner, owner) && len(out.addresses) <= policy.MaxAnswers {
			out.addresses = append(out.addresses, a.address.Unmap())
		}
	}
	return out, nil
}

// answers are the records of a message that matter.
type answers struct {
	aliases   []alias
	addresses []owned
}

type alias struct{ owner, target dnsmessage.Name }

type owned struct {
	owner   dnsmessage.Name
	address netip.Addr
}

func readAnswers(p *dnsmessage.Parser, want dnsmessage.Type) (answers, error) {
	var out answers
	for {
		h, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return out, nil
		}
		switch {
		case err != nil:
		case h.Class != dnsmessage.ClassINET:
			err = p.SkipAnswer()
		case h.Type == dnsmessage.TypeCNAME:
			err = out.alias(p, &h.Name)
		case h.Type == want:
			err = out.address(p, &h.Name, want)
		default:
			err = p.SkipAnswer()
		}
		if err != nil {
			return out, unresolved("message", "a record", err.Error())
		}
	}
}

func (r *answers) alias(p *dnsmessage.Parser, owner *dnsmessage.Name) error {
	target, err := p.CNAMEResource()
	switch {
	case err != nil:
		return err
	case len(r.aliases) == maxAliases:
		return errors.New("more than 32 aliases")
	}
	r.aliases = append(r.aliases, alias{*owner, target.CNAME})
	return nil
}

func (r *answers) address(p *dnsmessage.Parser, owner *dnsmessage.Name, family dnsmessage.Type) error {
	var a netip.Addr
	if family == dnsmessage.TypeA {
		four, err := p.AResource()
		if err != nil {
			return err
		}
		a = netip.AddrFrom4(four.A)
	} else {
		six, err := p.AAAAResource()
		if err != nil {
			return err
		}
		a = netip.AddrFrom16(six.AAAA)
	}
	r.addresses = append(r.addresses, owned{*owner, a})
	return nil
}

// follow returns where the aliases lead from a name.
func (r *answers) follow(at *dnsmessage.Name) (*dnsmessage.Name, error) {
	for hops := 0; ; hops++ {
		var next *dnsmessage.Name
		for i := range r.aliases {
			a := &r.aliases[i]
			switch {
			case !sameName(&a.owner, at):
			case next != nil && !sameName(next, &a.target):
				return nil, unresolved("message", "one alias of a name", "two")
			default:
				next = &a.target
			}
		}
		switch {
		case next == nil:
			return at, nil
		case hops == maxHops:
			return nil, unresolved("message", "at most 8 aliases in a row", "more, or a circle")
		}
		at = next
	}
}

// sameName compares names as the system of names does: ASCII letters are folded.
func sameName(a, b *dnsmessage.Name) bool {
	if a.Length != b.Length {
		return false
	}
	for i := range a.Length {
		if lower(a.Data[i]) != lower(b.Data[i]) {
			return false
		}
	}
	return true
}

package lab

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// Query is one question that reached the resolver.
type Query struct {
	Name    string // lower case, without the last dot
	Type    uint16
	Network string // udp or tcp
	Nth     int    // how often this name was asked for this type before, from 0
}

// Answer makes the replies to a question from an empty one: usually it alone,
// filled in. None is silence; several arrive one after the other.
type Answer func(q Query, empty *dns.Msg) []*dns.Msg

// Resolver is a scripted DNS server with a log.
type Resolver struct {
	mu      sync.Mutex
	answers map[string]Answer
	asked   map[Query]int
	log     []Query
	servers []*dns.Server
	running sync.WaitGroup
}

// maxLog bounds the log; a question beyond it has no answer.
const maxLog = 1 << 17

func newResolver() *Resolver {
	return &Resolver{answers: map[string]Answer{}, asked: map[Query]int{}}
}

// Script sets what is answered for a name, in lower case and without the last
// dot, and forgets how often it was asked. A name without a script does not
// exist.
func (r *Resolver) Script(name string, a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[name] = a
	for q := range r.asked {
		if q.Name == name {
			delete(r.asked, q)
		}
	}
}

// Mark is where the log is now.
func (r *Resolver) Mark() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.log)
}

// Since returns the questions after a mark, in the order of arrival.
func (r *Resolver) Since(mark int) []Query {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log[min(mark, len(r.log)):])
}

// serve answers at an address of a namespace until close.
func (r *Resolver) serve(n *Namespace, at netip.AddrPort) error {
	packets, err := n.ListenPacket(at)
	if err != nil {
		return &Error{"resolver by UDP", err}
	}
	listener, err := n.Listen(at)
	if err != nil {
		packets.Close()
		return &Error{"resolver by TCP", err}
	}
	for _, s := range []*dns.Server{{PacketConn: packets}, {Listener: listener}} {
		network := UDP
		if s.Listener != nil {
			network = TCP
		}
		s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) { r.handle(w, m, network) })
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		r.servers = append(r.servers, s)
		failed := make(chan error, 1)
		r.running.Go(func() { failed <- s.ActivateAndServe() })
		select {
		case <-started:
		case err := <-failed:
			return &Error{"resolver", err}
		}
	}
	return nil
}

func (r *Resolver) handle(w dns.ResponseWriter, m *dns.Msg, network string) {
	if len(m.Question) != 1 {
		return
	}
	q := Query{Name: strings.ToLower(strings.TrimSuffix(m.Question[0].Name, ".")), Type: m.Question[0].Qtype}
	r.mu.Lock()
	if len(r.log) >= maxLog {
		r.mu.Unlock()
		return
	}
	answer := r.answers[q.Name]
	nth := r.asked[q]
	r.asked[q]++
	q.Nth, q.Network = nth, network
	r.log = append(r.log, q)
	r.mu.Unlock()

	empty := new(dns.Msg).SetReply(m)
	empty.RecursionAvailable = true
	if answer == nil {
		answer = Code(dns.RcodeNameError)
	}
	for _, reply := range answer(q, empty) {
		w.WriteMsg(reply) // an asker that went away needs none
	}
}

func (r *Resolver) close() {
	for _, s := range r.servers {
		s.Shutdown()
	}
	r.running.Wait()
}

// Code answers with a code and nothing else.
func Code(code int) Answer {
	return func(_ Query, m *dns.Msg) []*dns.Msg {
		m.Rcode = code
		return []*dns.Msg{m}
	}
}

// Addresses answers with addresses of both families, each to its own question.
func Addresses(addresses ...netip.Addr) Answer {
	return func(q Query, m *dns.Msg) []*dns.Msg {
		for _, a := range addresses {
			if rr := Record(q.Name, a); rr.Header().Rrtype == q.Type {
				m.Answer = append(m.Answer, rr)
			}
		}
		return []*dns.Msg{m}
	}
}

// Alias answers with an alias, and what stands behind it.
func Alias(target string, addresses ...netip.Addr) Answer {
	return func(q Query, m *dns.Msg) []*dns.Msg {
		m.Answer = append(m.Answer, AliasRecord(q.Name, target))
		q.Name = target
		return Addresses(addresses...)(q, m)
	}
}

// Record is an A record of an IPv4 address and an AAAA record of any other,
// mapped ones included. Its time to live is 0.
func Record(name string, a netip.Addr) dns.RR {
	h := dns.RR_Header{Name: dns.Fqdn(name), Class: dns.ClassINET}
	if a.Is4() {
		h.Rrtype = dns.TypeA
		return &dns.A{Hdr: h, A: a.AsSlice()}
	}
	h.Rrtype = dns.TypeAAAA
	return &dns.AAAA{Hdr: h, AAAA: a.AsSlice()}
}

// AliasRecord is a CNAME record.
func AliasRecord(name, target string) dns.RR {
	return &dns.CNAME{Hdr: dns.RR_Header{Name: dns.Fqdn(name), Class: dns.ClassINET, Rrtype: dns.TypeCNAME}, Target: dns.Fqdn(target)}
}

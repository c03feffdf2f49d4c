package guard_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/checkfu/checkfu/internal/egress/guard"
)

// FuzzHello: a hello that is let through is read alike by a reader of this test,
// which shares no line with the one in use; and however it comes.
func FuzzHello(f *testing.F) {
	plain := clientHello(f, "tls.test")
	front, exts := takeApart(plain)
	f.Add(plain)
	f.Add(putTogether(front, exts, 40))
	f.Add(putTogether(front, []extension{names("tls.test")}, 1<<14))
	f.Add(putTogether(front, []extension{names("tls.test", "other.test")}, 1<<14))
	f.Add(putTogether(front, []extension{names("tls.test"), names("other.test")}, 1<<14))
	f.Add(putTogether(front, []extension{names("tls.test"), outerHello}, 1<<14))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, taken, err := guard.ReadHelloFrom(string(data), len(data)+1, nil)
		slow, _, slowErr := guard.ReadHelloFrom(string(data), 1, nil)
		if (err == nil) != (slowErr == nil) || h != slow {
			t.Fatalf("at once %+v, %v; byte by byte %+v, %v", h, err, slow, slowErr)
		}
		if err != nil {
			return
		}
		if !strings.HasPrefix(string(data), string(taken)) {
			t.Fatal("other bytes are passed on than came")
		}
		all, kinds, ok := serverNames(data)
		if !ok {
			t.Fatalf("a hello is let through (%+v) that another reader cannot read", h)
		}
		if len(all) > 1 || len(all) == 1 && all[0] != h.ServerName || len(all) == 0 && h.ServerName != "" {
			t.Fatalf("%q is let through as %q", all, h.ServerName)
		}
		if h.ECH != slices.Contains(kinds, 0xfe0d) {
			t.Fatalf("extensions %x are let through as %+v", kinds, h)
		}
	})
}

// serverNames reads all names and the kinds of all extensions of a ClientHello,
// without judging any of it.
func serverNames(data []byte) (found []string, kinds []uint16, ok bool) {
	var message []byte
	for len(data) >= 5 && (len(message) < 4 || len(message) < 4+int(message[1])<<16+int(message[2])<<8+int(message[3])) {
		n := int(binary.BigEndian.Uint16(data[3:]))
		if len(data) < 5+n {
			break
		}
		if data[0] == 22 { // others are passed over, as alerts may be
			message = append(message, data[5:5+n]...)
		}
		data = data[5+n:]
	}
	r := reader{rest: message}
	r.take(4 + 2 + 32)
	r.take(r.number(1))
	r.take(r.number(2))
	r.take(r.number(1))
	if len(r.rest) == 0 {
		return nil, nil, !r.short
	}
	extensions := reader{rest: r.take(r.number(2))}
	for len(extensions.rest) > 0 && !extensions.short {
		kind := extensions.number(2)
		body := reader{rest: extensions.take(extensions.number(2))}
		kinds = append(kinds, uint16(kind))
		if kind != 0 {
			continue
		}
		list := reader{rest: body.take(body.number(2))}
		for len(list.rest) > 0 && !list.short {
			kind := list.number(1)
			name := list.take(list.number(2))
			if kind == 0 {
				found = append(found, string(name))
			}
		}
	}
	return found, kinds, !r.short && !extensions.short
}

type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.short = true
		n = len(r.rest)
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) number(size int) (n int) {
	for _, b := range r.take(size) {
		n = n<<8 | int(b)
	}
	return n
}

// FuzzAnswer: an address that is taken from a message, another reader of DNS
// finds there too, for the name that was asked or where its aliases lead.
func FuzzAnswer(f *testing.F) {
	const host, id = "allowed.test", 4711
	question := new(dns.Msg).SetQuestion(host+".", dns.TypeA)
	question.Id = id
	add := func(change func(*dns.Msg)) {
		m := new(dns.Msg).SetReply(question)
		change(m)
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	alias := func(from, to string) dns.RR { return &dns.CNAME{Hdr: header(from, dns.TypeCNAME), Target: to} }
	add(func(m *dns.Msg) { m.Answer = []dns.RR{a(host+".", pub)} })
	add(func(m *dns.Msg) { m.Answer = []dns.RR{a(host+".", pub), a(host+".", private)} })
	add(func(m *dns.Msg) {
		m.Compress = true
		m.Answer = []dns.RR{alias(host+".", "c.test."), a("c.test.", pub)}
	})
	add(func(m *dns.Msg) { m.Answer = []dns.RR{alias(host+".", "c.test."), alias("c.test.", host+".")} })
	add(func(m *dns.Msg) { m.Answer = []dns.RR{a("other.test.", pub)} })
	add(func(m *dns.Msg) { m.Truncated = true })
	add(func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure })
	f.Fuzz(func(t *testing.T, message []byte) {
		addresses, truncated, err := guard.ReadAnswer(message, host, false, id)
		if err != nil || len(addresses) == 0 {
			return
		}
		if truncated || len(addresses) > 33 {
			t.Fatalf("%d addresses, truncated %v", len(addresses), truncated)
		}
		var m dns.Msg
		if m.Unpack(message) != nil {
			return // broken behind the answers, where we do not look
		}
		owners := []string{strings.ToLower(host) + "."}
		for range 8 {
			for _, rr := range m.Answer {
				if c, ok := rr.(*dns.CNAME); ok && c.Hdr.Class == dns.ClassINET && strings.EqualFold(c.Hdr.Name, owners[len(owners)-1]) {
					owners = append(owners, strings.ToLower(c.Target))
					break
				}
			}
		}
		for _, got := range addresses {
			if !slices.ContainsFunc(m.Answer, func(rr dns.RR) bool {
				r, ok := rr.(*dns.A)
				if !ok || r.Hdr.Class != dns.ClassINET || !slices.Contains(owners, strings.ToLower(r.Hdr.Name)) {
					return false
				}
				at, ok := netip.AddrFromSlice(r.A)
				return ok && at.Unmap() == got
			}) {
				t.Fatalf("%s was taken from %v", got, &m)
			}
		}
	})
}

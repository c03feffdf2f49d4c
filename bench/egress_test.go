package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// An answer leads to the side whose number the name has, and nowhere else.
func TestNameReply(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind dnsmessage.Type
		want []netip.Addr
	}{
		{"side3.test.", dnsmessage.TypeA, []netip.Addr{originOf(3)}},
		{"n12.side3.test.", dnsmessage.TypeA, []netip.Addr{originOf(3)}},
		{"side3.test.", dnsmessage.TypeAAAA, nil},
		{"other.test.", dnsmessage.TypeA, nil},
	} {
		b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, RecursionDesired: true})
		q := dnsmessage.Question{Name: dnsmessage.MustNewName(tt.name), Type: tt.kind, Class: dnsmessage.ClassINET}
		if err := errors.Join(b.StartQuestions(), b.Question(q)); err != nil {
			t.Fatal(err)
		}
		message, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		var m dnsmessage.Message
		if err := m.Unpack(nameReply(message)); err != nil || m.ID != 7 || !m.Response || len(m.Answers) != len(tt.want) {
			t.Errorf("%s %v: %+v, %v", tt.name, tt.kind, m, err)
			continue
		}
		for i, a := range m.Answers {
			if got := netip.AddrFrom4(a.Body.(*dnsmessage.AResource).A); got != tt.want[i] {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want[i])
			}
		}
	}
	if got := nameReply([]byte("no message")); got != nil {
		t.Errorf("%q", got)
	}
}

// The client counts what a proxy does, and says what it does not.
func TestLoad(t *testing.T) {
	listen := func(serve func(net.Conn)) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go accept(ln, serve)
		return ln.Addr().String()
	}
	says := func(answer string, then func(net.Conn)) string {
		return listen(func(c net.Conn) {
			if _, err := readHead(c); err != nil {
				return
			}
			_, _ = io.WriteString(c, answer)
			then(c)
		})
	}
	const yes, no = "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 403 No\r\n\r\n"
	short := 20 * time.Millisecond
	for name, tt := range map[string]struct {
		order order
		fails string
	}{
		"requests":                   {order{Do: "connect", Proxy: says(yes, echo), Clients: 3, For: short}, ""},
		"many names":                 {order{Do: "connect", Proxy: says(yes, echo), Clients: 3, For: time.Minute, Names: 5}, ""},
		"a hello":                    {order{Do: "connect", Proxy: says(yes, echo), Clients: 1, For: short, Hello: true}, ""},
		"a refusal":                  {order{Do: "connect", Proxy: says(no, func(net.Conn) {}), Clients: 1, For: short, Refused: true}, ""},
		"a refusal that was none":    {order{Do: "connect", Proxy: says(yes, echo), Clients: 1, For: short, Refused: true}, "200"},
		"a refusal that was not due": {order{Do: "connect", Proxy: says(no, func(net.Conn) {}), Clients: 1, For: short}, "403"},
		"an origin that is mute":     {order{Do: "connect", Proxy: says(yes, func(net.Conn) {}), Clients: 1, For: short}, "EOF"},
		"a stream":                   {order{Do: "bulk", Proxy: says(yes, pour), Clients: 2, For: short}, ""},
		"a stream that ends":         {order{Do: "bulk", Proxy: says(yes, func(net.Conn) {}), Clients: 1, For: short}, "ended"},
		"tunnels that stay":          {order{Do: "hold", Proxy: says(yes, echo), Clients: 5, Exchange: 100 << 10}, ""},
		"no such order":              {order{Do: "dance"}, "dance"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.order.Target = "side0.test:443"
			var l load
			got := l.follow(tt.order)
			defer l.follow(order{Do: "let go"})
			if (tt.fails == "") != (got.Failures == 0) || !strings.Contains(got.Err, tt.fails) {
				t.Fatalf("%+v", got)
			}
			if tt.fails == "" && (got.Done == 0 || tt.order.Names > 0 && got.Done != 5 || tt.order.Do == "bulk" && got.Bytes == 0 || tt.order.Do == "hold" && len(l.held) != 5) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A peer that is not there is a row with the command that installs it, and the
// bound of the others is not lifted for it.
func TestComparison(t *testing.T) {
	all := []proxy{{name: ours}, {name: ourTLS}, {name: "here"}, {name: "gone", missing: "not installed: make it"}}
	got := map[string]map[string]samples{ours: {"cpu": {13}}, ourTLS: {"cpu": {14}}, "here": {"cpu": {10}}}
	var r report
	r.compare(all, got, "cpu", line{what: "CPU", unit: "µs", bound: 1.2})
	want := []string{"informative", "**fails**", "not installed: make it"}
	for i, l := range r.lines {
		if i >= len(want) || l.holds() != want[i] {
			t.Errorf("line %d: %s", i, l.markdown())
		}
	}
	if len(r.lines) != len(want) {
		t.Errorf("%d lines", len(r.lines))
	}
	if text := eachSide(all, got, "cpu", "%.0f"); text != "guard 13, guard (tls) 14, here 10" {
		t.Errorf("%q", text)
	}
}

// What a peer is given names its own side and nobody else's.
func TestPeers(t *testing.T) {
	for i, e := range peersOfGuard {
		p := proxy{name: e.program, side: i}
		text := e.config("/dir", p)
		if e.files != nil {
			for _, file := range e.files(p) {
				text += file
			}
		}
		if !strings.Contains(text, hostOf(i)) || !strings.Contains(text, proxyAddr.String()) || strings.Contains(text, "%!") {
			t.Errorf("%s: %s", e.program, text)
		}
	}
	if len(peersOfGuard)+3 > maxSides {
		t.Error("more sides than origins")
	}
	missing := egressPeer{program: "checkfu-no-such-proxy", install: "make it"}
	if p, err := missing.start(context.Background(), nil, nil, proxy{}); err != nil || p.missing != "not installed: make it" || p.stop != nil {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestQuantile(t *testing.T) {
	s := samples{5, 1, 3, 2, 4}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := s.quantile(q); got != want {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if got := (samples{}).quantile(0.5); got != 0 {
		t.Errorf("of none: %v", got)
	}
}

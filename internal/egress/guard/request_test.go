package guard_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/guard"
)

func connect(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

// What a head alone decides: status, reason, nothing dialled, nothing asked.
func TestAHeadIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	guarded := serve(t, nil)
	many := strings.Repeat("X-A: b\r\n", 65)
	for _, c := range []struct {
		id, head string
		status   int
		reason   string
	}{
		{"E02", connect("allowed.test:8443"), 403, "port_not_allowlisted"},
		{"E03", connect("sub.allowed.test:443"), 403, "not_allowlisted"},
		{"E04", connect("evilallowed.test:443"), 403, "not_allowlisted"},
		{"E05", connect("allowed.test.evil.test:443"), 403, "not_allowlisted"},
		{"E07", connect("allowed.test.:443"), 403, "host_syntax"},
		{"E08", connect(".allowed.test:443"), 400, "host_syntax"},
		{"E08", connect("allowed..test:443"), 400, "host_syntax"},
		{"E09", "CONNECT allowed\u3002test:443 HTTP/1.1\r\n\r\n", 400, "host_syntax"},
		{"E10", "CONNECT \uff41llowed.test:443 HTTP/1.1\r\n\r\n", 400, "host_syntax"},
		{"E11", "CONNECT al\u00adlowed.test:443 HTTP/1.1\r\n\r\n", 400, "host_syntax"},
		{"E12", "CONNECT \u2460\u2461\u2466.0.0.1:443 HTTP/1.1\r\n\r\n", 400, "host_syntax"},
		{"E13", connect("xn--llowed-fuf.test:443"), 403, "not_allowlisted"},
		{"E15", connect("allowed%2etest:443"), 400, "host_syntax"},
		{"E16", "CONNECT other.test\x00.allowed.test:443 HTTP/1.1\r\n\r\n", 400, "host_syntax"},
		{"E17", connect("allowed.test@other.test:443"), 400, "host_syntax"},
		{"E18", connect("x@allowed.test:443"), 400, "host_syntax"},
		{"E19", connect("[allowed.test]:443"), 400, "host_syntax"},
		{"E20", connect("allowed.test:443/x"), 400, "port_syntax"},
		{"E20", connect("allowed.test:443?x"), 400, "port_syntax"},
		{"E20", connect("allowed.test:443#x"), 400, "port_syntax"},
		{"E21", connect("allowed.test"), 400, "port_syntax"},
		{"E21", connect("allowed.test:"), 400, "port_syntax"},
		{"E22", connect("allowed.test:0"), 400, "port_syntax"},
		{"E22", connect("allowed.test:0443"), 400, "port_syntax"},
		{"E22", connect("allowed.test:+443"), 400, "port_syntax"},
		{"E22", connect("allowed.test:https"), 400, "port_syntax"},
		{"E23", connect("allowed.test:65979"), 400, "port_syntax"},
		{"E24", connect("allowed.test:443:443"), 400, "port_syntax"},
		{"E25", connect("45.33.32.11:443"), 403, "literal"},
		{"E26", connect(pub + ":443"), 403, "literal"},
		{"E27", connect("[2a00:1450:4001:10::10]:443"), 403, "literal"},
		{"E28", connect("757145611:443"), 403, "literal"},
		{"E28", connect("0x2d21200b:443"), 403, "literal"},
		{"E28", connect("055.041.040.013:443"), 403, "literal"},
		{"E28", connect("45.2171915:443"), 403, "literal"},
		{"E29", connect("[fe80::1%25eth0]:443"), 400, "host_syntax"},
		{"E30", connect("[::ffff:1.2.3.4%x.allowed.test]:443"), 400, "host_syntax"},
		{"E31", connect(strings.Repeat("a", 64) + ".test:443"), 400, "host_syntax"},
		{"E31", connect(strings.Repeat("a.", 130) + "test:443"), 400, "host_syntax"},
		{"B33", connect("2130706433:443"), 403, "literal"},
		{"B33", connect("0x7f000001:443"), 403, "literal"},
		{"B33", connect("127.1:443"), 403, "literal"},
		{"B33", connect("0177.0.0.1:443"), 403, "literal"},
		{"B33", connect("[::ffff:127.0.0.1]:443"), 403, "literal"},
		{"B33", connect("[fe80::1%25lo]:443"), 400, "host_syntax"},
		{"B33", connect("aLLowed.tesT.:443"), 403, "host_syntax"},
		{"B33", connect("allowed.test%00:443"), 400, "host_syntax"},
		{"E33", "CONNECT allowed.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n", 400, "host_header_mismatch"},
		{"E33", "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:8443\r\n\r\n", 400, "host_header_mismatch"},
		{"E33", "CONNECT allowed.test:443 HTTP/1.1\r\nHost:\r\n\r\n", 400, "host_header_mismatch"},
		{"E34", "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\nHost: allowed.test:443\r\n\r\n", 400, "host_header_mismatch"},
		{"E35", "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 405, "method"},
		{"E38", "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 400, "malformed"},
		{"E39", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed"},
		{"E40", "\x05\x01\x00", 0, "malformed"},
		{"E40", "\x16\x03\x01\x00\xf0\x01", 0, "malformed"},
		{"E53", "connect allowed.test:443 HTTP/1.1\r\n\r\n", 405, "method"},
		{"E53", "CONNECT allowed.test:443 HTTP/0.9\r\n\r\n", 400, "malformed"},
		{"E53", "CONNECT allowed.test:443\r\n\r\n", 400, "malformed"},
		{"D16", connect("secret.evil.test:443"), 403, "not_allowlisted"},
		{"D26", "CONNECT allowed.test:443 HTTP/1.1\r\nX: " + strings.Repeat("x", 8<<10) + "\r\n\r\n", 431, "limit"},
		{"D26", "CONNECT allowed.test:443 HTTP/1.1\r\n" + many + "\r\n", 431, "limit"},
		{"D27", "CONNECT allowed.test:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400, "body"},
		{"D27", "CONNECT allowed.test:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 400, "body"},
		{"D27", "CONNECT allowed.test:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 400, "body"},
		{"D27", "CONNECT allowed.test:443 HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "body"},
		{"D28", "CONNECT allowed.test:443 HTTP/1.1\r\nX: a\rb\r\n\r\n", 400, "malformed"},
		{"D28", "CONNECT allowed.test:443 HTTP/1.1\r\nX: a\x00b\r\n\r\n", 400, "malformed"},
		{"D28", "CONNECT allowed.test:443 HTTP/1.1\r\nX: a\r\n b\r\n\r\n", 400, "malformed"},
		{"D28", "CONNECT allowed.test:443 HTTP/1.1\r\nX : a\r\n\r\n", 400, "malformed"},
		{"D28", "CONNECT allowed.test:443 HTTP/1.1\r\nX\r\n\r\n", 400, "malformed"},
		{"D28", "CONNECT allowed.test:443 HTTP/1.1\r\n: a\r\n\r\n", 400, "malformed"},
		{"D28", "CONNECT allowed.test:443 HTTP/1.1\r\nX: \xe9\r\n\r\n", 400, "malformed"},
		{"D28", "CONNECT  allowed.test:443 HTTP/1.1\r\n\r\n", 400, "malformed"},
		{"D28", "CONNECT allowed.test:443  HTTP/1.1\r\n\r\n", 400, "malformed"},
		{"D28", "CONNECT\tallowed.test:443 HTTP/1.1\r\n\r\n", 400, "malformed"},
		{"D28", "\r\n" + connect("allowed.test:443"), 0, "malformed"},
		{"D29", "CONNECT allowed.test:443 HTTP/1.1\n\n", 400, "malformed"},
		{"D29", "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\n\r\n", 400, "malformed"},
		{"D30", connect("other.test:443") + "payload", 403, "not_allowlisted"},
		{"D35", "TRACE / HTTP/1.1\r\n\r\n", 405, "method"},
		{"D35", "OPTIONS * HTTP/1.1\r\n\r\n", 405, "method"},
		{"D35", "CONNECT-UDP allowed.test:443 HTTP/1.1\r\n\r\n", 405, "method"},
		{"R02", connect("other.test:443"), 403, "not_allowlisted"},
		{"R03", connect("allowed.test:8443"), 403, "port_not_allowlisted"},
		{"R07", connect("other.test:443") + connect("allowed.test:443"), 403, "not_allowlisted"},
		{"R13", "GET ws://allowed.test/ HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", 405, "method"},
	} {
		t.Run(c.id+"/"+strings.ToValidUTF8(c.head[:min(len(c.head), 40)], "?"), func(t *testing.T) {
			internet.fresh(nil, nil)
			before := len(guarded.log.lines(t))
			conn := guarded.dial(t)
			conn.send(c.head)
			if got := conn.status(); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
			// One answer and the end: nothing behind a denied head is a request.
			if body := conn.end(); strings.Contains(body, "HTTP/1.1") || strings.ContainsAny(body, "0123456789") {
				t.Errorf("behind the answer came %q", body)
			}
			lines := guarded.log.lines(t)[before:]
			if len(lines) != 1 || lines[0].Decision != guard.Deny || string(lines[0].Reason) != c.reason ||
				lines[0].Status != int64(c.status) || len(lines[0].Facts) == 0 {
				t.Errorf("the log says %+v, want one denial for %s", lines, c.reason)
			}
			if asked := internet.questions(0); len(asked) != 0 {
				t.Errorf("the resolver heard %q", asked)
			}
			if took := internet.ledger(t); len(took) != 0 {
				t.Errorf("%q accepted", took)
			}
		})
	}
}

// What is admitted: one connection at exactly the address of the answer.
func TestAListedTargetIsReached(t *testing.T) {
	guarded := serve(t, nil)
	for _, c := range []struct{ id, head, host, at string }{
		{"E01", connect("allowed.test:443"), "allowed.test", pub + ":443"},
		{"E06", connect("ALLOWED.test:443"), "allowed.test", pub + ":443"},
		{"E14", connect("xn--fa-hia.de:443"), "xn--fa-hia.de", pub2 + ":443"},
		{"E33", "CONNECT allowed.test:443 HTTP/1.1\r\n\r\n", "allowed.test", pub + ":443"},
		{"E33", "CONNECT allowed.test:443 HTTP/1.1\r\nhost:\t Allowed.Test:443 \r\n\r\n", "allowed.test", pub + ":443"},
		{"E33", "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "allowed.test", pub + ":443"},
		{"E53", "CONNECT allowed.test:443 HTTP/1.0\r\n\r\n", "allowed.test", pub + ":443"},
		{"A08", "CONNECT allowed.test:443 HTTP/1.1\r\nProxy-Authorization: Bearer cfu_run_canary\r\n\r\n", "allowed.test", pub + ":443"},
		{"D26", "CONNECT allowed.test:443 HTTP/1.1\r\n" + strings.Repeat("X-A: b\r\n", 64) + "\r\n", "allowed.test", pub + ":443"},
	} {
		t.Run(c.id, func(t *testing.T) {
			internet.fresh(map[string][]string{"xn--fa-hia.de.": {pub2}}, nil)
			before := len(guarded.log.lines(t))
			conn := guarded.dial(t)
			conn.send(c.head)
			if got := conn.status(); got != 200 {
				t.Fatalf("status %d, want 200", got)
			}
			conn.echoes("ping")
			if got := internet.taken(0); got != "ping" {
				t.Errorf("the origin got %q", got)
			}
			conn.Close()
			if took := internet.ledger(t); !slices.Equal(took, []string{c.at}) {
				t.Errorf("%q accepted, want %s", took, c.at)
			}
			if asked := internet.questions(2); !slices.Equal(asked, []string{"A " + c.host + ".", "AAAA " + c.host + "."}) {
				t.Errorf("the resolver heard %q", asked)
			}
			end := guarded.log.await(t, func(l guard.Line) bool { return l.Seq > int64(before) && l.Kind == guard.KindClose })
			decision := guarded.log.lines(t)[before]
			if decision.Decision != guard.Allow || decision.Host != c.host || decision.Connected != c.at ||
				decision.Raw != strings.Split(c.head, " ")[1] || end.Request != decision.Seq ||
				*end.UpBytes != 4 || *end.DownBytes != 4 || end.End != guard.EndDone {
				t.Errorf("the log says %+v and %+v", decision, end)
			}
			if strings.Contains(guarded.log.text(), "cfu_run_canary") {
				t.Error("the log holds a header")
			}
		})
	}
}

package policy_test

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"code.dny.dev/ssrf"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// form is the grammar of a target, written a second time. It has no bound on
// the whole name.
var form = regexp.MustCompile(`\A((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?):([1-9][0-9]{0,4})\z`)

// FuzzTarget holds ParseTarget to four others: the expression above admits the
// same and nothing else; a destination can name exactly what is admitted; net/http,
// net and netip read what is admitted as the same host and port; and nobody
// reads the host as an address.
func FuzzTarget(f *testing.F) {
	for _, raw := range []string{
		"allowed.test:443", "ALLOWED.test:8443", "allowed.test.:443", "a..b:1", "allowed\u3002test:443", "al\u00adlowed.test:443",
		"other.test\x00.allowed.test:443", "x@allowed.test:443", "[allowed.test]:443", "allowed.test:443/x", "allowed.test:0443",
		"allowed.test:65979", "a:1:2", "45.33.32.11:443", "[::1]:443", "0x2d21200b:443", "127.1:443", "[fe80::1%25eth0]:443",
		"[::ffff:1.2.3.4%x.allowed.test]:443", "xn--fa-hia.de:443", "1.a:65535", "a.1b:1", "-a:1", "a-:1", "a-b:1", ":1", "a:", "",
		strings.Repeat("a", 63) + ".b:1", strings.Repeat("a", 64) + ".b:1", longName + ":443", longName + "b:443",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := policy.ParseTarget(raw)
		second := form.FindStringSubmatch(raw)
		port := 0
		if second != nil {
			port, _ = strconv.Atoi(second[2])
		}
		admitted := second != nil && len(second[1]) <= 253 && port <= 65535
		if (err == nil) != admitted {
			t.Fatalf("%q: got %v, the grammar says admitted %v", raw, err, admitted)
		}
		if err != nil {
			var refusal *policy.Refusal
			if !errors.As(err, &refusal) || target != (policy.Target{}) || refusal.Field == "" || len(refusal.Got) > 200 {
				t.Fatalf("%q: got %+v, %v", raw, target, err)
			}
			// What may be answered 403 is named by one of two reasons.
			policyOnly := refusal.Status == policy.StatusPolicy && (refusal.Reason == policy.ReasonLiteral || refusal.Reason == policy.ReasonHostSyntax && strings.Contains(raw, ".:"))
			syntaxOnly := refusal.Status == policy.StatusSyntax && (refusal.Reason == policy.ReasonHostSyntax || refusal.Reason == policy.ReasonPortSyntax)
			if !policyOnly && !syntaxOnly {
				t.Fatalf("%q: status %d for %v", raw, refusal.Status, err)
			}
			return
		}
		if target.Host != strings.ToLower(second[1]) || int(target.Port) != port || target.Raw != raw {
			t.Fatalf("%q: got %+v", raw, target)
		}
		if err := (sandbox.Destination{Host: target.Host, Port: int64(target.Port)}).Validate(); err != nil {
			t.Fatalf("%q is admitted and cannot be listed: %v", raw, err)
		}
		q, err := http.ReadRequest(bufio.NewReader(strings.NewReader("CONNECT " + raw + " HTTP/1.1\r\nHost: " + raw + "\r\n\r\n")))
		if err != nil {
			t.Fatalf("net/http refuses %q: %v", raw, err)
		}
		if !strings.EqualFold(q.URL.Hostname(), target.Host) || q.URL.Port() != second[2] || q.URL.User != nil || q.URL.Path != "" || q.Host != raw {
			t.Fatalf("net/http reads %q as %+v", raw, q.URL)
		}
		host, digits, err := net.SplitHostPort(raw)
		if err != nil || !strings.EqualFold(host, target.Host) || digits != second[2] {
			t.Fatalf("net reads %q as %q %q, %v", raw, host, digits, err)
		}
		if a, err := netip.ParseAddr(target.Host); err == nil {
			t.Fatalf("netip reads %q as %s", target.Host, a)
		}
		if spelled(target.Host) {
			t.Fatalf("an old resolver reads %q as an address", target.Host)
		}
	})
}

// spelled reports whether host is an IPv4 address to those who read one to four
// numbers, each decimal, octal or hex.
func spelled(host string) bool {
	parts := strings.Split(host, ".")
	for _, p := range parts {
		if n, err := strconv.ParseUint(p, 0, 64); strings.Contains(p, "_") || err != nil || n > 1<<32-1 {
			return false
		}
	}
	return len(parts) <= 4
}

// FuzzList compiles hosts and ports, one pair a line, and asks for each of them
// and for what lies beside it. The second implementation is the policy's own
// validation and a search through the entries.
func FuzzList(f *testing.F) {
	for _, seed := range []string{
		"", "allowed.test 443", "allowed.test 443\nallowed.test 8443\nallowed2.test 443", "allowed.test 443\nallowed.test 443",
		"*.allowed.test 443", "10.0.0.1 443", "allowed.test 0", "allowed.test 65979", "plane.test 443", "Allowed.test 443", "a 1\nb 1\na 2 tls\nb 2 opaque\nc 3 none",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		destinations := []sandbox.Destination{}
		reserved := false
		for line := range strings.Lines(text) {
			fields := append(strings.Split(strings.TrimSuffix(line, "\n"), " "), "", "")
			port, _ := strconv.ParseInt(fields[1], 10, 64)
			destinations = append(destinations, sandbox.Destination{Host: fields[0], Port: port, Mode: fields[2]})
			reserved = reserved || fields[0] == "plane.test"
		}
		list, err := policy.Compile(destinations, []string{"plane.test"})
		valid := sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: destinations}.Validate()
		if (err == nil) != (valid == nil && !reserved) {
			t.Fatalf("%q: compiled with %v, valid as a policy with %v, reserved %v", text, err, valid, reserved)
		}
		if err != nil {
			var bad *sandbox.Invalid
			if !errors.As(err, &bad) || bad.Field == "" {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		listed := func(q policy.Target) string {
			for _, d := range destinations {
				if d.Host == q.Host && d.Port == int64(q.Port) {
					return policy.ModeOf(d)
				}
			}
			return ""
		}
		for _, d := range destinations {
			port := uint16(d.Port)
			for _, q := range []policy.Target{
				{Host: d.Host, Port: port}, {Host: d.Host, Port: port + 1}, {Host: d.Host, Port: 443},
				{Host: "sub." + d.Host, Port: port}, {Host: "x" + d.Host, Port: port}, {Host: d.Host + ".test", Port: port},
				{Host: d.Host[1:], Port: port}, {Host: d.Host[strings.IndexByte(d.Host, '.')+1:], Port: port}, {Host: strings.ToUpper(d.Host), Port: port},
			} {
				mode, err := list.Match(q)
				if want := listed(q); mode != want || (err == nil) != (want != "") {
					t.Fatalf("%q: %+v has mode %q, %v; expected %q", text, q, mode, err, want)
				}
			}
		}
	})
}

// FuzzAddress compares the verdict with another author's table, which was made
// from the registries by a program.
func FuzzAddress(f *testing.F) {
	for _, v := range readGolden(f).Vectors {
		f.Add(v.Address.AsSlice())
	}
	other := ssrf.New(ssrf.WithAnyNetwork(), ssrf.WithAnyPort())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		if _, special := policy.Special(a); special == policy.Public(a) {
			t.Fatalf("%s: special and public are both %v", a, special)
		}
		if policy.Public(a) != (other.SafeAddr(a) == nil) && !explained(a) {
			t.Fatalf("%s: public here %v, there %v", a, policy.Public(a), !policy.Public(a))
		}
	})
}

func explained(a netip.Addr) bool {
	for _, d := range differences {
		if d.only(a) {
			return true
		}
	}
	return false
}

package guard_test

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/sandbox"
)

// text is a whole configuration with one thing replaced.
func text(old, replacement string) string {
	const whole = `{"v":1,"instance":"inst_1","policy_revision":"sha256:abababababababababababababababababababababababababababababababab",` +
		`"resolver":"45.33.32.53:53","allow":[{"host":"allowed.test","ports":[443,8443],"mode":"tls"},{"host":"b.test","ports":[22]}],` +
		`"reserved_hosts":["plane.test"],"infra_addrs":["45.33.32.77","2a00:1450:4001:10::77"],"ech":"deny",` +
		`"limits":{"head_bytes":8192,"head_ms":5000,"tunnels":1024,"idle_s":600},"expires_at":"2099-01-01T00:00:00.000Z"}`
	if !strings.Contains(whole, old) {
		panic(old)
	}
	return strings.Replace(whole, old, replacement, 1)
}

// E32, D18, A04: no guard starts on what is not exactly a configuration.
func TestAConfigurationIsRefused(t *testing.T) {
	for _, c := range []struct {
		id, text string
		field    string // of a *sandbox.Invalid, or the path of a *canonical.Error
	}{
		{"D18 absent list", text(`"allow":[{"host":"allowed.test","ports":[443,8443],"mode":"tls"},{"host":"b.test","ports":[22]}],`, ""), "allow"},
		{"D18 null list", text(`[{"host":"allowed.test","ports":[443,8443],"mode":"tls"},{"host":"b.test","ports":[22]}]`, "null"), "allow"},
		{"D18 bad JSON", text(`"v":1,`, `"v":1,,`), ""},
		{"D18 cut off", text(`}`, ``)[:40], ""},
		{"D18 empty", "", ""},
		{"D18 more behind", text("", "") + "{}", ""},
		{"D18 a mark in front", "\ufeff" + text("", ""), ""},
		{"D18 too long", text("", "") + strings.Repeat(" ", guard.MaxConfigBytes), "config"},
		{"E32 wildcard", text("allowed.test", "*.allowed.test"), "destinations[0].host"},
		{"E32 upper case", text("allowed.test", "Allowed.test"), "destinations[0].host"},
		{"E32 trailing dot", text("allowed.test", "allowed.test."), "destinations[0].host"},
		{"E32 literal", text("allowed.test", "45.33.32.10"), "destinations[0].host"},
		{"E32 literal IPv6", text("allowed.test", "2a00::1"), "destinations[0].host"},
		{"E32 decimal literal", text("allowed.test", "757145611"), "destinations[0].host"},
		{"E32 empty host", text("allowed.test", ""), "destinations[0].host"},
		{"E32 port 0", text("443,8443", "0"), "destinations[0].port"},
		{"E32 port 65536", text("443,8443", "65536"), "destinations[0].port"},
		{"E32 port with a fraction", text("443,8443", "443.0"), "allow[0].ports[0]"},
		{"E32 no port", text("443,8443", ""), "allow[0].ports"},
		{"E32 twice", text("443,8443", "443,443"), "destinations[1]"},
		{"E32 twice in two entries", text(`"b.test","ports":[22]`, `"allowed.test","ports":[8443]`), "destinations[2]"},
		{"E32 unknown field", text(`"ech"`, `"extra":1,"ech"`), "extra"},
		{"E32 unknown field inside", text(`"mode"`, `"wildcard":true,"mode"`), "allow[0].wildcard"},
		{"E32 wrong case", text(`"allow"`, `"Allow"`), "Allow"},
		{"E32 key twice", text(`"ech"`, `"ech":"allow","ech"`), "ech"},
		{"E32 mode", text(`"tls"`, `"plain"`), "destinations[0].mode"},
		{"A04 plane host", text("b.test", "plane.test"), "destinations[2].host"},
		{"A04 reserved host of no form", text(`["plane.test"]`, `["Plane.test"]`), "reserved_hosts[0]"},
		{"version", text(`"v":1`, `"v":2`), "v"},
		{"instance", text("inst_1", "inst 1"), "instance"},
		{"policy revision", text("sha256:ab", "sha256:AB"), "policy_revision"},
		{"resolver by name", text("45.33.32.53:53", "resolver.test:53"), "resolver"},
		{"resolver without port", text("45.33.32.53:53", "45.33.32.53"), "resolver"},
		{"resolver port 0", text("45.33.32.53:53", "45.33.32.53:0"), "resolver"},
		{"infra by name", text("45.33.32.77", "plane.test"), "infra_addrs[0]"},
		{"infra with a zone", text("45.33.32.77", "fe80::1%eth0"), "infra_addrs[0]"},
		{"ech", text(`"deny"`, `"maybe"`), "ech"},
		{"limit above", text("8192", "8193"), "limits.head_bytes"},
		{"limit below", text("600", "-1"), "limits.idle_s"},
		{"lease", text(".000Z", "Z"), "expires_at"},
		{"no lease", text(`,"expires_at":"2099-01-01T00:00:00.000Z"`, ""), "expires_at"},
	} {
		t.Run(c.id, func(t *testing.T) {
			_, err := guard.ParseConfig([]byte(c.text))
			var value *sandbox.Invalid
			var form *canonical.Error
			switch {
			case errors.As(err, &value):
				if value.Field != c.field {
					t.Errorf("%v, want field %q", err, c.field)
				}
			case errors.As(err, &form):
				if form.Path != c.field {
					t.Errorf("%v, want path %q", err, c.field)
				}
			default:
				t.Errorf("%v", err)
			}
		})
	}
}

// A14: the digest is of the bytes that were read, and of those that are written.
func TestAConfigurationIsReadAsWritten(t *testing.T) {
	c, err := guard.ParseConfig([]byte(text("", "")))
	if err != nil {
		t.Fatal(err)
	}
	if c.Digest() != canonical.Digest([]byte(text("", ""))) {
		t.Error("the digest is not that of the bytes")
	}
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := guard.ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if more, err := again.Encode(); err != nil || string(more) != string(data) || again.Digest() != canonical.Digest(data) {
		t.Errorf("%s became %s (%v)", data, more, err)
	}
	// The one that a runner compiles, and never parsed.
	if made := config(); true {
		data, err := made.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if made.Digest() != canonical.Digest(data) {
			t.Error("the digest is not that of the bytes")
		}
		var log strings.Builder
		if lines := startLine(t, made, &log); lines.Config != made.Digest() || lines.Instance != "inst_1" || lines.Prev != "" ||
			!strings.HasPrefix(lines.Listen, "tcp 127.0.0.1:") || !slices.Equal(lines.Notes, []string{"a note"}) {
			t.Errorf("the first line says %+v", lines)
		}
	}
	if _, err := (guard.Config{}).Encode(); err == nil {
		t.Error("a configuration of nothing was written")
	}
}

func startLine(t *testing.T, c guard.Config, log *strings.Builder) guard.Line {
	t.Helper()
	s := serve(t, func(o *guard.Options) {
		o.Config, o.Log, o.Notes = c, io.MultiWriter(log, o.Log), []string{"a note"}
	})
	return s.log.lines(t)[0]
}

// D17: a list of nothing denies all.
func TestAnEmptyListDeniesAll(t *testing.T) {
	internet.fresh(nil, nil)
	guarded := serve(t, func(o *guard.Options) { o.Config.Allow = []guard.Entry{} })
	for _, target := range []string{"allowed.test:443", "other.test:443"} {
		conn := guarded.dial(t)
		conn.send(connect(target))
		if got := conn.status(); got != 403 {
			t.Errorf("%s: status %d, want 403", target, got)
		}
	}
	if took, asked := internet.ledger(t), internet.questions(0); len(took)+len(asked) > 0 {
		t.Errorf("%q accepted, the resolver heard %q", took, asked)
	}
}

// What New refuses: a lease that is over, no log, no list.
func TestNoGuardWithoutWhatItNeeds(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*guard.Options)
	}{
		{"expires_at", func(o *guard.Options) { o.Config.ExpiresAt = "2020-01-01T00:00:00.000Z" }},
		{"log", func(o *guard.Options) { o.Log = nil }},
		{"allow", func(o *guard.Options) { o.Config.Allow = nil }},
		{"infra_addrs[0]", func(o *guard.Options) {
			o.LocalAddrs = func() ([]netip.Addr, error) { return []netip.Addr{{}}, nil }
		}},
	} {
		o := guard.Options{Config: config(), Log: io.Discard}
		c.change(&o)
		_, err := guard.New(o)
		var wrong *sandbox.Invalid
		if !errors.As(err, &wrong) || wrong.Field != c.field {
			t.Errorf("%v, want field %q", err, c.field)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(text("", "")))
	f.Add([]byte(text(`"ech":"deny",`, "")))
	f.Add([]byte(text(`[{"host":"allowed.test","ports":[443,8443],"mode":"tls"},{"host":"b.test","ports":[22]}]`, "[]")))
	f.Add([]byte(text("443,8443", "443,443")))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := guard.ParseConfig(data)
		if err != nil {
			return
		}
		// What is accepted is written in one form, and that form means the same.
		first, err := c.Encode()
		if err != nil {
			t.Fatalf("%q was read and cannot be written: %v", data, err)
		}
		again, err := guard.ParseConfig(first)
		if err != nil {
			t.Fatalf("%q was written and cannot be read: %v", first, err)
		}
		second, err := again.Encode()
		if err != nil || string(first) != string(second) {
			t.Fatalf("%q became %q", first, second)
		}
		// And nothing that it lists is wide.
		for _, e := range c.Allow {
			if strings.ContainsAny(e.Host, "*%[]:@ ") || len(e.Ports) == 0 || slices.Contains(e.Ports, 0) {
				t.Fatalf("%+v was accepted", e)
			}
			if _, err := netip.ParseAddr(e.Host); err == nil {
				t.Fatalf("%+v was accepted", e)
			}
		}
	})
}

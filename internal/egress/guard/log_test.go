package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// The chain: each change of a log is seen, but for lines missing at its end.
func TestAChangedLogIsSeen(t *testing.T) {
	guarded := serve(t, nil)
	for _, target := range []string{"a.test:443", "b.test:443", "c.test:443"} {
		conn := guarded.dial(t)
		conn.send(connect(target))
		conn.end()
	}
	guarded.stop()
	<-guarded.done
	whole := strings.SplitAfter(guarded.log.text(), "\n")[:4]
	for _, c := range []struct {
		name   string
		lines  []string
		before int // good lines
		bad    bool
	}{
		{"as written", whole, 4, false},
		{"cut at the end", whole[:3], 3, false},
		{"nothing", nil, 0, false},
		{"changed", []string{whole[0], strings.Replace(whole[1], "a.test", "x.test", 2), whole[2], whole[3]}, 2, true},
		{"one taken out", []string{whole[0], whole[2], whole[3]}, 1, true},
		{"the first taken out", whole[1:], 0, true},
		{"two exchanged", []string{whole[0], whole[2], whole[1], whole[3]}, 1, true},
		{"one put in", []string{whole[0], whole[1], whole[1], whole[2]}, 2, true},
		{"half a line", []string{whole[0], whole[1][:20]}, 1, true},
		{"an unknown field", []string{strings.Replace(whole[0], `{`, `{"a":1,`, 1)}, 0, true},
		{"a line without an end", []string{whole[0], strings.Repeat("x", guard.MaxLineBytes+1)}, 1, true},
	} {
		lines, err := guard.ReadLog(strings.NewReader(strings.Join(c.lines, "")))
		var broken *guard.ChainError
		if len(lines) != c.before || errors.As(err, &broken) != c.bad {
			t.Errorf("%s: %d lines, %v", c.name, len(lines), err)
		}
	}
}

// What the log keeps of a target names a host and a port, and nothing secret.
func TestATargetIsLoggedWithoutSecrets(t *testing.T) {
	for target, want := range map[string]string{
		"allowed.test:443":                      "allowed.test:443",
		"ALLOWED.test:443":                      "ALLOWED.test:443",
		"user:secret@allowed.test:443":          "*@allowed.test:443",
		"a@b@allowed.test:443":                  "*@allowed.test:443",
		"http://user:secret@allowed.test/p?q=s": "http://*@allowed.test/*",
		"http://allowed.test?q=secret":          "http://allowed.test?*",
		"http://allowed.test#secret":            "http://allowed.test#*",
		"/secret":                               "/*",
		"allowed.test:443/secret@x":             "allowed.test:443/*",
		"other.test\x00.allowed.test:443":       `other.test\x00.allowed.test:443`,
		"\xff\"\\":                              `\xff\"\\`,
		"":                                      "",
		strings.Repeat("a", 400):                strings.Repeat("a", guard.MaxRawBytes),
	} {
		if got := guard.Loggable(target); got != want {
			t.Errorf("%q is logged as %q, want %q", target, got, want)
		}
	}
	// Of a head that is none, only what stands where a target stands.
	for head, want := range map[string]string{
		"CONNECT a.test:443 HTTP/1.1\nProxy-Authorization: secret\n\n": "a.test:443",
		"CONNECT a.test:443\nProxy-Authorization: secret\n\n":          "a.test:443",
		"CONNECT\r\nProxy-Authorization: secret\r\n\r\n":               "",
		"\x16\x03\x01": "",
		"SECRET":       "",
	} {
		if got := guard.Asked(head); got != want {
			t.Errorf("%q is logged as %q, want %q", head, got, want)
		}
	}
}

// Whatever is asked, the line about it can be read.
func TestTheLongestLineCanBeRead(t *testing.T) {
	guarded := serve(t, func(o *guard.Options) { o.Config.Instance = strings.Repeat("i", 255) })
	conn := guarded.dial(t)
	conn.send("GET http://" + strings.Repeat("\x01", guard.MaxRawBytes) + "/ HTTP/1.1\r\n\r\n")
	conn.end()
	l := guarded.log.await(t, func(l guard.Line) bool { return l.Kind == guard.KindDecision })
	if l.Reason != policy.ReasonMethod || len(l.Raw) < guard.MaxRawBytes {
		t.Errorf("the log says %+v", l)
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add(`{"instance":"i","kind":"start","policy_revision":"r","seq":1,"t":"t","v":1}` + "\n")
	f.Add("{}\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := guard.ReadLog(strings.NewReader(text))
		if err == nil && len(lines) != strings.Count(text, "\n") {
			t.Fatalf("%d lines of %q", len(lines), text)
		}
	})
}

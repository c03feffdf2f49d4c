package wire

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscape_RoundTripsEveryString(t *testing.T) {
	try := func(s string) {
		e := Escape(s)
		back, ok := Unescape(e)
		if !ok || back != s || !utf8.ValidString(e) {
			t.Fatalf("%q: escaped %q, back %q, %v", s, e, back, ok)
		}
		if Plain(s) != (e == s) {
			t.Fatalf("%q: plain %v, escaped %q", s, Plain(s), e)
		}
	}
	try("")
	for a := range 256 {
		try(string([]byte{byte(a)}))
		for b := range 256 {
			try(string([]byte{byte(a), byte(b)}))
			try("\xf0" + string([]byte{byte(a), byte(b)}) + "0a")
			try("\x00" + string([]byte{byte(a), byte(b)}))
		}
	}
}

func TestEscape_HasOneForm(t *testing.T) {
	for s, want := range map[string]string{
		"/a/é\u2028😀":  "/a/é\u2028😀",
		"/a\xff":       "/a\x00ff",
		"a\x00b":       "a\x0000b",
		"\xc3":         "\x00c3",
		"\xed\xa0\x80": "\x00ed\x00a0\x0080", // a surrogate in bytes
		"\ufffd":       "\ufffd",             // a real replacement character is text
	} {
		if got := Escape(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	for name, s := range map[string]string{
		"mark at the end": "a\x00", "one digit": "a\x00f", "upper case": "\x00FF", "no digit": "\x00fg", "escaped letter": "\x0061",
		"escaped é": "\x00c3\x00a9", "invalid UTF-8": "\xff", "a mark inside": "\x00\x0000",
	} {
		if got, ok := Unescape(s); ok {
			t.Errorf("%s: taken as %q", name, got)
		}
	}
}

// TestEscape_CoversEveryTextOfAMessage: a raw byte in any field comes back, also
// inside lists, maps and pointers, and the caller's value stays untouched.
func TestEscape_CoversEveryTextOfAMessage(t *testing.T) {
	odd := "/a\xff\x00\xc3b"
	odd2 := strings.Repeat("\xfe", 300)
	c := ExecuteCall{InstanceID: "i"}
	c.Command.Executable, c.Command.WorkingDirectory = odd, odd2
	c.Command.Arguments = []string{"plain", odd}
	c.Command.Environment = map[string]string{"A": odd, "B": ""}
	data, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if c.Command.Executable != odd || c.Command.Arguments[1] != odd || c.Command.Environment["A"] != odd {
		t.Error("the caller's value changed")
	}
	back, err := Decode[ExecuteCall](data)
	if err != nil || !equal(back, c) {
		t.Errorf("%+v, %v", back, err)
	}
	if _, err := Decode[InstanceRequest]([]byte(`{"instance_id":"a\u0000zz"}`)); err == nil {
		t.Error("a mark without digits was taken")
	}
	// A backslash before u0000 is a backslash.
	if back, err := Decode[InstanceRequest]([]byte(`{"instance_id":"a\\u0000zz"}`)); err != nil || back.InstanceID != `a\u0000zz` {
		t.Errorf("%q, %v", back, err)
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "/a", "\xff", "\x00", "\x0061", "\xf0\x9f\x98", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if back, ok := Unescape(Escape(s)); !ok || back != s {
			t.Fatalf("%q came back as %q, %v", s, back, ok)
		}
		if raw, ok := Unescape(s); ok && Escape(raw) != s {
			t.Fatalf("%q has two forms", raw)
		}
	})
}

package guest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestParseTerminalSize(t *testing.T) {
	for _, c := range []struct {
		arg  string
		want TerminalSize
		ok   bool
	}{
		{"24x80", TerminalSize{24, 80}, true},
		{"0x0", TerminalSize{}, true},
		{"65535x65535", TerminalSize{65535, 65535}, true},
		{"65536x80", TerminalSize{}, false},
		{"-1x80", TerminalSize{}, false},
		{"024x80", TerminalSize{}, false},
		{"24", TerminalSize{}, false},
		{"24x80x3", TerminalSize{}, false},
		{"x", TerminalSize{}, false},
		{"", TerminalSize{}, false},
	} {
		got, err := parseTerminalSize(c.arg)
		if refused, is := errors.AsType[*WireError](err); got != c.want || (err == nil) != c.ok || !c.ok && (!is || refused.Field != "terminal size") {
			t.Errorf("%q: %+v, %v", c.arg, got, err)
		}
	}
}

// What a Keyboard writes is read as it was done, whatever its size.
func TestKeyboard(t *testing.T) {
	var b bytes.Buffer
	k := NewKeyboard(&b)
	said := strings.Repeat("\x00\xff\x03long", 3000)
	if n, err := k.Write([]byte(said)); n != len(said) || err != nil {
		t.Fatal(n, err)
	}
	if err := k.Resize(TerminalSize{24, 80}); err != nil {
		t.Fatal(err)
	}
	if n, err := k.Write(nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	var typed []byte
	frames := &strokes{r: &b}
	for {
		s, err := frames.next()
		if err != nil {
			t.Fatal(err)
		}
		if s.typed == nil {
			if s.size != (TerminalSize{24, 80}) {
				t.Errorf("%+v", s.size)
			}
			break
		}
		typed = append(typed, s.typed...)
	}
	if string(typed) != said {
		t.Errorf("%d bytes came of %d", len(typed), len(said))
	}
	if _, err := frames.next(); err != io.EOF {
		t.Error(err)
	}
}

func TestStrokesRefuse(t *testing.T) {
	for _, c := range []struct{ frame, field string }{
		{"\x00\x01\x00a", "frame kind"},
		{"\x03\x01\x00a", "frame kind"},
		{"\x01\x00\x00", "frame length"},
		{"\x01\x01\x10" + strings.Repeat("a", 4097), "frame length"},
		{"\x02\x03\x00abc", "frame length"},
		{"\x02\x05\x00abcde", "frame length"},
	} {
		_, err := (&strokes{r: strings.NewReader(c.frame)}).next()
		if refused, is := errors.AsType[*WireError](err); !is || refused.Field != c.field {
			t.Errorf("%q: %v", c.frame, err)
		}
	}
	for _, cut := range []string{"\x01", "\x01\x02", "\x01\x02\x00", "\x01\x02\x00a", "\x02\x04\x00\x01\x00\x01"} {
		if _, err := (&strokes{r: strings.NewReader(cut)}).next(); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: %v", cut, err)
		}
	}
}

func FuzzStrokes(f *testing.F) {
	for _, seed := range []string{"\x01\x02\x00ls", "\x02\x04\x00\x18\x00\x50\x00", "\x01\x00\x00", "\x01\xff\xff", "\x02\x04\x00\x18", "\x03\x00\x00", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		// What is read, written again, is what was read.
		var again bytes.Buffer
		k := NewKeyboard(&again)
		frames := &strokes{r: bytes.NewReader(in)}
		for {
			s, err := frames.next()
			if err != nil {
				break
			}
			if s.typed != nil {
				_, err = k.Write(s.typed)
			} else {
				err = k.Resize(s.size)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(in, again.Bytes()) {
			t.Errorf("%q was read as %q", in, again.Bytes())
		}
	})
}

func FuzzParseTerminalSize(f *testing.F) {
	for _, seed := range []string{"24x80", "0x0", "65536x1", "x", "1x", "01x1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		if s, err := parseTerminalSize(arg); err == nil && s.String() != arg {
			t.Errorf("%q was read as %v", arg, s)
		}
	})
}

package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

func TestEncodeGolden(t *testing.T) {
	yes := true
	for _, c := range []struct {
		name string
		v    any
		want string
	}{
		{"nil slice", struct {
			F []string `json:"f"`
		}{}, `{"f":[]}`},
		{"nil map", struct {
			F map[string]string `json:"f"`
		}{}, `{"f":{}}`},
		{"no fields", struct{}{}, `{}`},
		{"field order", struct {
			B string `json:"b"`
			U string `json:"_a"`
			A int    `json:"a"`
		}{"x", "y", -7}, `{"_a":"y","a":-7,"b":"x"}`},
		{"prefix order", map[string]int{"ab": 1, "a": 2, "": 3}, `{"":3,"a":2,"ab":1}`},
		{"optional absent", struct {
			A []string          `json:"a,omitempty"`
			B []string          `json:"b,omitzero"`
			C map[string]string `json:"c,omitempty"`
			D *bool             `json:"d,omitempty"`
			E int               `json:"e,omitempty"`
			F limits            `json:"f,omitzero"`
			G string            `json:"g,omitempty"`
		}{A: []string{}, C: map[string]string{}}, `{}`},
		{"optional present", struct {
			B []string `json:"b,omitzero"`
			D *bool    `json:"d,omitempty"`
			F *limits  `json:"f,omitzero"`
		}{[]string{}, &yes, &limits{}}, `{"b":[],"d":true,"f":{"cpu_millis":0,"max_processes":0}}`},
		{"nested", []map[string][]mount{{"z": nil, "a": {{"/m", "read_only", "git"}}}},
			`[{"a":[{"access":"read_only","kind":"git","mount_path":"/m"}],"z":[]}]`},
		{"escapes", "\x00\x01\b\t\n\v\f\r\x1f\"\\/", `"\u0000\u0001\b\t\n\u000b\f\r\u001f\"\\/"`},
		{"unescaped", "\u2028\u2029\x7f\u0080<>&é€\U0001f600\ufeff\uffff", "\"\u2028\u2029\x7f\u0080<>&é€\U0001f600\ufeff\uffff\""},
		{"largest", []int64{MaxInteger, -MaxInteger, 0}, `[9007199254740991,-9007199254740991,0]`},
		{"unsigned", []uint64{MaxInteger}, `[9007199254740991]`},
		{"pointer", &[]bool{true, false}, `[true,false]`},
		// The example of RFC 8785 section 3.2.3, and its edges.
		{"key order", map[string]string{
			"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
			"1": "One", "\U0001f600": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis",
		}, `{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis",` +
			`"€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`},
		{"astral key order", map[string]int{
			"\uffff": 6, "\ue000": 5, "\U0010ffff": 4, "\U00010000": 2, "\U00010001": 3, "\ud7ff": 1, "\U00010000a": 7,
		}, "{\"\ud7ff\":1,\"\U00010000\":2,\"\U00010000a\":7,\"\U00010001\":3,\"\U0010ffff\":4,\"\ue000\":5,\"\uffff\":6}"},
	} {
		got, err := Encode(c.v)
		if err != nil || string(got) != c.want {
			t.Errorf("%s:\ngot  %s %v\nwant %s", c.name, got, err, c.want)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	loop := &node{}
	loop.Next = loop
	list := make([]node, 1)
	list[0].Children = list
	for _, c := range []struct {
		name string
		v    any
		want Reason
		path string
	}{
		{"nil", nil, ReasonNull, ""},
		{"nil pointer", (*request)(nil), ReasonNull, ""},
		{"nil pointer in a list", []*mount{{}, nil}, ReasonNull, "[1]"},
		{"nil pointer in a map", map[string]*mount{"a b": nil}, ReasonNull, `["a b"]`},
		{"nil required pointer", struct {
			M *mount `json:"m"`
		}{}, ReasonNull, "m"},
		{"UTF-8", []mount{{MountPath: "\xff"}}, ReasonInvalidUTF8, "[0].mount_path"},
		{"surrogate", "\xed\xa0\x80", ReasonInvalidUTF8, ""},
		{"UTF-8 in a key", map[string]int{"\xff": 1}, ReasonInvalidUTF8, `["\xff"]`},
		{"too large", limits{CPUMillis: MaxInteger + 1}, ReasonOutOfRange, "cpu_millis"},
		{"too small", limits{CPUMillis: -MaxInteger - 1}, ReasonOutOfRange, "cpu_millis"},
		{"unsigned", []uint64{MaxInteger + 1}, ReasonOutOfRange, "[0]"},
		{"pointer loop", loop, ReasonTooDeep, strings.Repeat("next.", MaxDepth-1) + "next"},
		{"slice loop", list, ReasonTooDeep, "[0]" + strings.Repeat(".children[0]", MaxDepth/2-1) + ".children"},
	} {
		data, err := Encode(c.v)
		if reasonOf(t, err) != c.want || data != nil {
			t.Errorf("%s: %s %v, want %s", c.name, data, err, c.want)
			continue
		}
		if e, _ := errors.AsType[*Error](err); e.Path != strings.TrimSuffix(c.path, ".") || e.Offset != -1 {
			t.Errorf("%s: path %q offset %d, want %q -1", c.name, e.Path, e.Offset, c.path)
		}
	}
}

// TestEncodeAgreesWithPython compares with an independent writer of the same
// form. Python sorts by code point, so no key here lies beyond U+FFFF.
func TestEncodeAgreesWithPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	var all strings.Builder
	for r := rune(0); r <= 0x10ffff; r++ {
		if r < 0x3000 || r > 0xfff0 && r < 0x10010 || r%997 == 0 {
			if r < 0xd800 || r > 0xdfff {
				all.WriteRune(r)
			}
		}
	}
	v := request{
		Tag: all.String(), LeaseEpoch: MaxInteger, Maximum: &limits{CPUMillis: -MaxInteger},
		Mounts:      []mount{{"/b", "read_only", "git"}, {"/a", "read_write", "memory"}},
		Environment: map[string]string{"": "", "PATH": "/bin", "é": "\u2028", "\uffff": "\x7f", "\ue000": "a", "\u2029": "\\", "a\n": "\""},
		Sizes:       map[access]uint32{"z": 1, "Z": 2, "_": 3},
	}
	ours, err := Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	// The input of Python is written by encoding/json, so that it owes nothing
	// to the encoder under test.
	theirs, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import json, sys
v = json.load(sys.stdin.buffer)
sys.stdout.buffer.write(json.dumps(v, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())`)
	cmd.Stdin = bytes.NewReader(theirs)
	want, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ours, want) {
		t.Errorf("got  %q\nwant %q", ours, want)
	}
}

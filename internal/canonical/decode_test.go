package canonical

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const minimal = `{"_tag":"t","environment":{},"lease_epoch":9,"limits":{"cpu_millis":1,"max_processes":2},"mounts":[]}`

func TestDecodeAccepts(t *testing.T) {
	base := func(change func(*request)) request {
		r := request{Tag: "t", LeaseEpoch: 9, Limits: limits{CPUMillis: 1, Processes: 2},
			Mounts: []mount{}, Environment: map[string]string{}}
		change(&r)
		return r
	}
	yes := true
	for _, c := range []struct {
		name, data string
		want       request
	}{
		{"minimal", minimal, base(func(*request) {})},
		{"white space and order", " {\t\"mounts\" : [ ] ,\r\n\"limits\":{\"max_processes\":2,\"cpu_millis\":1}, \"lease_epoch\":9,\"environment\":{ },\"_tag\":\"t\"}\n", base(func(*request) {})},
		{"escaped key", strings.Replace(minimal, `"_tag"`, `"\u005Ftag"`, 1), base(func(*request) {})},
		{"optional zero spelt out", minimal[:len(minimal)-1] + `,"durable":false}`, base(func(*request) {})},
		{"everything", minimal[:len(minimal)-1] + `,"durable":true,"certified":true,"argv":[],"sizes":{"a":4294967295},` +
			`"maximum":{"cpu_millis":-9007199254740991,"max_processes":-2147483648,"tiny":-128,"count":9007199254740991},` +
			`"tree":{"next":{},"children":[{}],"named":{"x":{}}}}`,
			base(func(r *request) {
				r.Durable, r.Certified, r.Argv, r.Sizes = true, &yes, []string{}, map[access]uint32{"a": 4294967295}
				r.Maximum = &limits{CPUMillis: -MaxInteger, Processes: -1 << 31, Tiny: -128, Count: MaxInteger}
				r.Tree = &node{Next: &node{}, Children: []node{{}}, Named: map[string]*node{"x": {}}}
			})},
		{"strings", strings.Replace(minimal, `"t"`, `"\"\\\/\b\f\n\r\t\u0000\u00e9\uD83D\ude00é😀`+"\u2028\x7f\ufeff"+`"`, 1),
			base(func(r *request) { r.Tag = "\"\\/\b\f\n\r\t\x00é😀é😀\u2028\x7f\ufeff" })},
		{"environment keys", strings.Replace(minimal, `"environment":{}`, `"environment":{"Path":"a","PATH":"b","":"c","\n":"d"}`, 1),
			base(func(r *request) {
				r.Environment = map[string]string{"Path": "a", "PATH": "b", "": "c", "\n": "d"}
			})},
	} {
		got := request{Tag: "stale", Durable: true, Argv: []string{"stale"}, Environment: map[string]string{"STALE": "1"}}
		if err := Decode([]byte(c.data), &got); err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, got, ignoreLocal); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
	}
}

var ignoreLocal = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Local" }, cmp.Ignore())

// TestDecodeRefuses changes one thing in an accepted request.
func TestDecodeRefuses(t *testing.T) {
	swap := func(old, new string) string { return strings.Replace(minimal, old, new, 1) }
	mounts := func(second string) string {
		return swap(`[]`, `[{"mount_path":"/a","access":"read_only","kind":"git"},`+second+`]`)
	}
	long := strings.Repeat("k", 1000)
	for _, c := range []struct {
		name, data string
		want       Reason
		path       string
	}{
		{"empty", "", ReasonTruncated, ""},
		{"only space", " \n", ReasonTruncated, ""},
		{"byte order mark", "\ufeff" + minimal, ReasonByteOrderMark, ""},
		{"mark after space", " \ufeff" + minimal, ReasonSyntax, ""},
		{"no-break space", "\u00a0" + minimal, ReasonSyntax, ""},
		{"form feed", "\f" + minimal, ReasonSyntax, ""},
		{"comment", "/**/" + minimal, ReasonSyntax, ""},
		{"UTF-16", "\xff\xfe{\x00", ReasonInvalidUTF8, ""},
		{"overlong", swap(`"t"`, "\"\xc0\xaf\""), ReasonInvalidUTF8, ""},
		{"raw surrogate", swap(`"t"`, "\"\xed\xa0\x80\""), ReasonInvalidUTF8, ""},
		{"raw surrogate pair", swap(`"t"`, "\"\xed\xa0\xbd\xed\xb8\x80\""), ReasonInvalidUTF8, ""},
		{"beyond Unicode", swap(`"t"`, "\"\xf4\x90\x80\x80\""), ReasonInvalidUTF8, ""},
		{"cut character", minimal + "\xe2\x82", ReasonInvalidUTF8, ""},

		{"lone high", swap(`"t"`, `"\ud800"`), ReasonLoneSurrogate, "_tag"},
		{"lone low", swap(`"t"`, `"\udc00"`), ReasonLoneSurrogate, "_tag"},
		{"high, high", swap(`"t"`, `"\ud800\ud800"`), ReasonLoneSurrogate, "_tag"},
		{"low, high", swap(`"t"`, `"\ude00\ud83d"`), ReasonLoneSurrogate, "_tag"},
		{"high, text", swap(`"t"`, `"\ud83dx\ude00"`), ReasonLoneSurrogate, "_tag"},
		{"high, other escape", swap(`"t"`, `"\ud83d\n"`), ReasonLoneSurrogate, "_tag"},
		{"lone in a key", swap(`"environment":{}`, `"environment":{"\ud800":""}`), ReasonLoneSurrogate, "environment"},
		{"raw control", swap(`"t"`, "\"a\nb\""), ReasonControlCharacter, "_tag"},
		{"raw NUL", swap(`"t"`, "\"\x00\""), ReasonControlCharacter, "_tag"},
		{"raw U+001F", swap(`"t"`, "\"\x1f\""), ReasonControlCharacter, "_tag"},
		{"comma before bracket of lists", swap(`{"_tag"`, `{"argv":["",],"_tag"`), ReasonSyntax, "argv[1]"},
		{"bad escape", swap(`"t"`, `"\x41"`), ReasonSyntax, "_tag"},
		{"quote escape", swap(`"t"`, `"\'"`), ReasonSyntax, "_tag"},
		{"upper-case u", swap(`"t"`, `"\U0041"`), ReasonSyntax, "_tag"},
		{"bad hex", swap(`"t"`, `"\u00g0"`), ReasonSyntax, "_tag"},
		{"single quotes", swap(`"t"`, `'t'`), ReasonSyntax, "_tag"},

		{"duplicate key", swap(`"lease_epoch":9`, `"lease_epoch":9,"lease_epoch":9`), ReasonDuplicateKey, "lease_epoch"},
		{"duplicate by escape", swap(`"lease_epoch":9`, `"lease_epoch":9,"\u006cease_epoch":9`), ReasonDuplicateKey, "lease_epoch"},
		{"duplicate optional", swap(`{"_tag"`, `{"durable":false,"durable":false,"_tag"`), ReasonDuplicateKey, "durable"},
		{"duplicate in a map", swap(`"environment":{}`, `"environment":{"A B":"","A B":""}`), ReasonDuplicateKey, `environment["A B"]`},
		{"duplicate in a map by escape", swap(`"environment":{}`, `"environment":{"A":"","\u0041":""}`), ReasonDuplicateKey, "environment.A"},
		{"wrong case", swap("lease_epoch", "Lease_epocH"), ReasonUnknownKey, "Lease_epocH"},
		{"both cases", swap(`"lease_epoch":9`, `"lease_epoch":9,"Lease_epocH":10`), ReasonUnknownKey, "Lease_epocH"},
		{"Go name", swap("lease_epoch", "LeaseEpoch"), ReasonUnknownKey, "LeaseEpoch"},
		{"unknown key", swap(`{"_tag"`, `{"extra":{},"_tag"`), ReasonUnknownKey, "extra"},
		{"skipped field", swap(`{"_tag"`, `{"Local":"","_tag"`), ReasonUnknownKey, "Local"},
		{"dash", swap(`{"_tag"`, `{"-":"","_tag"`), ReasonUnknownKey, `["-"]`},
		{"empty key", swap(`{"_tag"`, `{"":"","_tag"`), ReasonUnknownKey, `[""]`},
		{"padded key", swap(`"_tag"`, `"_tag "`), ReasonUnknownKey, `["_tag "]`},
		{"hostile key", swap(`"_tag"`, `"`+"\u202e"+long+`"`), ReasonUnknownKey, `["\u202e` + long[:61] + `"...]`},
		{"hostile key cut inside a character", swap(`"_tag"`, `"`+long[:62]+"\u20ac"+`"`), ReasonUnknownKey, `["` + long[:62] + `"...]`},
		{"unknown key in a list", mounts(`{"mount":"/b"}`), ReasonUnknownKey, "mounts[1].mount"},
		{"missing", swap(`"lease_epoch":9,`, ``), ReasonMissingKey, "lease_epoch"},
		{"missing all", `{}`, ReasonMissingKey, "_tag"},
		{"missing in a list", mounts(`{"mount_path":"/b","kind":"git"}`), ReasonMissingKey, "mounts[1].access"},
		{"missing in an optional", swap(`{"_tag"`, `{"maximum":{"cpu_millis":1},"_tag"`), ReasonMissingKey, "maximum.max_processes"},

		{"null", "null", ReasonNull, ""},
		{"null string", swap(`"t"`, `null`), ReasonNull, "_tag"},
		{"null integer", swap(`9`, `null`), ReasonNull, "lease_epoch"},
		{"null list", swap(`[]`, `null`), ReasonNull, "mounts"},
		{"null element", swap(`[]`, `[null]`), ReasonNull, "mounts[0]"},
		{"null map", swap(`"environment":{}`, `"environment":null`), ReasonNull, "environment"},
		{"null in a map", swap(`"environment":{}`, `"environment":{"A":null}`), ReasonNull, "environment.A"},
		{"null optional", swap(`{"_tag"`, `{"maximum":null,"_tag"`), ReasonNull, "maximum"},
		{"null optional boolean", swap(`{"_tag"`, `{"certified":null,"_tag"`), ReasonNull, "certified"},
		{"null plain boolean", swap(`{"_tag"`, `{"durable":null,"_tag"`), ReasonNull, "durable"},

		{"trailing value", minimal + "{}", ReasonTrailingData, ""},
		{"trailing comma", minimal + ",", ReasonTrailingData, ""},
		{"trailing brace", minimal + " }", ReasonTrailingData, ""},
		{"trailing NUL", minimal + "\x00", ReasonTrailingData, ""},
		{"second line", minimal + "\n" + minimal, ReasonTrailingData, ""},

		{"fraction", swap(`9`, `9.0`), ReasonNotInteger, "lease_epoch"},
		{"exponent", swap(`9`, `9e0`), ReasonNotInteger, "lease_epoch"},
		{"upper-case exponent", swap(`9`, `1E2`), ReasonNotInteger, "lease_epoch"},
		{"negative zero", swap(`9`, `-0`), ReasonNegativeZero, "lease_epoch"},
		{"negative zero fraction", swap(`9`, `-0.0`), ReasonNotInteger, "lease_epoch"},
		{"leading zero", swap(`9`, `09`), ReasonSyntax, "lease_epoch"},
		{"negative leading zero", swap(`9`, `-09`), ReasonSyntax, "lease_epoch"},
		{"two zeros", swap(`9`, `00`), ReasonSyntax, "lease_epoch"},
		{"plus", swap(`9`, `+9`), ReasonSyntax, "lease_epoch"},
		{"bare minus", swap(`9`, `-`), ReasonSyntax, "lease_epoch"},
		{"hexadecimal", swap(`9`, `0x9`), ReasonSyntax, ""},
		{"NaN", swap(`9`, `NaN`), ReasonSyntax, "lease_epoch"},
		{"Infinity", swap(`9`, `-Infinity`), ReasonSyntax, "lease_epoch"},
		{"full-width digit", swap(`9`, `９`), ReasonSyntax, "lease_epoch"},
		{"2^53", swap(`9`, `9007199254740992`), ReasonOutOfRange, "lease_epoch"},
		{"-2^53", swap(`9`, `-9007199254740992`), ReasonOutOfRange, "lease_epoch"},
		{"2^64", swap(`9`, `18446744073709551616`), ReasonOutOfRange, "lease_epoch"},
		{"1000 digits", swap(`9`, strings.Repeat("9", 1000)), ReasonOutOfRange, "lease_epoch"},
		{"10^1000", swap(`9`, "1"+strings.Repeat("0", 1000)), ReasonOutOfRange, "lease_epoch"},
		{"int32", swap(`"max_processes":2`, `"max_processes":2147483648`), ReasonOutOfRange, "limits.max_processes"},
		{"int8", swap(`"max_processes":2`, `"max_processes":2,"tiny":-129`), ReasonOutOfRange, "limits.tiny"},
		{"unsigned", swap(`"max_processes":2`, `"max_processes":2,"count":-1`), ReasonOutOfRange, "limits.count"},
		{"uint32", swap(`{"_tag"`, `{"sizes":{"a":4294967296},"_tag"`), ReasonOutOfRange, "sizes.a"},

		{"number for string", swap(`"t"`, `1`), ReasonWrongType, "_tag"},
		{"string for number", swap(`9`, `"9"`), ReasonWrongType, "lease_epoch"},
		{"boolean for number", swap(`9`, `true`), ReasonWrongType, "lease_epoch"},
		{"number for boolean", swap(`{"_tag"`, `{"durable":0,"_tag"`), ReasonWrongType, "durable"},
		{"list for object", `[]`, ReasonWrongType, ""},
		{"object for list", swap(`[]`, `{}`), ReasonWrongType, "mounts"},
		{"object for string", swap(`"t"`, `{"a":`), ReasonWrongType, "_tag"},
		{"list for optional object", swap(`{"_tag"`, `{"maximum":[],"_tag"`), ReasonWrongType, "maximum"},
		{"word", swap(`9`, `truth`), ReasonSyntax, "lease_epoch"},
		{"wrong-case word", swap(`{"_tag"`, `{"durable":True,"_tag"`), ReasonSyntax, "durable"},
		{"long word", swap(`{"_tag"`, `{"durable":falsey,"_tag"`), ReasonSyntax, ""},

		{"bare key in a map", swap(`"environment":{}`, `"environment":{A:""}`), ReasonSyntax, "environment"},
		{"no colon in a map", swap(`"environment":{}`, `"environment":{"A" ""}`), ReasonSyntax, "environment.A"},
		{"no comma in a map", swap(`"environment":{}`, `"environment":{"A":"" "B":""}`), ReasonSyntax, "environment"},
		{"comma before brace in a map", swap(`"environment":{}`, `"environment":{"A":"",}`), ReasonSyntax, "environment"},
		{"comma before brace", swap(`[]}`, `[],}`), ReasonSyntax, ""},
		{"comma before bracket", mounts(``), ReasonSyntax, "mounts[1]"},
		{"comma first", swap(`[]`, `[,]`), ReasonSyntax, "mounts[0]"},
		{"no comma", swap(`9,`, `9 `), ReasonSyntax, ""},
		{"two commas", swap(`9,`, `9,,`), ReasonSyntax, ""},
		{"no colon", swap(`"_tag":`, `"_tag" `), ReasonSyntax, "_tag"},
		{"bare key", swap(`"_tag"`, `_tag`), ReasonSyntax, ""},
		{"number as key", swap(`"_tag"`, `1`), ReasonSyntax, ""},
		{"bracket for brace", swap(`[]}`, `[]]`), ReasonSyntax, ""},

		{"17 objects", swap(`{"_tag"`, `{"tree":`+nested(`{"next":`, `}`, 17)+`,"_tag"`), ReasonTooDeep, "tree" + strings.Repeat(".next", 15)},
		{"a million objects", swap(`{"_tag"`, `{"tree":`+nested(`{"next":`, `}`, 1e6)), ReasonTooDeep, "tree" + strings.Repeat(".next", 15)},
	} {
		before := request{Tag: "kept", Mounts: []mount{{Kind: "kept"}}}
		got := before
		err := Decode([]byte(c.data), &got)
		if reasonOf(t, err) != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
			continue
		}
		e, _ := errors.AsType[*Error](err)
		if e.Path != c.path {
			t.Errorf("%s: path %s, want %s", c.name, e.Path, c.path)
		}
		if e.Offset < 0 || e.Offset > len(c.data) {
			t.Errorf("%s: offset %d outside the input of %d bytes", c.name, e.Offset, len(c.data))
		}
		if len(e.Error()) > 500 {
			t.Errorf("%s: error of %d bytes", c.name, len(e.Error()))
		}
		if diff := cmp.Diff(before, got, ignoreLocal); diff != "" {
			t.Errorf("%s: target changed\n%s", c.name, diff)
		}
	}
}

// TestDecodeTruncated cuts an accepted request after every byte.
func TestDecodeTruncated(t *testing.T) {
	whole := minimal[:len(minimal)-1] + `,"durable":true,"argv":["a\u00e9\ud83d\ude00b"],"certified":false}`
	if err := Decode([]byte(whole), new(request)); err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		err := Decode([]byte(whole[:n]), new(request))
		if err == nil {
			t.Errorf("accepted the first %d bytes", n)
		}
	}
	for _, cut := range []string{`{`, `{"_tag`, `{"_tag"`, `{"_tag":`, `{"_tag":"t"`, `{"_tag":"t",`, `{"_tag":"\`, `{"_tag":"\u00`, `{"lease_epoch":-`, `{"mounts":[`} {
		if err := Decode([]byte(cut), new(request)); reasonOf(t, err) != ReasonTruncated {
			t.Errorf("%s: %v, want truncated", cut, err)
		}
	}
}

func TestDecodeErrorDetail(t *testing.T) {
	for _, c := range []struct {
		data string
		into any
		want Error
	}{
		{`{"Access":1}`, new(mount), Error{"Access", ReasonUnknownKey, `"access"`, `"Access"`, 1}},
		{`{"access":"a","kind":"b"} `, new(mount), Error{"mount_path", ReasonMissingKey, "string", "", 24}},
		{`[1,300]`, new([]int8), Error{"[1]", ReasonOutOfRange, "-128..127", "300", 3}},
		{`[1,"secret"]`, new([]int8), Error{"[1]", ReasonWrongType, "integer", "string", 3}},
		{"\"a\xff\"", new(string), Error{"", ReasonInvalidUTF8, "UTF-8", "", 2}},
		{`"ab\ud800"`, new(string), Error{"", ReasonLoneSurrogate, "a surrogate pair", "", 3}},
		{`{"a":1,"a":2}`, new(map[string]int), Error{"a", ReasonDuplicateKey, "each key once", "", 7}},
	} {
		err := Decode([]byte(c.data), c.into)
		got, ok := errors.AsType[*Error](err)
		if !ok || *got != c.want {
			t.Errorf("%s:\ngot  %#v\nwant %#v", c.data, got, &c.want)
		}
	}
}

// TestDecodeDepth stands exactly at the limit, both ways.
func TestDecodeDepth(t *testing.T) {
	type list []list
	for depth, want := range map[int]Reason{MaxDepth: "", MaxDepth + 1: ReasonTooDeep} {
		text := nested("[", "]", depth)
		var v list
		if err := Decode([]byte(text), &v); reasonOf(t, err) != want {
			t.Errorf("depth %d: %v", depth, err)
		} else if err == nil {
			if again, err := Encode(v); err != nil || string(again) != text {
				t.Errorf("depth %d: %s %v", depth, again, err)
			}
		}
	}
}

func TestDecodeScalars(t *testing.T) {
	var s access
	var b bool
	var n uint8
	var p *int
	for data, v := range map[string]any{`"read_only"`: &s, ` true `: &b, `255`: &n, `-1`: &p} {
		if err := Decode([]byte(data), v); err != nil {
			t.Errorf("%s: %v", data, err)
		}
	}
	if s != "read_only" || !b || n != 255 || p == nil || *p != -1 {
		t.Error(s, b, n, p)
	}
}

// TestDecodeKeepsNothing changes the input after decoding.
func TestDecodeKeepsNothing(t *testing.T) {
	data := []byte(`{"k":"value","e":"\u0041bc"}`)
	var v map[string]string
	if err := Decode(data, &v); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if diff := cmp.Diff(map[string]string{"k": "value", "e": "Abc"}, v); diff != "" {
		t.Error(diff)
	}
}

// TestDecodeLeavesNoTrace sees that an optional field of one entry is absent from
// the next.
func TestDecodeLeavesNoTrace(t *testing.T) {
	one := `{"cpu_millis":1,"max_processes":1,"tiny":7,"count":7}`
	two := `{"cpu_millis":2,"max_processes":2}`
	wantOne, wantTwo := limits{1, 1, 7, 7}, limits{2, 2, 0, 0}

	var m map[string]limits
	if err := Decode([]byte(`{"a":`+one+`,"b":`+two+`}`), &m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]limits{"a": wantOne, "b": wantTwo}, m); diff != "" {
		t.Error(diff)
	}
	var l []limits
	if err := Decode([]byte(`[`+one+`,`+two+`,`+one+`,`+two+`]`), &l); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]limits{wantOne, wantTwo, wantOne, wantTwo}, l); diff != "" {
		t.Error(diff)
	}
}

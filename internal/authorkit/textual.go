package authorkit

import (
	"encoding/hex"
	"strings"

	"github.com/checkfu/checkfu/wire"
)

// escapes are byte strings and how they stand in JSON.
func escapes() (all []Scenario) {
	for _, c := range []struct{ name, says, raw string }{
		{"empty", "nothing", ""},
		{"ascii", "plain text is its own form", "a.txt"},
		{"multibyte", "all UTF-8 is plain", "é😀\u2028"},
		{"replacement-character", "U+FFFD is a character and stays", "\ufffd"},
		{"control-characters", "only NUL is special", "\x01\n\x7f"},
		{"backslash-u", "six characters that look like a mark are no mark", `\u0000ff`},
		{"nul-byte", "a NUL", "\x00"},
		{"nul-and-digits", "a NUL before digits", "\x00ff"},
		{"one-byte", "a byte that is no UTF-8", "\xff"},
		{"half-a-character", "the first byte of two", "é\xc3"},
		{"surrogate", "a surrogate in three bytes", "\xed\xa0\x80"},
		{"overlong", "an overlong form", "\xc0\xaf"},
		{"beyond-unicode", "a code point that does not exist", "\xf4\x90\x80\x80"},
		{"latin-1-name", "a file name in another encoding", "/workspace/repo/caf\xe9"},
		{"bytes-0-to-255", "every byte", every()},
	} {
		escaped := wire.Escape(c.raw)
		all = append(all, Scenario{Kind: "escape", Name: c.name, Says: c.says, Accept: ref(true),
			Escapes: []Escape{{Raw: hex.EncodeToString([]byte(c.raw)), Escaped: hex.EncodeToString([]byte(escaped))}},
			Hex:     hex.EncodeToString(quoted(escaped))})
	}
	for _, c := range []struct{ name, says, escaped string }{
		{"refused-no-digits", "a mark and nothing", "a\x00"},
		{"refused-one-digit", "one digit", "\x00f"},
		{"refused-not-hex", "no digits", "\x00zz"},
		{"refused-upper-case", "one byte has one form", "\x00FF"},
		{"refused-plain-text", "an escape of what needs none", "\x0061"},
		{"refused-whole-character", "nor does a whole character, byte by byte", "\x00c3\x00a9"},
		{"refused-character-in-halves", "half of it escaped: the rest is no UTF-8", "\x00c3\xa9"},
	} {
		if _, ok := wire.Unescape(c.escaped); ok {
			panic("authorkit: " + c.name + " is an escape")
		}
		all = append(all, Scenario{Kind: "escape", Name: c.name, Says: c.says, Accept: ref(false),
			Escapes: []Escape{{Escaped: hex.EncodeToString([]byte(c.escaped))}}})
	}
	return all
}

func every() string {
	var b strings.Builder
	for c := range 256 {
		b.WriteByte(byte(c))
	}
	return b.String()
}

// quoted is s, which is UTF-8, as a string of canonical JSON.
func quoted(s string) []byte {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch short := strings.IndexRune("\b\f\n\r\t\"\\", r); {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte("bfnrt\"\\"[short])
		case r < 0x20:
			b.WriteString(`\u00`)
			b.WriteString(hex.EncodeToString([]byte{byte(r)}))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return []byte(b.String())
}

// canonicals are texts of JSON and the one form of what they say: RFC 8785
// without fractions. The kinds of values go beyond what one message holds.
func canonicals() (all []Scenario) {
	for _, c := range []struct{ name, says, text, form string }{
		{"empty-object", "nothing", ` { } `, `{}`},
		{"empty-list", "nothing either", "[\n]", `[]`},
		{"key-order", "keys in the order of their bytes: capitals, underscore, small letters", `{"b":1,"a":2,"_":3,"B":4,"a1":5}`, `{"B":4,"_":3,"a":2,"a1":5,"b":1}`},
		{"nested", "at every depth", `{"z":{"y":[{"b":1,"a":[ ]}]},"a":true}`, `{"a":true,"z":{"y":[{"a":[],"b":1}]}}`},
		{"list-order", "lists keep theirs", `[3,1,2]`, `[3,1,2]`},
		{"integers", "the ends of the range", `[0,-1,9007199254740991,-9007199254740991]`, `[0,-1,9007199254740991,-9007199254740991]`},
		{"escapes-short", "the seven short escapes", `"\u0008\u000c\u000a\u000d\u0009\u0022\u005c"`, `"\b\f\n\r\t\"\\"`},
		{"escapes-long", "other control characters, in lower case", `"\u0001\u001F\u0000"`, "\"\\u0001\\u001f\\u0000\""},
		{"slash", "is not escaped", `"\/"`, `"/"`},
		{"html", "nor are these", `"\u003c\u003e\u0026"`, `"<>&"`},
		{"line-separators", "nor U+2028 and U+2029, which some encoders escape", `"\u2028\u2029"`, "\"\u2028\u2029\""},
		{"delete", "nor DEL", `"\u007f"`, "\"\x7f\""},
		{"astral", "a pair of surrogates is one character", `"\ud83d\ude00"`, `"😀"`},
		{"not-normalised", "two ways to write é stay two", `["\u00e9","e\u0301"]`, "[\"é\",\"e\u0301\"]"},
		{"booleans", "two words", `[true , false]`, `[true,false]`},
		{"white-space", "goes", "\t{ \"a\" :\r\n[ 1 , 2 ] } \n", `{"a":[1,2]}`},
		{"depth-16", "the deepest", strings.Repeat("[ ", 16) + strings.Repeat("]", 16), strings.Repeat("[", 16) + strings.Repeat("]", 16)},
	} {
		all = append(all, Scenario{Kind: "canonical", Name: c.name, Says: c.says, Hex: hex.EncodeToString([]byte(c.text)), Text: plain([]byte(c.text)),
			Canonical: hex.EncodeToString([]byte(c.form)), Digest: digest([]byte(c.form))})
	}
	image := profile().ImageIdentity()
	all = append(all, Scenario{Kind: "canonical", Name: "profile-digest", Says: "the profile digest: of the base image and the packages",
		Hex: hex.EncodeToString(image), Text: plain(image), Canonical: hex.EncodeToString(image), Digest: profileDigest()})
	body := encode(capabilities())
	envelope := body[len(`{"capabilities":`):strings.Index(string(body), `,"wire":`)]
	return append(all, Scenario{Kind: "canonical", Name: "capabilities-digest", Says: "the Checkfu-Capabilities-Digest: of the canonical envelope",
		Hex: hex.EncodeToString(envelope), Text: plain(envelope), Canonical: hex.EncodeToString(envelope), Digest: capabilitiesDigest()})
}

// headerScenarios are the headers of requests.
func headerScenarios() (all []Scenario) {
	add := func(e wire.Endpoint, name, says string, change func(map[string][]string)) {
		header := map[string][]string{}
		wire.RequestHeader{Token: token, Lease: wire.Lease{ID: "lease-1", Epoch: 7}, Operation: operationID}.Set(header, e)
		change(header)
		_, err := wire.ParseRequestHeader(header, e)
		s := Scenario{Kind: "header", Name: name, Says: says, Endpoint: string(e), Accept: ref(err == nil)}
		for _, one := range headerList(header) {
			for _, value := range header[one[0]] {
				s.Headers = append(s.Headers, [2]string{one[0], value})
			}
		}
		if w, ok := err.(*wire.Error); ok {
			s.Tag, s.Pointer = string(w.Tag), &w.Pointer
			_, s.Status, _ = wire.EncodeError(w)
		}
		all = append(all, s)
	}
	set := func(name string, values ...string) func(map[string][]string) {
		return func(h map[string][]string) { h[name] = values }
	}
	drop := func(name string) func(map[string][]string) {
		return func(h map[string][]string) { delete(h, name) }
	}
	add(wire.Provision, "right", "all that a mutating endpoint carries", func(map[string][]string) {})
	add(wire.ReadFile, "right-reading", "a reading one carries no operation id", func(map[string][]string) {})
	add(wire.Capabilities, "right-capabilities", "capabilities carries no lease", func(map[string][]string) {})
	add(wire.Provision, "right-epoch-highest", "2^53-1", set(wire.HeaderLeaseEpoch, "9007199254740991"))
	add(wire.Provision, "right-no-token", "with client certificates", drop(wire.HeaderAuthorization))
	for _, name := range []string{wire.HeaderWire, wire.HeaderLeaseID, wire.HeaderLeaseEpoch, wire.HeaderOperationID} {
		add(wire.Provision, "missing-"+strings.ToLower(name), "not there", drop(name))
	}
	add(wire.Provision, "other-revision", "another wire", set(wire.HeaderWire, "checkfu.sandbox-wire.v2"))
	add(wire.Provision, "revision-twice", "two readers, two values", set(wire.HeaderWire, wire.Revision, wire.Revision))
	add(wire.Provision, "scheme-lower-case", "one form", set(wire.HeaderAuthorization, "bearer "+token))
	add(wire.Provision, "token-short", "31 characters", set(wire.HeaderAuthorization, "Bearer "+token[1:]))
	add(wire.Provision, "token-character", "a character that no token has", set(wire.HeaderAuthorization, "Bearer "+token+"!"))
	add(wire.Provision, "token-twice", "which of the two", set(wire.HeaderAuthorization, "Bearer "+token, "Bearer "+token))
	add(wire.Provision, "lease-with-space", "an identity", set(wire.HeaderLeaseID, "lease 1"))
	add(wire.Provision, "lease-twice", "one lease", set(wire.HeaderLeaseID, "lease-1", "lease-2"))
	for name, value := range map[string]string{"sign": "+7", "negative": "-7", "leading-zero": "07", "fraction": "7.0", "full-width": "７", "over": "9007199254740992", "wraps": "18446744073709551623"} {
		add(wire.Provision, "epoch-"+name, "one number has one form", set(wire.HeaderLeaseEpoch, value))
	}
	add(wire.Provision, "operation-id-upper-case", "lower-case digits", set(wire.HeaderOperationID, "op_0123456789ABCDEF0123456789ABCDEF"))
	add(wire.Provision, "operation-id-prefix", "and its own prefix", set(wire.HeaderOperationID, string(processID)))
	add(wire.Provision, "deadline-zero", "no time is no deadline", set(wire.HeaderDeadline, "0"))
	add(wire.Provision, "wait-too-long", "30 s", set(wire.HeaderWait, "30001"))
	add(wire.ReadFile, "operation-id-on-a-reading", "a header that does not belong", set(wire.HeaderOperationID, string(operationID)))
	add(wire.Capabilities, "lease-on-capabilities", "likewise", set(wire.HeaderLeaseID, "lease-1"))
	return all
}

package sandboxtest

import (
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/wire"
)

// wireBodyFaults are wrong in what they read, and in what they write.
func wireBodyFaults() []Saboteur {
	replace := func(old, text string) func(string) string {
		return func(s string) string { return strings.ReplaceAll(s, old, text) }
	}
	var all []Saboteur
	for _, c := range []struct {
		id, fault, check string
		repair           func(string) string
	}{
		{"Y30", "of two equal keys the last wins", "json/duplicate-key", func(s string) string { return twoIDs.ReplaceAllString(s, "$1") }},
		{"Y31", "keys may have any case", "json/wrong-case", replace("Instance_id", "instance_id")},
		{"Y32", "unknown keys are passed over", "json/unknown-key", replace(`,"x":1}`, "}")},
		{"Y33", "a key that is missing is empty", "json/missing-key", func(s string) string {
			if s == "{}" {
				return `{"instance_id":"none"}`
			}
			return s
		}},
		{"Y34", "null is the same as absent", "json/null", replace(`,"pinned_snapshots":null`, "")},
		{"Y35", "a number is a text as well", "json/type", replace(`{"instance_id":1}`, `{"instance_id":"1"}`)},
		{"Y36", "1.0 is 1", "json/fraction", replace(`":30.0,`, `":30,`)},
		{"Y37", "1e0 is 1", "json/exponent", replace(`":3e1,`, `":30,`)},
		{"Y38", "-0 is 0", "json/minus-zero", replace(`":-0,`, `":0,`)},
		{"Y39", "numbers are doubles", "json/too-large", replace("9007199254740992", "9007199254740991")},
		{"Y40", "a lone surrogate is a question mark", "json/surrogate", replace(`"\ud800"`, `"?"`)},
		{"Y41", "bytes that are no UTF-8 are question marks", "json/utf-8", replace("\xff", "?")},
		{"Y42", "a byte order mark is passed over", "json/byte-order-mark", replace("\xef\xbb\xbf", "")},
		{"Y43", "what comes behind the value is passed over", "json/trailing", replace("}{}", "}")},
		{"Y44", "a comma too many is no fault", "json/syntax", replace(",}", "}")},
		{"Y45", "U+0000 that escapes nothing is dropped", "json/escape", replace(`\u0000zz`, "zz")},
		{"Y46", "a line separator ends the line", "text/characters", replace("\u2028", `\n`)},
		{"Y47", "bytes are read as Latin-1", "text/bytes", func(s string) string { return escaped.ReplaceAllString(s, `\u00$1`) }},
	} {
		all = append(all, Saboteur{ID: c.id, Fault: c.fault, Kills: "wire." + c.check, Serve: repaired(c.repair, wire.Destroy, wire.Cleanup, wire.Execute)})
	}
	for _, c := range []struct{ id, fault, check, old, text string }{
		{"Y48", "a timestamp may have an offset", "form", `+00:00"`, `Z"`},
		{"Y49", "30 February is 1 March", "day", "-02-30T", "-03-01T"},
		{"Y50", "time is older than 1970", "year", `"1969-`, `"1970-`},
		{"Y51", "no year has 29 February", "right", "-02-29T", "-02-30T"},
	} {
		all = append(all, Saboteur{ID: c.id, Fault: c.fault, Kills: "wire.timestamps/" + c.check, Serve: repaired(replace(c.old, c.text), wire.Cleanup)})
	}
	return slices.Concat(all, []Saboteur{
		{ID: "Y52", Fault: "what nests deeply takes the connection down", Kills: "wire.json", Serve: func(h http.Handler, env *Env) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == wire.Destroy.Path() && bytes.Contains(bodyOf(r), bytes.Repeat([]byte("["), 1000)) {
					env.Fire()
					panic(http.ErrAbortHandler)
				}
				h.ServeHTTP(w, r)
			})
		}},
		{ID: "Y53", Fault: "frames may be longer than 1 MiB", Kills: "wire.frames/length", Serve: reframed(func(all []looseFrame) ([]looseFrame, bool) {
			last := len(all) - 1
			if last < 0 || len(all[last].payload) <= wire.MaxFrameBytes {
				return all, false
			}
			long := all[last]
			head, rest := long.payload[:wire.MaxFrameBytes], long.payload[wire.MaxFrameBytes:]
			return append(all[:last:last], looseFrame{long.kind, wire.MaxFrameBytes, head}, looseFrame{long.kind, uint32(len(rest)), rest}), true
		})},
		{ID: "Y54", Fault: "frames of an unknown type are passed over", Kills: "wire.frames/type", Serve: reframed(func(all []looseFrame) ([]looseFrame, bool) {
			known := slices.DeleteFunc(slices.Clone(all), func(f looseFrame) bool { return !f.kind.Valid() })
			return known, len(known) < len(all)
		})},
		{ID: "Y55", Fault: "data may come before its call", Kills: "wire.frames/order", Serve: reframed(func(all []looseFrame) ([]looseFrame, bool) {
			if len(all) != 2 || all[0].kind != wire.TypeData {
				return all, false
			}
			return []looseFrame{all[1], all[0]}, true
		})},
		{ID: "Y56", Fault: "the first frame is the call, whatever it says", Kills: "wire.frames/no-call", Serve: reframed(func(all []looseFrame) ([]looseFrame, bool) {
			if len(all) != 1 || all[0].kind != wire.TypeData {
				return all, false
			}
			all[0].kind = wire.TypeCall
			return all, true
		})},
		{ID: "Y57", Fault: "a frame may end with its body", Kills: "wire.frames/cut", Serve: reframed(func(all []looseFrame) ([]looseFrame, bool) {
			last := len(all) - 1
			if last < 1 || int(all[last].length) == len(all[last].payload) {
				return all, false
			}
			all[last].length = uint32(len(all[last].payload))
			return all, true
		})},
		{ID: "Y58", Fault: "an error does not say who wrote it", Kills: "wire.answers/author", Serve: nobodys(func(t *reply) { delete(t.header, wire.HeaderBoot) })},
		{ID: "Y59", Fault: "an error has another envelope's digest", Kills: "wire.answers/digest", Serve: nobodys(func(t *reply) {
			t.header.Set(wire.HeaderCapabilities, "sha256:"+strings.Repeat("0", 64))
		})},
		{ID: "Y60", Fault: "every error is of another boot", Kills: "wire.answers/boot", Serve: nobodys(func(t *reply) {
			t.header.Set(wire.HeaderBoot, string(wire.NewBootID()))
		})},
		{ID: "Y61", Fault: "an error is a text", Kills: "wire.answers/media", Serve: nobodys(func(t *reply) { t.header.Set("Content-Type", "text/plain") })},
		{ID: "Y62", Fault: "an answer brings a cookie", Kills: "wire.answers/no-cookie", Serve: nobodys(func(t *reply) { t.header.Set("Set-Cookie", "a=b") })},
		{ID: "Y63", Fault: "frames may be stored on their way", Kills: "wire.answers/framed", Serve: retold(func(r *http.Request, t *reply) bool {
			was := t.header.Get("Cache-Control") != ""
			t.header.Del("Cache-Control")
			return was
		})},
		{ID: "Y64", Fault: "an error has the status of another", Kills: "wire.errors/status", Serve: retold(func(r *http.Request, t *reply) bool {
			was := byHand(r) && t.status == http.StatusNotFound && bytes.Contains(t.body.Bytes(), []byte("SandboxInstanceNotFound"))
			if was {
				t.status = http.StatusBadRequest
			}
			return was
		})},
		{ID: "Y65", Fault: "what is not there is named as something else", Kills: "wire.errors/not-found", Serve: retold(func(r *http.Request, t *reply) bool {
			return t.status == http.StatusNotFound && t.instead(`"instance_id":"none-`, `"instance_id":"other-`)
		})},
		{ID: "Y66", Fault: "an error is of another operation", Kills: "wire.errors/conflict", Serve: retold(func(r *http.Request, t *reply) bool {
			return byHand(r) && t.status == http.StatusConflict && t.instead(`"operation":"activate"`, `"operation":"provision"`)
		})},
		{ID: "Y67", Fault: "what breaks a rule of the contract is anybody's error", Kills: "wire.errors/invalid", Serve: retold(func(r *http.Request, t *reply) bool {
			return byHand(r) && t.instead(`"reason":"invalid_request"`, `"reason":"provider_error"`)
		})},
	})
}

var (
	twoIDs  = regexp.MustCompile(`"instance_id":"[^"]*",("instance_id")`)
	escaped = regexp.MustCompile(`\\u0000([0-9a-f]{2})`)
)

// nobodys changes the answer to whoever asks for an endpoint that is none.
func nobodys(change func(*reply)) func(http.Handler, *Env) http.Handler {
	return retold(func(r *http.Request, t *reply) bool {
		if _, there := wire.ParsePath(r.URL.Path); there || t.status != http.StatusNotFound {
			return false
		}
		change(t)
		return true
	})
}

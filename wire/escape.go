package wire

import (
	"reflect"
	"strings"
	"unicode/utf8"
)

// Escape makes any byte string fit into a JSON string: each byte that is not
// part of valid UTF-8, and each NUL, becomes U+0000 and two lower-case hex
// digits. Every other text stays as it is.
//
// U+0000 is free to be the mark because no path, argument, environment value or
// identity may hold a NUL. So whoever does not know of the escape still reads
// and writes all text but the broken one right, and meets the broken one as a
// string that no operating system takes: loudly, never as another file's name.
// The rule holds for every string value of every message; keys of objects are
// never escaped.
// Source: docs/divergences.md, rows 7 and 35.
func Escape(s string) string {
	if Plain(s) {
		return s
	}
	const hex = "0123456789abcdef"
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == 0 || r == utf8.RuneError && n == 1 {
			b.Write([]byte{0, hex[s[i]>>4], hex[s[i]&15]})
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Unescape is the inverse of Escape. It refuses whatever Escape cannot have
// written: a mark without two lower-case digits, and an escape of what needed
// none (one byte string has one form).
func Unescape(s string) (string, bool) {
	if !strings.Contains(s, "\x00") {
		return s, utf8.ValidString(s)
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != 0 {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		high, low := nibble(s[i+1]), nibble(s[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b = append(b, byte(high<<4|low))
		i += 2
	}
	raw := string(b)
	return raw, Escape(raw) == s
}

// Plain reports whether s is its own escaped form.
func Plain(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func nibble(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// mapText returns a copy of v, a message, in which f was applied to every
// string but the keys of maps. It is the slow path: most messages hold plain
// text only and are never copied.
func mapText(v reflect.Value, f func(string) string) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(f(v.String()))
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(mapText(v.Field(i), f))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(mapText(v.Elem(), f))
		}
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			return v // bytes are not text, and never in JSON
		}
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(mapText(v.Index(i), f))
		}
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for key, value := range v.Seq2() {
			out.SetMapIndex(key, mapText(value, f))
		}
	default:
		out.Set(v)
	}
	return out
}

package report

import (
	"reflect"
	"strconv"
	"unicode/utf8"
)

// PrintableBytes is the longest text that Printable returns.
const PrintableBytes = 512

// ellipsis ends a text that was cut.
const ellipsis = "…"

// Printable makes text that a provider or a workload wrote fit for a file, a
// terminal and one line: what does not print (control characters, invalid
// UTF-8, line and direction marks, unusual spaces) is written as a Go escape,
// and what is longer than PrintableBytes is cut between two characters and ends
// in "…". A backslash stays one, so that a second pass changes nothing; text
// that spells out an escape cannot be told from one.
func Printable(s string) string { return printable(s, PrintableBytes) }

func printable(s string, limit int) string {
	out := make([]byte, 0, min(len(s), limit))
	cut := 0 // how much still leaves room for the ellipsis
	for i := 0; i < len(s) && len(out) <= limit; {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			const hex = "0123456789abcdef"
			out = append(out, '\\', 'x', hex[s[i]>>4], hex[s[i]&15])
		case strconv.IsPrint(r):
			out = append(out, s[i:i+n]...)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			out = append(out, quoted[1:len(quoted)-1]...)
		}
		i += n
		if len(out) <= limit-len(ellipsis) {
			cut = len(out)
		}
	}
	if len(out) > limit {
		return string(out[:cut]) + ellipsis
	}
	return string(out)
}

// clean is a copy of r, sharing nothing with it, whose every text is printable
// and whose every list is there. It goes by the types, so that no field that is
// added later can be forgotten.
func clean(r Report) Report {
	out := reflect.New(reflect.TypeFor[Report]()).Elem()
	copyClean(out, reflect.ValueOf(r))
	return out.Interface().(Report)
}

func copyClean(dst, src reflect.Value) {
	switch src.Kind() {
	case reflect.String:
		dst.SetString(Printable(src.String()))
	case reflect.Struct:
		for i := range src.NumField() {
			copyClean(dst.Field(i), src.Field(i))
		}
	case reflect.Slice:
		dst.Set(reflect.MakeSlice(src.Type(), src.Len(), src.Len()))
		for i := range src.Len() {
			copyClean(dst.Index(i), src.Index(i))
		}
	default:
		dst.Set(src)
	}
}

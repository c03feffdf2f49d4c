package argument

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable gives s with every rune that a terminal would act on, and every
// byte that is no text, written out. Names come from workloads.
func Printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !shows(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if shows(r) {
			b.WriteString(s[:size])
		} else {
			q := strconv.QuoteToASCII(s[:size])
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[size:]
	}
	return b.String()
}

// shows leaves out controls, and what changes the direction of a line.
func shows(r rune) bool { return r != unicode.ReplacementChar && unicode.IsPrint(r) }

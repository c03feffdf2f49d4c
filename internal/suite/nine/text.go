package nine

import (
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/probe"
)

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func quoted(s string) string { return strconv.Quote(s) }

// word makes s one word of a shell script, whatever it holds.
func word(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// lines is text of some hundred lines that nobody can know and that survives
// every careless conversion.
func lines(t *probe.T) []byte {
	var b strings.Builder
	for range between(t, 100, 200) {
		b.WriteString(t.Nonce() + "\n")
	}
	return []byte(b.String())
}

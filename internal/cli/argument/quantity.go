package argument

import (
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// units are the suffixes of a size. A bare letter is refused: half of the
// world's tools mean 1000 by it and half 1024.
var units = map[string]int64{
	"": 1, "B": 1,
	"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// Size reads a number of bytes above 0 ("2GiB", "1.5GB", "4096").
func Size(flag, s string) (int64, error) {
	wrong := func() error {
		return Unexpected(flag, "a size above 0 such as 512MiB, 1.5GiB or 2GB", s)
	}
	end := strings.LastIndexAny(s, "0123456789.") + 1
	scale, ok := units[s[end:]]
	if !ok {
		return 0, wrong()
	}
	n, ok := parseDecimal(s[:end], scale)
	if !ok {
		return 0, wrong()
	}
	return n, nil
}

// CPUs reads a number of cores above 0 and returns thousandths ("2",
// "0.5").
func CPUs(flag, s string) (int64, error) {
	n, ok := parseDecimal(s, 1000)
	if !ok {
		return 0, Unexpected(flag, "a number of cores above 0 with at most three decimals, such as 2 or 0.5", s)
	}
	return n, nil
}

// Count reads a whole number above 0.
func Count(flag, s string) (int64, error) {
	n, ok := parseDecimal(s, 1)
	if !ok || strings.ContainsRune(s, '.') {
		return 0, Unexpected(flag, "a whole number above 0", s)
	}
	return n, nil
}

// parseDecimal reads digits with at most one point and returns their product
// with scale, if that is a whole number from 1 to sandbox.MaxInteger. There is
// no sign, no exponent and no other word: NaN, 9e99 and 0x10 are refused.
func parseDecimal(s string, scale int64) (int64, bool) {
	whole, fraction, point := strings.Cut(s, ".")
	const longest = 20
	if whole == "" || point && fraction == "" || len(s) > longest {
		return 0, false
	}
	for _, c := range []byte(whole + fraction) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, ok := new(big.Rat).SetString(s)
	if !ok {
		return 0, false
	}
	n.Mul(n, new(big.Rat).SetInt64(scale))
	if !n.IsInt() || !n.Num().IsInt64() || n.Num().Int64() < 1 || n.Num().Int64() > sandbox.MaxInteger {
		return 0, false
	}
	return n.Num().Int64(), true
}

// Duration reads a time above 0 with its unit, at most 30 days.
func Duration(flag, s string) (time.Duration, error) {
	const most = 30 * 24 * time.Hour
	d, err := time.ParseDuration(s)
	if err != nil || strings.ContainsAny(s, "+-") || d < time.Millisecond || d > most {
		return 0, Unexpected(flag, "a time from 1ms to 720h with its unit, such as 90s, 10m or 2h", s)
	}
	return d, nil
}

// Bytes is a size for people.
func Bytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

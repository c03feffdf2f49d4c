package argument

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

func TestSize(t *testing.T) {
	for s, want := range map[string]int64{
		"1": 1, "4096": 4096, "1B": 1, "2GiB": 2 << 30, "2GB": 2e9, "1.5GiB": 3 << 29, "0.5KiB": 512, "010": 10, "1kB": 1000,
		"9007199254740991": 1<<53 - 1, "4TiB": 4 << 40,
	} {
		if got, err := Size("--memory", s); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "0", "0GiB", "-1", "-1GiB", "+1", "NaN", "nan", "Inf", "9e99", "1e3", "0x10", "1_000", "2G", "2gib", "2 GiB", " 2GiB", "2GiB ",
		"1.5", "1.5B", ".5GiB", "1.GiB", "1..5GiB", "1.0.0", "9007199254740992", "9223372036854775808", "18446744073709551616", "99999999TiB",
		"1/2GiB", "½GiB", "٣GiB", "1,5GiB", "GiB", strings.Repeat("9", 10000), "2GiBB", "0b1", "1\x00",
	} {
		got, err := Size("--memory", s)
		if err == nil {
			t.Errorf("%q was taken as %d", s, got)
		} else if msg := err.Error(); !strings.HasPrefix(msg, "--memory: expected ") || !strings.Contains(msg, "got ") || len(msg) > 1200 {
			t.Errorf("%q: %s", s, msg)
		}
	}
}

func TestCPUs(t *testing.T) {
	for s, want := range map[string]int64{"2": 2000, "0.5": 500, "0.001": 1, "1.250": 1250, "64": 64000} {
		if got, err := CPUs("--cpus", s); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "0.0", "-1", "0.0001", "1.2345", "NaN", "1e1", "two", "1.", "9007199254740991", strings.Repeat("1", 30)} {
		if got, err := CPUs("--cpus", s); err == nil {
			t.Errorf("%q was taken as %d", s, got)
		}
	}
}

func TestCount(t *testing.T) {
	if got, err := Count("--pids", "512"); err != nil || got != 512 {
		t.Errorf("%d, %v", got, err)
	}
	for _, s := range []string{"", "0", "-1", "1.0", "512.0", "1e3", "many", "9223372036854775807", "0x1"} {
		if got, err := Count("--pids", s); err == nil {
			t.Errorf("%q was taken as %d", s, got)
		}
	}
}

func TestDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"10m": 10 * time.Minute, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1.5s": 1500 * time.Millisecond, "1ms": time.Millisecond, "720h": 720 * time.Hour,
	} {
		if got, err := Duration("--timeout", s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "0", "0s", "-1s", "+1s", "10", "1d", "NaN", "Inf", "9e99s", "1e3s", "721h", "2562048h", "9223372036854775808ns", "999us", "1h-1m",
		"+14:00", "10 m", "2147483648h", "m", strings.Repeat("9", 400) + "h",
	} {
		if got, err := Duration("--timeout", s); err == nil {
			t.Errorf("%q was taken as %v", s, got)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"2GiB", "1.5GB", "0", "-1", "9e99", "NaN", "9007199254740991", "18446744073709551616"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Size("--memory", s)
		if err != nil {
			return
		}
		if n < 1 || n > sandbox.MaxInteger {
			t.Fatalf("%q is %d", s, n)
		}
		// The number is what an exact calculation says, never a wrapped one.
		end := strings.LastIndexAny(s, "0123456789.") + 1
		exact, ok := new(big.Rat).SetString(s[:end])
		if !ok || exact.Mul(exact, new(big.Rat).SetInt64(units[s[end:]])).Cmp(new(big.Rat).SetInt64(n)) != 0 {
			t.Fatalf("%q is %d, exactly %v", s, n, exact)
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"10m", "1h2m3s", "-1s", "9e99s", "2562047h47m16.854775807s", "1.0000000001s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := Duration("--timeout", s); err == nil && (d < time.Millisecond || d > 30*24*time.Hour) {
			t.Fatalf("%q is %v", s, d)
		}
	})
}

func FuzzCPUs(f *testing.F) {
	for _, s := range []string{"2", "0.5", "0.0001", "1e9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := CPUs("--cpus", s); err == nil && (n < 1 || float64(n) > math.MaxInt64) {
			t.Fatalf("%q is %d", s, n)
		}
	})
}

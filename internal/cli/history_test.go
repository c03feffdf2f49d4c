package cli

import (
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// A stranger's patch moves no cursor.
func TestCopyPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "",
		"+a\n-b\n":                   "+a\n-b\n",
		"+a\tb":                      "+a        b",
		"+\x1b]0;title\a\x1b[2J\r\n": `+\x1b]0;title\a\x1b[2J\r` + "\n",
		"+\xff\u202e\n":              `+\xff\u202e` + "\n",
	} {
		var b strings.Builder
		if err := copyPrintable(&b, strings.NewReader(in)); err != nil || b.String() != want {
			t.Errorf("%q: %q, %v", in, b.String(), err)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for want, argv := range map[string][]string{
		"sh -c 'exit 3'":    {"sh", "-c", "exit 3"},
		"'' '--x=1' a/b":    {"", "--x=1", "a/b"},
		`'\x1b[2J' a`:       {"\x1b[2J", "a"},
		`make 'it'\''s it'`: {"make", "it's it"},
	} {
		if got := commandLine(argv); got != want {
			t.Errorf("%q: %s, want %s", argv, got, want)
		}
	}
}

func TestExitWord(t *testing.T) {
	code := int64(3)
	ended := keeper.Ran{StartedAt: "2026-01-01T00:00:00.000Z", EndedAt: "2026-01-01T00:00:01.500Z", Cause: string(runner.CauseExited)}
	with := func(change func(*keeper.Ran)) keeper.Ran {
		c := ended
		change(&c)
		return c
	}
	for want, c := range map[string]keeper.Ran{
		"3":         with(func(c *keeper.Ran) { c.Exit.ExitCode = &code }),
		"SIGKILL":   with(func(c *keeper.Ran) { c.Exit = sandbox.Exit{Signal: "SIGKILL"} }),
		"timed out": with(func(c *keeper.Ran) { c.Cause = string(runner.CauseTimedOut) }),
		"?":         with(func(c *keeper.Ran) { c.EndedAt = "" }),
		"-":         with(func(c *keeper.Ran) { c.Cause = "" }),
	} {
		if got := exitWord(c); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
	if got := took(ended); got != "1.5s" {
		t.Error(got)
	}
}

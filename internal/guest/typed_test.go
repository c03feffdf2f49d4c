package guest

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Keys that are signals are written by themselves, and what nobody has read
// before them is gone.
func TestKeys(t *testing.T) {
	for _, c := range []struct {
		flags uint32 // taken away
		more  uint32 // added
		typed string
		want  []string
	}{
		{0, 0, "ls\n\x03\x1ax\x1c", []string{"ls\n", "\x03\x1a", "x", "\x1c"}},
		{0, 0, "\x03", []string{"\x03"}},
		{0, 0, "ls\x04", []string{"ls\x04"}},
		{0, 0, "a\x00b", []string{"a\x00b"}}, // a key that is switched off is 0
		{unix.ISIG, 0, "ls\n\x03x", []string{"ls\n\x03x"}},
		{0, unix.NOFLSH, "ls\n\x03x", []string{"ls\n\x03x"}},
	} {
		master, slave, err := openPty(TerminalSize{24, 80})
		if err != nil {
			t.Fatal(err)
		}
		defer master.Close()
		defer slave.Close()
		how, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		how.Lflag = how.Lflag&^c.flags | c.more
		how.Cc[unix.VQUIT] = 0x1c
		if c.typed == "a\x00b" {
			how.Cc[unix.VSUSP] = 0
		}
		if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, how); err != nil {
			t.Fatal(err)
		}
		raw, err := master.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for rest := []byte(c.typed); len(rest) > 0; {
			var n int
			raw.Control(func(fd uintptr) { n = keys(int(fd), rest) })
			if n < 1 || n > len(rest) {
				t.Fatalf("%q: %d", rest, n)
			}
			got, rest = append(got, string(rest[:n])), rest[n:]
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q without %#x: %q, want %q", c.typed, c.flags, got, c.want)
		}
	}
}

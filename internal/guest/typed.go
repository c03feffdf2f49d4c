package guest

import (
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// typeInto does what the frames say until they end. A terminal that nobody holds
// any more takes nothing: that ends the command, if anything does, and not this.
// Errors: nil at their end; *WireError for what is no frame.
func typeInto(master *os.File, in io.Reader) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	for frames := (&strokes{r: in}); ; {
		s, err := frames.next()
		switch {
		case err != nil:
			if refused, is := err.(*WireError); is {
				return refused
			}
			return nil // whoever typed is gone
		case s.typed != nil:
			for rest := s.typed; len(rest) > 0; {
				n := len(rest)
				raw.Control(func(fd uintptr) { n = keys(int(fd), rest) })
				_, _ = master.Write(rest[:n])
				rest = rest[n:]
			}
		default:
			raw.Control(func(fd uintptr) { _ = resize(int(fd), s.size) })
		}
	}
}

// keys says how many of typed may be written at once: all up to a key that is a
// signal, or such keys alone, before which what was typed and not read yet is
// thrown away. Linux does the same when it takes such a key. Under gVisor one
// would wait until the line before it is read, which a program that does not read
// never does: it could not be interrupted.
func keys(fd int, typed []byte) int {
	how, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil || how.Lflag&unix.ISIG == 0 || how.Lflag&unix.NOFLSH != 0 {
		return len(typed)
	}
	signal := func(key byte) bool {
		return key != 0 && (key == how.Cc[unix.VINTR] || key == how.Cc[unix.VQUIT] || key == how.Cc[unix.VSUSP])
	}
	if n := slices.IndexFunc(typed, signal); n != 0 {
		if n < 0 {
			n = len(typed)
		}
		return n
	}
	_ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCOFLUSH)
	n := slices.IndexFunc(typed, func(key byte) bool { return !signal(key) })
	if n < 0 {
		n = len(typed)
	}
	return n
}

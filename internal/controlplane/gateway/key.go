package gateway

import (
	"bytes"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Key is a provider's key. It is in the memory of this process and says nothing
// of itself, however it is printed.
type Key struct{ secret string }

// String never tells the key.
func (Key) String() string { return "[key]" }

// GoString never tells the key.
func (Key) GoString() string { return "[key]" }

// MarshalText never tells the key.
func (Key) MarshalText() ([]byte, error) { return []byte("[key]"), nil }

// KeyError is a key that is not taken. Nothing in it is the key's.
type KeyError struct{ Source, Expected, Got string }

// Error is one line.
func (e *KeyError) Error() string {
	return "key of " + e.Source + ": expected " + e.Expected + ", got " + e.Got
}

// ReadKeyFile reads a key from a file that only its owner, who is this process's
// user, can read; no link is followed.
// Errors: *KeyError.
func ReadKeyFile(path string) (Key, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return Key{}, &KeyError{path, "a file", err.Error()}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return Key{}, &KeyError{path, "a file", err.Error()}
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return Key{}, &KeyError{path, "a regular file", "another kind"}
	case int(stat.Uid) != os.Geteuid():
		return Key{}, &KeyError{path, "a file of user " + strconv.Itoa(os.Geteuid()), "one of user " + strconv.Itoa(int(stat.Uid))}
	case stat.Mode&0o077 != 0:
		return Key{}, &KeyError{path, "mode 0600", "0" + strconv.FormatUint(uint64(stat.Mode&0o777), 8)}
	}
	return ReadKey(f, path)
}

// ReadKey reads a key to the end of r, as of an inherited descriptor; source
// names it in errors. One newline at the end is not the key's.
// Errors: *KeyError.
func ReadKey(r io.Reader, source string) (Key, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxKeyBytes+1))
	if err != nil {
		return Key{}, &KeyError{source, "to be read", err.Error()}
	}
	defer clear(data)
	if len(data) > MaxKeyBytes {
		return Key{}, &KeyError{source, "at most " + strconv.Itoa(MaxKeyBytes) + " bytes", "more"}
	}
	text := bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(text) == 0 {
		return Key{}, &KeyError{source, "a key", "nothing"}
	}
	for _, b := range text {
		if b <= ' ' || b > '~' { // it becomes a header
			return Key{}, &KeyError{source, "visible ASCII on one line", "something else"}
		}
	}
	return Key{string(text)}, nil
}

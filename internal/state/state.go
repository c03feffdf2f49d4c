// Package state holds the version of the state directory: what of checkfu wrote
// the directory, and whether this one may.
//
//	DIR/version   "checkfu-state N\n", mode 0644
//
// A directory without the file is new, or of a checkfu from before there was one;
// its form is version 1. A later form gets a later number, and what brings an
// older directory up to it stands in Open. A newer directory is refused before
// anything in it is read: what an old program does not know it would remove.
//
// Trusts: the directory, which only its owner and root can write. Does not trust:
// that the file is whole, or was written by this program.
// Bounds: the file is read to 64 bytes. Errors: *Error; the operating system's.
// Concurrency: Open and Check may be called by any number of processes at once.
package state

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Version is the form that this program reads and writes.
const Version = 1

const (
	name   = "version"
	prefix = "checkfu-state "
	most   = 64 // bytes of the file
)

// Error says that the directory is in a form that this program does not know. It
// is the person's to solve: with another checkfu, or another directory.
type Error struct {
	Path          string // of the version file
	Expected, Got string
}

// Error is one line with the file, what was expected and what is there.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: expected %s, got %q", e.Path, e.Expected, e.Got)
}

// Check reports whether this program may use dir. It writes nothing; a directory
// that is not there may be used.
// Errors: *Error; the operating system's.
func Check(dir string) error {
	_, err := version(dir)
	return err
}

// Open is Check for a directory that is there, and notes the version in one that
// has none.
// Errors: *Error; the operating system's.
func Open(dir string) error {
	v, err := version(dir)
	if err != nil || v == Version {
		return err
	}
	// v is 0, a directory of version 1 without the file: there is nothing to move.
	return write(dir)
}

// version is what the file says, and 0 where there is none.
func version(dir string) (int, error) {
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return 0, err
	}
	v, ok := parse(string(data))
	switch {
	case !ok:
		return 0, &Error{path, strconv.Quote(prefix + "N"), string(data[:min(len(data), most)])}
	case v > Version:
		return 0, &Error{path, fmt.Sprintf("a state of version %d at most, as this checkfu writes (use the checkfu that wrote it, or another --state)", Version), strconv.Itoa(v)}
	}
	return v, nil
}

// parse reads the file: one spelling of each number, from 1.
func parse(s string) (int, bool) {
	digits, found := strings.CutPrefix(s, prefix)
	digits, ended := strings.CutSuffix(digits, "\n")
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), found && ended && err == nil && n > 0 && strconv.FormatUint(n, 10) == digits
}

// write makes the file whole, also for a host that loses power: half of it would
// lock everybody out.
func write(dir string) (err error) {
	f, err := os.CreateTemp(dir, "."+name+"-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(prefix + strconv.Itoa(Version) + "\n")
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

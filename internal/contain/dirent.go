//go:build linux

package contain

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// dirent is one name of a directory as getdents64 gives it. name points into
// the buffer.
type dirent struct {
	name []byte
	kind byte // unix.DT_*; a hint, the name may be something else by now
}

var errDirent = errors.New("malformed directory entry")

// Layout of struct linux_dirent64: inode 8, offset 8, length 2, type 1, name.
const (
	direntLength = 16
	direntType   = 18
	direntName   = 19
)

// nextDirent takes the first entry off a getdents64 buffer. "." and ".." are
// given as any other. A name with a slash is refused: a damaged filesystem
// image may hold one, and calls that take a name would walk it.
func nextDirent(buffer []byte) (entry dirent, rest []byte, err error) {
	if len(buffer) < direntName+1 {
		return dirent{}, nil, errDirent
	}
	length := int(binary.NativeEndian.Uint16(buffer[direntLength:]))
	if length < direntName+1 || length > len(buffer) {
		return dirent{}, nil, errDirent
	}
	name := buffer[direntName:length]
	end := bytes.IndexByte(name, 0)
	if end <= 0 || bytes.IndexByte(name[:end], '/') >= 0 {
		return dirent{}, nil, errDirent
	}
	return dirent{name: name[:end], kind: buffer[direntType]}, buffer[length:], nil
}

// isDot reports "." and "..".
func isDot(name []byte) bool {
	return name[0] == '.' && (len(name) == 1 || len(name) == 2 && name[1] == '.')
}

// eachDirent calls visit for every name of an open directory, from its start.
// The name is valid only during the call.
func eachDirent(fd int, buffer []byte, visit func(dirent) error) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	for {
		n, err := unix.Getdents(fd, buffer)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for rest := buffer[:n]; len(rest) > 0; {
			var entry dirent
			if entry, rest, err = nextDirent(rest); err != nil {
				return err
			}
			if isDot(entry.name) {
				continue
			}
			if err := visit(entry); err != nil {
				return err
			}
		}
	}
}

package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// superOffset is where the superblock of an ext4 filesystem lies, and superBytes
// how long it is.
const (
	superOffset = 1024
	superBytes  = 1024
)

// errNoFilesystem: the file is no ext4 filesystem.
var errNoFilesystem = errors.New("no ext4 filesystem")

// super is what we look at of a superblock.
// Source: the Linux kernel's documentation of ext4, "Super Block".
type super [superBytes]byte

func (s *super) u16(at int) uint16 { return binary.LittleEndian.Uint16(s[at:]) }
func (s *super) u32(at int) uint32 { return binary.LittleEndian.Uint32(s[at:]) }

func readSuper(image io.ReaderAt) (s super, err error) {
	switch _, err := image.ReadAt(s[:], superOffset); {
	case errors.Is(err, io.EOF):
		return s, errNoFilesystem // too short to be one
	case err != nil:
		return s, err
	case s.u16(0x38) != 0xef53:
		return s, errNoFilesystem
	}
	return s, nil
}

// sound says what the filesystem has noted of its own faults.
func (s *super) sound() error {
	const errorState = 2 // of s_state
	if state, faults := s.u16(0x3a), s.u32(0x194); state&errorState != 0 || faults != 0 {
		return fmt.Errorf("it has found %d errors in itself (state %#x)", faults, state)
	}
	return nil
}

package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// The form of the filesystems that Create makes.
const (
	blockBytes  = 4096
	groupBlocks = 8 * blockBytes // a group is what one block of bits speaks of
	groupBytes  = 64             // of a group's descriptor
	inodeBytes  = 256

	// incompatible features: names with types, extents, 64 bits, flexible groups.
	incompatible = 0x2 | 0x40 | 0x80 | 0x200
	metadataCsum = 0x400
	bigalloc     = 0x200
)

// ErrDamaged: the filesystem in an image contradicts itself.
var ErrDamaged = errors.New("damaged filesystem")

// blocks is how many the filesystem has.
func (s *super) blocks() int64 { return int64(s.u32(0x4)) | int64(s.u32(0x150))<<32 }

// inodesPerGroup is how many inodes the table of each group has.
func (s *super) inodesPerGroup() int64 { return int64(s.u32(0x28)) }

// ours holds a filesystem in an image of so many bytes to the form that Create gives
// one.
// Errors: ErrDamaged.
func (s *super) ours(bytes int64) error {
	for _, f := range []struct {
		name      string
		want, got int64
	}{
		{"first block", 0, int64(s.u32(0x14))},
		{"block size", blockBytes, 1024 << min(s.u32(0x18), 10)},
		{"blocks of a group", groupBlocks, int64(s.u32(0x20))},
		{"bytes of an inode", inodeBytes, int64(s.u16(0x58))},
		{"incompatible features", incompatible, int64(s.u32(0x60))},
		{"checksum and cluster features", metadataCsum, int64(s.u32(0x64) & (metadataCsum | bigalloc))},
		{"bytes of a group's descriptor", groupBytes, int64(s.u16(0xfe))},
	} {
		if f.got != f.want {
			return fmt.Errorf("%w: %s: expected %#x, got %#x", ErrDamaged, f.name, f.want, f.got)
		}
	}
	if n := s.blocks(); n < 1 || n > bytes/blockBytes {
		return fmt.Errorf("%w: blocks: expected 1 to %d, got %d", ErrDamaged, bytes/blockBytes, n)
	}
	if n := s.inodesPerGroup(); n < 1 || n > groupBlocks {
		return fmt.Errorf("%w: inodes of a group: expected 1 to %d, got %d", ErrDamaged, groupBlocks, n)
	}
	return nil
}

// group is what we look at of one group's descriptor.
// Source: the Linux kernel's documentation of ext4, "Block Group Descriptors".
type group struct {
	d      [groupBytes]byte
	number int64
	count  int64  // of the filesystem's blocks
	seed   uint32 // of its checksums
}

func (d *group) u16(at int) uint32 { return uint32(binary.LittleEndian.Uint16(d.d[at:])) }
func (d *group) flags() uint32     { return d.u16(0x12) }

// at is a number of a block; its upper half lies 32 bytes behind the lower.
func (d *group) at(low int) int64 {
	return int64(binary.LittleEndian.Uint32(d.d[low:])) | int64(binary.LittleEndian.Uint32(d.d[low+0x20:]))<<32
}

// group reads the descriptor of one group.
// Errors: ErrDamaged; host errors.
func (s *super) group(image io.ReaderAt, number int64) (*group, error) {
	d := &group{number: number, count: s.blocks(), seed: checksum(^uint32(0), s[0x68:0x78])}
	if _, err := image.ReadAt(d.d[:], blockBytes+number*groupBytes); err != nil {
		return nil, err
	}
	const sum = 0x1e
	want := d.u16(sum)
	made := d.d
	made[sum], made[sum+1] = 0, 0 // it is made over zeros
	if got := checksum(checksum(d.seed, binary.LittleEndian.AppendUint32(nil, uint32(number))), made[:]) & 0xffff; got != want {
		return nil, d.wrong("checksum of its descriptor", want, got)
	}
	return d, nil
}

// bits reads bits of a group that lie at a block, of which there are as many as b
// takes, and compares their checksum.
func (d *group) bits(image io.ReaderAt, at int64, b []byte, want uint32) error {
	if at < 1 || at >= d.count {
		return d.wrong("block of its bits", fmt.Sprint("1 to ", d.count-1), at)
	}
	if _, err := image.ReadAt(b, at*blockBytes); err != nil {
		return err
	}
	if got := checksum(d.seed, b); got != want {
		return d.wrong("checksum of its bits", want, got)
	}
	return nil
}

func (d *group) wrong(what string, want, got any) error {
	return fmt.Errorf("%w: group %d: %s: expected %v, got %v", ErrDamaged, d.number, what, want, got)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is CRC-32C without the inversions at its ends, as ext4 has it.
func checksum(start uint32, b []byte) uint32 { return ^crc32.Update(^start, castagnoli, b) }

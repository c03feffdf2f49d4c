package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math/bits"
)

// The form of the filesystems that Create makes.
const (
	blockBytes  = 4096
	groupBlocks = 8 * blockBytes // a group is what one block of bits speaks of
	groupBytes  = 64             // of a group's descriptor

	// incompatible features: names with types, extents, 64 bits, flexible groups.
	incompatible = 0x2 | 0x40 | 0x80 | 0x200
	metadataCsum = 0x400
	bigalloc     = 0x200
)

// ErrDamaged: the filesystem in an image contradicts itself.
var ErrDamaged = errors.New("damaged filesystem")

// Used says which blocks of an image belong to something, by the filesystem's own
// account. What lies in the others was deleted, or never written.
// Of nil all is used.
// Concurrency: it does not change.
type Used struct {
	words []uint64 // a bit for each block
	count int64    // of blocks that the bits speak of; what lies behind is used
}

// ReadUsed reads the account of a filesystem that is frozen or not mounted, from an
// image of so many bytes. Of a file that is no filesystem all is used.
//
// Bounds: a bit of memory for each 4 KiB of the image.
// Errors: ErrDamaged, also of a filesystem that Create did not make; host errors.
// Source: the Linux kernel's documentation of ext4, "Block Group Descriptors",
// "Block and Inode Bitmaps", "Checksums".
func ReadUsed(image io.ReaderAt, bytes int64) (*Used, error) {
	s, err := readSuper(image)
	if errors.Is(err, errNoFilesystem) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	count := int64(s.u32(0x4)) | int64(s.u32(0x150))<<32
	for _, f := range []struct {
		name      string
		want, got int64
	}{
		{"first block", 0, int64(s.u32(0x14))},
		{"block size", blockBytes, 1024 << min(s.u32(0x18), 10)},
		{"blocks of a group", groupBlocks, int64(s.u32(0x20))},
		{"incompatible features", incompatible, int64(s.u32(0x60))},
		{"checksum and cluster features", metadataCsum, int64(s.u32(0x64) & (metadataCsum | bigalloc))},
		{"bytes of a group's descriptor", groupBytes, int64(s.u16(0xfe))},
	} {
		if f.got != f.want {
			return nil, fmt.Errorf("%w: %s: expected %#x, got %#x", ErrDamaged, f.name, f.want, f.got)
		}
	}
	if count < 1 || count > bytes/blockBytes {
		return nil, fmt.Errorf("%w: blocks: expected 1 to %d, got %d", ErrDamaged, bytes/blockBytes, count)
	}
	groups := (count + groupBlocks - 1) / groupBlocks
	u := &Used{words: make([]uint64, 0, groups*groupBlocks/64), count: count}
	seed := checksum(^uint32(0), s[0x68:0x78])
	bitmap := make([]byte, blockBytes)
	for g := range groups {
		if err := readGroup(image, g, count, seed, bitmap); err != nil {
			return nil, err
		}
		for i := 0; i < blockBytes; i += 8 {
			u.words = append(u.words, binary.LittleEndian.Uint64(bitmap[i:]))
		}
	}
	return u, nil
}

// readGroup reads the bits of one group. All are set of a group in which nothing was
// ever allocated: its bits are not written, and nothing was deleted there.
func readGroup(image io.ReaderAt, group, count int64, seed uint32, bitmap []byte) error {
	wrong := func(what string, want, got any) error {
		return fmt.Errorf("%w: group %d: %s: expected %v, got %v", ErrDamaged, group, what, want, got)
	}
	var d [groupBytes]byte
	if _, err := image.ReadAt(d[:], blockBytes+group*groupBytes); err != nil {
		return err
	}
	u16 := func(at int) uint32 { return uint32(binary.LittleEndian.Uint16(d[at:])) }
	const flags, sum, uninitialized = 0x12, 0x1e, 0x2
	want := u16(sum)
	d[sum], d[sum+1] = 0, 0 // its checksum is made over zeros
	number := binary.LittleEndian.AppendUint32(nil, uint32(group))
	if got := checksum(checksum(seed, number), d[:]) & 0xffff; got != want {
		return wrong("checksum of its descriptor", want, got)
	}
	if u16(flags)&uninitialized != 0 {
		for i := range bitmap {
			bitmap[i] = 0xff
		}
		return nil
	}
	at := int64(binary.LittleEndian.Uint32(d[0x0:])) | int64(binary.LittleEndian.Uint32(d[0x20:]))<<32
	if at < 1 || at >= count {
		return wrong("block of its bits", fmt.Sprint("1 to ", count-1), at)
	}
	if _, err := image.ReadAt(bitmap, at*blockBytes); err != nil {
		return err
	}
	if want, got := u16(0x18)|u16(0x38)<<16, checksum(seed, bitmap); got != want {
		return wrong("checksum of its bits", want, got)
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is CRC-32C without the inversions at its ends, as ext4 has it.
func checksum(start uint32, b []byte) uint32 { return ^crc32.Update(^start, castagnoli, b) }

// Has reports whether a block is used.
func (u *Used) Has(block int64) bool {
	return u == nil || block >= u.count || u.words[block/64]&(1<<(block%64)) != 0
}

// Next returns the first block from block on that is used: itself, if it is.
func (u *Used) Next(block int64) int64 {
	if u == nil {
		return block
	}
	return u.find(block, true)
}

// Gaps names the runs of blocks that are not used, ascending: the first of each, and
// the first behind it.
func (u *Used) Gaps() iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		if u == nil {
			return
		}
		for from := u.find(0, false); from < u.count; {
			to := u.find(from, true)
			if !yield(from, to) {
				return
			}
			from = u.find(to, false)
		}
	}
}

// find returns the first block from block on whose bit is such, or the first behind
// the account.
func (u *Used) find(block int64, set bool) int64 {
	for at := block; at < u.count; at = at/64*64 + 64 {
		word := u.words[at/64]
		if !set {
			word = ^word
		}
		if word &= ^uint64(0) << (at % 64); word != 0 {
			return min(at/64*64+int64(bits.TrailingZeros64(word)), u.count)
		}
	}
	return max(block, u.count)
}

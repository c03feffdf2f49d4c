package volume

import (
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"math/bits"
)

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
	if err := s.ours(bytes); err != nil {
		return nil, err
	}
	count := s.blocks()
	groups := (count + groupBlocks - 1) / groupBlocks
	u := &Used{words: make([]uint64, 0, groups*groupBlocks/64), count: count}
	bitmap := make([]byte, blockBytes)
	for g := range groups {
		d, err := s.group(image, g)
		if err == nil {
			err = d.used(image, bitmap)
		}
		if err != nil {
			return nil, err
		}
		for i := 0; i < blockBytes; i += 8 {
			u.words = append(u.words, binary.LittleEndian.Uint64(bitmap[i:]))
		}
	}
	return u, nil
}

// used reads which blocks of a group are used. All are of a group in which nothing
// was ever allocated: its bits are not written, and nothing was deleted there.
func (d *group) used(image io.ReaderAt, bitmap []byte) error {
	const uninitialized = 0x2
	if d.flags()&uninitialized != 0 {
		for i := range bitmap {
			bitmap[i] = 0xff
		}
		return nil
	}
	return d.bits(image, d.at(0x0), bitmap, d.u16(0x18)|d.u16(0x38)<<16)
}

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

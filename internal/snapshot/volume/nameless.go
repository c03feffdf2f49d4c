package volume

import (
	"encoding/binary"
	"io"
)

// nameless reports whether a filesystem of an image of so many bytes has a file that
// is allocated and has no name: one that was open without a name when it was copied.
// It reads what is in use of the tables, 256 bytes a file.
// Errors: ErrDamaged; host errors.
// Source: the Linux kernel's documentation of ext4, "Index Nodes".
func nameless(image io.ReaderAt, s *super, bytes int64) (bool, error) {
	if err := s.ours(bytes); err != nil {
		return false, err
	}
	table, bitmap := make([]byte, 64*inodeBytes), make([]byte, (s.inodesPerGroup()+7)/8)
	for g := range (s.blocks() + groupBlocks - 1) / groupBlocks {
		d, err := s.group(image, g)
		if err != nil {
			return false, err
		}
		const uninitialized = 0x1
		if d.flags()&uninitialized != 0 { // it has none
			continue
		}
		if err := d.bits(image, d.at(0x4), bitmap, d.u16(0x1a)|d.u16(0x3a)<<16); err != nil {
			return false, err
		}
		found, err := d.nameless(image, s.inodesPerGroup(), bitmap, table)
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// nameless looks through one group's table, 64 inodes at a time.
func (d *group) nameless(image io.ReaderAt, count int64, bitmap, table []byte) (bool, error) {
	const reserved = 10 // the first inodes are the filesystem's own
	from := d.at(0x8)
	if from < 1 || from+(count*inodeBytes+blockBytes-1)/blockBytes > d.count {
		return false, d.wrong("block of its table", "within the filesystem", from)
	}
	for first := int64(0); first < count; first += 64 {
		n := min(64, count-first)
		if !anySet(bitmap[first/8 : (first+n+7)/8]) {
			continue
		}
		part := table[:n*inodeBytes]
		if _, err := image.ReadAt(part, from*blockBytes+first*inodeBytes); err != nil {
			return false, err
		}
		for i := range n {
			in := first + i
			links := binary.LittleEndian.Uint16(part[i*inodeBytes+0x1a:])
			if bitmap[in/8]&(1<<(in%8)) != 0 && links == 0 && (d.number > 0 || in >= reserved) {
				return true, nil
			}
		}
	}
	return false, nil
}

func anySet(bits []byte) bool {
	for _, b := range bits {
		if b != 0 {
			return true
		}
	}
	return false
}

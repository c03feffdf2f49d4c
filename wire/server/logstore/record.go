package logstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/checkfu/checkfu/wire/server/store"
)

const (
	headBytes = 12
	maxRecord = 1 << 30
	removed   = 0x80 // in the byte of a bucket
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Damage says that a record that was durable is not what was written.
type Damage struct {
	At  int64 // of the record in the file
	Why string
}

// Error names the place.
func (d *Damage) Error() string { return fmt.Sprintf("damaged at byte %d: %s", d.At, d.Why) }

// encode makes one record. A change is the number of its bucket, with the high
// bit where the key is removed; the key; and, unless it is removed, the value.
// Both have their length before them as a varint.
func encode(changes []store.Change) ([]byte, error) {
	record := make([]byte, headBytes)
	for _, c := range changes {
		n := slices.Index(store.Buckets(), c.Bucket)
		if n < 0 {
			return nil, fmt.Errorf("bucket: expected one of %q, got %q", store.Buckets(), c.Bucket)
		}
		if c.Value == nil {
			n |= removed
		}
		record = append(record, byte(n))
		record = append(binary.AppendUvarint(record, uint64(len(c.Key))), c.Key...)
		if c.Value != nil {
			record = append(binary.AppendUvarint(record, uint64(len(c.Value))), c.Value...)
		}
	}
	size := len(record) - headBytes
	if size == 0 || size > maxRecord {
		return nil, fmt.Errorf("record: expected 1 to %d bytes, got %d", maxRecord, size)
	}
	binary.BigEndian.PutUint32(record, uint32(size))
	binary.BigEndian.PutUint32(record[4:], crc32.Checksum(record[:4], castagnoli))
	binary.BigEndian.PutUint32(record[8:], crc32.Checksum(record[headBytes:], castagnoli))
	return record, nil
}

// decode calls f for each change of a record's payload. value.at is an offset in
// the payload.
func decode(payload []byte, f func(b store.Bucket, key string, value place, removed bool)) error {
	bad := errors.New("a change that is none")
	at := 0
	field := func() ([]byte, bool) {
		size, n := binary.Uvarint(payload[at:])
		if n <= 0 || size > uint64(len(payload)-at-n) {
			return nil, false
		}
		from := at + n
		at = from + int(size)
		return payload[from:at], true
	}
	for at < len(payload) {
		kind := payload[at]
		at++
		n := int(kind &^ removed)
		if n >= len(store.Buckets()) {
			return bad
		}
		key, ok := field()
		if !ok {
			return bad
		}
		b := store.Buckets()[n]
		if kind&removed != 0 {
			f(b, string(key), place{}, true)
			continue
		}
		value, ok := field()
		if !ok {
			return bad
		}
		f(b, string(key), place{int64(at - len(value)), int64(len(value))}, false)
	}
	return nil
}

// load reads the file from its beginning, and cuts off what a crash left of the
// last record.
func (s *log) load() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	s.room = size
	have := make([]byte, min(int64(len(head)), size))
	if _, err := s.file.ReadAt(have, 0); err != nil {
		return err
	}
	if string(have) != head {
		return fmt.Errorf("of form %q, not %q", have, head)
	}
	s.tables = newTables()
	for s.size = int64(len(head)); s.size < size; {
		payload, torn, err := record(s.file, s.size, size)
		if err == nil && !torn {
			err = s.apply(payload, s.size+headBytes)
			if err != nil {
				err = &Damage{s.size, err.Error()}
			}
		}
		if err != nil {
			return err
		}
		if torn {
			s.room = s.size
			return errors.Join(s.file.Truncate(s.size), s.file.Sync())
		}
		s.size += headBytes + int64(len(payload))
	}
	return nil
}

// record reads the payload of the record at at in a file of size bytes. It is
// torn, or not there at all, where it is not whole and no whole record follows: a
// record behind it was durable, and then so was this one. Its length is held to
// what is there before anything is allocated.
func record(file io.ReaderAt, at, size int64) (payload []byte, torn bool, err error) {
	var start [headBytes]byte
	if size-at < headBytes {
		return nil, true, nil
	}
	if _, err := file.ReadAt(start[:], at); err != nil {
		return nil, false, err
	}
	length := int64(binary.BigEndian.Uint32(start[:]))
	rest := size - at - headBytes
	next, why := at+1, "" // where it ends nobody can say
	switch {
	case crc32.Checksum(start[:4], castagnoli) != binary.BigEndian.Uint32(start[4:]):
		why = "the sum of its length is wrong"
	case length == 0 || length > maxRecord:
		return nil, false, &Damage{at, fmt.Sprintf("a record of %d bytes", length)}
	case length > rest:
		return nil, true, nil
	default:
		payload = make([]byte, length)
		if _, err := file.ReadAt(payload, at+headBytes); err != nil {
			return nil, false, err
		}
		if crc32.Checksum(payload, castagnoli) == binary.BigEndian.Uint32(start[8:]) {
			return payload, false, nil
		}
		next, why = at+headBytes+length, "its sum is wrong"
	}
	more, err := follows(file, next, size)
	if err == nil && more {
		err = &Damage{at, why + ", and records follow"}
	}
	return nil, err == nil, err
}

// follows says whether a whole record begins anywhere from at on.
func follows(file io.ReaderAt, at, size int64) (bool, error) {
	r := bufio.NewReaderSize(io.NewSectionReader(file, at, size-at), 1<<16)
	for ; at+headBytes < size; at++ {
		start, err := r.Peek(headBytes)
		if err != nil {
			return false, err
		}
		length := int64(binary.BigEndian.Uint32(start))
		if length > 0 && length <= min(maxRecord, size-at-headBytes) && crc32.Checksum(start[:4], castagnoli) == binary.BigEndian.Uint32(start[4:]) {
			sum := crc32.New(castagnoli)
			if _, err := io.Copy(sum, io.NewSectionReader(file, at+headBytes, length)); err != nil {
				return false, err
			}
			if sum.Sum32() == binary.BigEndian.Uint32(start[8:]) {
				return true, nil
			}
		}
		if _, err := r.Discard(1); err != nil {
			return false, err
		}
	}
	return false, nil
}

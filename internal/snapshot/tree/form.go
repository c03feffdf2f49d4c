package tree

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
)

// The form: magic, the root as a directory without a name, its content in
// ascending order of names, leave, end. An entry is a kind and its fields.
// Numbers are varints, texts are a length and bytes.
//
//	directory  name meta, then its entries, then leave
//	file       name meta alias size, then parts (gap length bytes), then 0 0
//	symlink    name meta alias target
//	fifo       name meta alias
//	socket     name meta alias
//	link       name alias      one more name of what has this alias
//	meta       mode uid gid seconds nanoseconds count (attribute value)...
//	alias      0, or a number for what has more than one name: 1, 2, 3, ...
const magic = "checkfu-tree-1\n"

type kind byte

const (
	kindDirectory kind = 'd'
	kindFile      kind = 'f'
	kindSymlink   kind = 'l'
	kindFIFO      kind = 'p'
	kindSocket    kind = 's'
	kindLink      kind = 'h'
	kindLeave     kind = 'u'
	kindEnd       kind = 'e'
)

// Bounds of the form, which are those of Linux.
const (
	maxName       = 255
	maxTarget     = 4095
	maxMode       = 0o7777
	maxAttributes = 65536 / 2 // a list of names is at most 64 KiB
	maxValue      = 65536
)

// attribute is one extended attribute.
type attribute struct{ name, value string }

// meta is what every inode has.
type meta struct {
	mode       uint32 // permissions and special bits
	uid, gid   uint32
	seconds    int64 // of the time of change
	nanos      uint32
	attributes []attribute
}

// entry is one line of the form, without a file's bytes.
type entry struct {
	kind   kind
	name   string
	meta   meta
	alias  uint64
	size   int64  // of a file
	target string // of a symbolic link
}

// encoder writes the form. The first error stays.
type encoder struct {
	w       *bufio.Writer
	scratch [binary.MaxVarintLen64]byte
	err     error
}

func (e *encoder) write(b []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

func (e *encoder) number(n uint64) { e.write(binary.AppendUvarint(e.scratch[:0], n)) }
func (e *encoder) signed(n int64)  { e.write(binary.AppendVarint(e.scratch[:0], n)) }

func (e *encoder) text(s string) {
	e.number(uint64(len(s)))
	if e.err == nil {
		_, e.err = e.w.WriteString(s)
	}
}

func (e *encoder) entry(n entry) {
	e.write([]byte{byte(n.kind)})
	switch n.kind {
	case kindLeave, kindEnd:
		return
	case kindLink:
		e.text(n.name)
		e.number(n.alias)
		return
	}
	e.text(n.name)
	m := n.meta
	for _, f := range []uint32{m.mode, m.uid, m.gid} {
		e.number(uint64(f))
	}
	e.signed(m.seconds)
	e.number(uint64(m.nanos))
	e.number(uint64(len(m.attributes)))
	for _, a := range m.attributes {
		e.text(a.name)
		e.text(a.value)
	}
	if n.kind == kindDirectory {
		return
	}
	e.number(n.alias)
	switch n.kind {
	case kindFile:
		e.number(uint64(n.size))
	case kindSymlink:
		e.text(n.target)
	}
}

// part announces bytes of a file that follow, gap bytes after the last ones;
// 0, 0 ends the file.
func (e *encoder) part(gap, length int64) {
	e.number(uint64(gap))
	e.number(uint64(length))
}

// decoder reads the form and believes none of it.
type decoder struct{ r *bufio.Reader }

func malformed(field, expected, got string) *Error {
	return &Error{Kind: ErrMalformed, Field: field, Expected: expected, Got: got}
}

// cut turns an early end into what it is here.
func cut(field string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed(field, "more bytes", "the end")
	}
	return err
}

func (d *decoder) magic() error {
	have := make([]byte, len(magic))
	if _, err := io.ReadFull(d.r, have); err != nil {
		return cut("magic", err)
	}
	if string(have) != magic {
		return malformed("magic", strconv.Quote(magic), strconv.Quote(string(have)))
	}
	return nil
}

// varint reads a number in its one shortest form.
func (d *decoder) varint(field string) (n uint64, err error) {
	for shift := 0; ; shift += 7 {
		b, err := d.r.ReadByte()
		switch {
		case err != nil:
			return 0, cut(field, err)
		case shift == 63 && b > 1:
			return 0, malformed(field, "64 bits", "more")
		case b == 0 && shift > 0:
			return 0, malformed(field, "the shortest form", "a longer one")
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n, nil
		}
	}
}

// number reads a number of at most limit.
func (d *decoder) number(field string, limit uint64) (uint64, error) {
	n, err := d.varint(field)
	if err == nil && n > limit {
		err = malformed(field, "at most "+strconv.FormatUint(limit, 10), strconv.FormatUint(n, 10))
	}
	return n, err
}

func (d *decoder) text(field string, limit uint64) (string, error) {
	n, err := d.number(field+" length", limit)
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(d.r, b); err != nil {
		return "", cut(field, err)
	}
	return string(b), nil
}

// name reads one name of a directory: nothing that leads anywhere else.
func (d *decoder) name() (string, error) {
	s, err := d.text("name", maxName)
	if err == nil && !plain(s) {
		err = malformed("name", "one name of a directory", strconv.Quote(s))
	}
	return s, err
}

func plain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// entry reads the next line. root says that it is the first one, the only one
// without a name.
func (d *decoder) entry(root bool) (entry, error) {
	k, err := d.r.ReadByte()
	if err != nil {
		return entry{}, cut("kind", err)
	}
	n := entry{kind: kind(k)}
	switch n.kind {
	case kindDirectory, kindFile, kindSymlink, kindFIFO, kindSocket, kindLink, kindLeave, kindEnd:
	default:
		return n, malformed("kind", "one of dflpshue", strconv.QuoteRune(rune(k)))
	}
	if root {
		if n.kind != kindDirectory {
			return n, malformed("kind", "the root directory", string(rune(k)))
		}
		if _, err := d.number("root name length", 0); err != nil {
			return n, err
		}
		return n, d.meta(&n.meta)
	}
	if n.kind == kindLeave || n.kind == kindEnd {
		return n, nil
	}
	if n.name, err = d.name(); err != nil {
		return n, err
	}
	if n.kind != kindLink {
		if err := d.meta(&n.meta); err != nil || n.kind == kindDirectory {
			return n, err
		}
	}
	if n.alias, err = d.number("alias", math.MaxInt64); err != nil {
		return n, err
	}
	switch n.kind {
	case kindFile:
		var size uint64
		size, err = d.number("size", math.MaxInt64)
		n.size = int64(size)
	case kindSymlink:
		if n.target, err = d.text("target", maxTarget); err == nil && (n.target == "" || strings.Contains(n.target, "\x00")) {
			err = malformed("target", "a path", strconv.Quote(n.target))
		}
	}
	return n, err
}

func (d *decoder) meta(m *meta) error {
	for _, f := range []struct {
		name  string
		limit uint64
		into  *uint32
	}{{"mode", maxMode, &m.mode}, {"uid", math.MaxUint32 - 1, &m.uid}, {"gid", math.MaxUint32 - 1, &m.gid}} {
		n, err := d.number(f.name, f.limit)
		if err != nil {
			return err
		}
		*f.into = uint32(n)
	}
	seconds, err := d.varint("seconds")
	if err != nil {
		return err
	}
	m.seconds = int64(seconds>>1) ^ -int64(seconds&1)
	nanos, err := d.number("nanoseconds", 999_999_999)
	if err != nil {
		return err
	}
	m.nanos = uint32(nanos)
	count, err := d.number("attributes", maxAttributes)
	if err != nil {
		return err
	}
	for range count {
		var a attribute
		if a.name, err = d.text("attribute", maxName); err != nil {
			return err
		}
		if a.name == "" || strings.Contains(a.name, "\x00") {
			return malformed("attribute", "a name", strconv.Quote(a.name))
		}
		if a.value, err = d.text("value", maxValue); err != nil {
			return err
		}
		m.attributes = append(m.attributes, a)
	}
	return nil
}

// part reads where the next bytes of a file of this size lie, after those that
// came before. Length 0 is the end of the file.
func (d *decoder) part(after, size int64) (offset, length int64, err error) {
	gap, err := d.number("gap", uint64(size-after))
	if err != nil {
		return 0, 0, err
	}
	n, err := d.number("length", uint64(size-after)-gap)
	if err == nil && n == 0 && gap > 0 {
		err = malformed("length", "bytes after a gap", "none")
	}
	return after + int64(gap), int64(n), err
}

package guest

import (
	"encoding/binary"
	"strconv"
	"strings"
	"syscall"
)

// MaxMessage bounds the body of one message. The kernel takes about 2 MiB of
// arguments and environment, so nothing larger could start.
const MaxMessage = 4 << 20

// maxAnswer bounds the body of what the machine says.
const maxAnswer = 8 << 10

// maxPath bounds a path in an answer: the kernel takes no longer ones.
const maxPath = 4096

// A message is a header and a body, integers little-endian:
//
//	body length u32, kind u8, descriptors u8, zero u16, command u32
//
// The descriptors travel with the header. The host names commands by numbers
// that it never uses twice.
const headerSize = 12

type kind uint8

const (
	kindStart     kind = 1  // startRequest
	kindSignal    kind = 2  // signal number u8
	kindHello     kind = 65 // protocol version u8
	kindStarted   kind = 66
	kindFailed    kind = 67 // StartFailure
	kindExited    kind = 68 // Exit
	kindSignalled kind = 69
)

const version = 1

type header struct {
	size    uint32
	kind    kind
	files   uint8
	command uint32
}

func (h header) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, h.size)
	b = append(b, byte(h.kind), h.files, 0, 0)
	return binary.LittleEndian.AppendUint32(b, h.command)
}

// parseHeader refuses a body of more than limit bytes.
func parseHeader(b []byte, limit uint32) (header, error) {
	if len(b) != headerSize {
		return header{}, refuse("header", "12 bytes", len(b))
	}
	h := header{
		size:    binary.LittleEndian.Uint32(b),
		kind:    kind(b[4]),
		files:   b[5],
		command: binary.LittleEndian.Uint32(b[8:]),
	}
	switch {
	case h.size > limit:
		return header{}, refuse("header size", "at most "+strconv.Itoa(int(limit)), int(h.size))
	case b[6] != 0 || b[7] != 0:
		return header{}, refuse("header reserved", "0", int(b[6])|int(b[7])<<8)
	case h.files > maxFiles || h.files > 0 && h.kind != kindStart:
		return header{}, refuse("header descriptors", "as many as the kind carries", int(h.files))
	}
	return h, nil
}

// message is one whole message, header and body.
func message(k kind, command uint32, files int, body []byte) []byte {
	h := header{size: uint32(len(body)), kind: k, files: uint8(files), command: command}
	return append(h.append(make([]byte, 0, headerSize+len(body))), body...)
}

// maxFiles is the three standard streams and a cgroup.
const maxFiles = 4

// startRequest asks for one command. The attached descriptors are the streams
// that are not null, in order, then the cgroup directory if there is one.
type startRequest struct {
	null   [3]bool
	cgroup bool
	dir    string
	argv   []string
	env    []string
}

func (r *startRequest) files() int {
	n := 0
	for _, null := range r.null {
		if !null {
			n++
		}
	}
	if r.cgroup {
		n++
	}
	return n
}

func (r *startRequest) encode() ([]byte, error) {
	size := 2 + 4 + len(r.dir) + 8
	for _, list := range [][]string{r.argv, r.env} {
		for _, s := range list {
			size += 4 + len(s)
		}
	}
	if size > MaxMessage {
		return nil, &StartFailure{Path: firstOf(r.argv), Errno: syscall.E2BIG}
	}
	b := make([]byte, 0, size)
	var null byte
	for i, is := range r.null {
		if is {
			null |= 1 << i
		}
	}
	b = append(b, null, boolByte(r.cgroup))
	b = appendString(b, r.dir)
	for _, list := range [][]string{r.argv, r.env} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
		for _, s := range list {
			b = appendString(b, s)
		}
	}
	// One set of rules on both sides: what the guest would refuse, and end the
	// machine for, is not sent.
	if _, err := parseStart(b); err != nil {
		return nil, err
	}
	return b, nil
}

func parseStart(body []byte) (*startRequest, error) {
	d := decoder{rest: body}
	null, cgroup := d.byte("null streams"), d.byte("cgroup")
	r := &startRequest{
		null:   [3]bool{null&1 != 0, null&2 != 0, null&4 != 0},
		cgroup: cgroup == 1,
		dir:    d.string("dir"),
		argv:   d.strings("argv"),
		env:    d.strings("env"),
	}
	switch {
	case d.err != nil:
		return nil, d.err
	case len(d.rest) != 0:
		return nil, refuse("start", "no bytes after env", len(d.rest))
	case null > 7:
		return nil, refuse("null streams", "0 to 7", int(null))
	case cgroup > 1:
		return nil, refuse("cgroup", "0 or 1", int(cgroup))
	case len(r.argv) == 0 || r.argv[0] == "":
		return nil, &WireError{Field: "argv", Want: "a program", Got: "none"}
	case !strings.HasPrefix(r.dir, "/"):
		return nil, &WireError{Field: "dir", Want: "an absolute path", Got: r.dir}
	}
	return r, nil
}

// StartFailure says which path could not be used and why. The path is the
// program's or the working directory's.
type StartFailure struct {
	Path  string
	Errno syscall.Errno
}

func (e *StartFailure) Error() string { return "start " + e.Path + ": " + e.Errno.Error() }

// Unwrap returns the errno.
func (e *StartFailure) Unwrap() error { return e.Errno }

// Exit is how a command ended: by Signal if that is not zero, else with Code.
type Exit struct {
	Code   int // 0-255
	Signal syscall.Signal
}

func (e Exit) encode() []byte { return []byte{byte(e.Code), byte(e.Signal)} }

func parseExit(body []byte) (Exit, error) {
	if len(body) != 2 {
		return Exit{}, refuse("exit", "2 bytes", len(body))
	}
	e := Exit{Code: int(body[0]), Signal: syscall.Signal(body[1])}
	if e.Signal > 64 || e.Signal != 0 && e.Code != 0 {
		return Exit{}, refuse("exit signal", "a code or a signal up to 64", int(e.Signal))
	}
	return e, nil
}

func (e *StartFailure) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(e.Errno))
	return appendString(b, e.Path[:min(len(e.Path), maxPath)])
}

func parseFailure(body []byte) (*StartFailure, error) {
	d := decoder{rest: body}
	errno := d.uint32("errno")
	e := &StartFailure{Errno: syscall.Errno(errno), Path: d.string("path")}
	switch {
	case d.err != nil:
		return nil, d.err
	case len(d.rest) != 0:
		return nil, refuse("failure", "no bytes after path", len(d.rest))
	case errno == 0 || errno > 4095:
		return nil, refuse("errno", "1 to 4095", int(errno))
	}
	return e, nil
}

// decoder takes fields off the front of rest; after the first refusal it only
// returns zero values.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n int, field string) []byte {
	if d.err == nil && n > len(d.rest) {
		d.err = refuse(field, "more bytes than are left", n)
	}
	if d.err != nil {
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte(field string) byte {
	if b := d.take(1, field); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint32(field string) uint32 {
	if b := d.take(4, field); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// string refuses a NUL: the kernel would cut the string there.
func (d *decoder) string(field string) string {
	n := d.uint32(field)
	s := string(d.take(int(n), field))
	if d.err == nil && strings.IndexByte(s, 0) >= 0 {
		// Not the text: it may be the value of a variable.
		d.err = &WireError{Field: field, Want: "no NUL", Got: "one in " + strconv.Itoa(len(s)) + " bytes"}
	}
	return s
}

func (d *decoder) strings(field string) []string {
	n := int(d.uint32(field))
	// Each takes four bytes at least: a count that cannot be is refused before
	// anything is made for it.
	if d.err == nil && n > len(d.rest)/4 {
		d.err = refuse(field, "a count that fits the message", n)
	}
	if d.err != nil {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.string(field))
	}
	return list
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func refuse(field, want string, got int) error {
	return &WireError{Field: field, Want: want, Got: strconv.Itoa(got)}
}

package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// published are the frames that the wire's page prints.
var published = []struct {
	name, hex string
	write     func(w *Writer) error
}{
	{"ping", "1f00000000", (*Writer).Ping},
	{"out", "110000000e000000000000000068656c6c6f0a", func(w *Writer) error { return w.Output(TypeOut, 0, []byte("hello\n")) }},
	{"err", "120000000a0000000000000000770a", func(w *Writer) error { return w.Output(TypeErr, 0, []byte("w\n")) }},
	{"exit", "160000000f" + hex.EncodeToString([]byte(`{"exit_code":0}`)), func(w *Writer) error { return w.Message(TypeExit, Exit{ExitCode: new(int64)}) }},
	{"superseded", "1700000017" + hex.EncodeToString([]byte(`{"reason":"superseded"}`)), func(w *Writer) error { return w.Message(TypeDetach, Detach{Reason: DetachSuperseded}) }},
	{"truncated", "1800000016" + hex.EncodeToString([]byte(`{"low_water":11611392}`)), func(w *Writer) error { return w.Message(TypeTruncated, Truncated{LowWater: 11611392}) }},
}

func TestWriter_WritesThePublishedFrames(t *testing.T) {
	for _, c := range published {
		var b bytes.Buffer
		if err := c.write(NewWriter(&b)); err != nil || hex.EncodeToString(b.Bytes()) != c.hex {
			t.Errorf("%s: %x, %v; want %s", c.name, b.Bytes(), err, c.hex)
		}
		f, err := NewReader(&b).Next()
		if err != nil || hex.EncodeToString(AppendFrame(nil, f)) != c.hex {
			t.Errorf("%s: read back %v, %v", c.name, f, err)
		}
	}
}

func TestBody_OfAWriteFile(t *testing.T) {
	call := FileCall{InstanceID: "i1", Path: "/mnt/a.txt", Size: 6, Digest: digestOf("hello\n")}
	for _, c := range []struct {
		name   string
		change func(*FileCall)
		json   string
		size   int64
		digest string
	}{
		{"plain", func(*FileCall) {}, `{"digest":"sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03","instance_id":"i1","path":"/mnt/a.txt","size":6}`,
			148, "sha256:37c17add043fb0e92c02bf3eaa3c031c0c2fe13e77d74dcfbc1dcb6aa1b229f3"},
		{"executable", func(c *FileCall) { c.Executable = true }, `{"digest":"sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03","executable":true,"instance_id":"i1","path":"/mnt/a.txt","size":6}`,
			166, "sha256:0fbdab9a83f8c1799eb2c738546c8f474c290d3b9e7edf1dbb1db60b3618ba88"},
	} {
		own := call
		c.change(&own)
		body, err := NewBody(own, []byte("hello\n"))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(iotest.OneByteReader(body.Reader()))
		if err != nil {
			t.Fatal(err)
		}
		want := AppendFrame(AppendFrame(nil, Frame{TypeCall, []byte(c.json)}), Frame{TypeData, []byte("hello\n")})
		if !bytes.Equal(raw, want) || body.Size() != c.size || string(body.Digest()) != c.digest || RequestDigest(raw) != body.Digest() {
			t.Errorf("%s: %d bytes, %s\n%q", c.name, body.Size(), body.Digest(), raw)
		}
		r := NewReader(bytes.NewReader(raw))
		back, err := ReadCall[FileCall](r)
		if err != nil || back != own {
			t.Errorf("%s: call %v, %v", c.name, back, err)
		}
		if data, err := ReadData(r, 6, 6); err != nil || string(data) != "hello\n" {
			t.Errorf("%s: data %q, %v", c.name, data, err)
		}
	}
}

func head(t Type, length uint32) string {
	return string(binary.BigEndian.AppendUint32([]byte{byte(t)}, length))
}

func TestReader_RefusesBrokenFrames(t *testing.T) {
	for name, c := range map[string]struct {
		input  string
		reason FrameReason
	}{
		"type 0":              {head(0, 0), UnknownFrame},
		"type 5":              {head(5, 0), UnknownFrame},
		"type 0x19":           {head(0x19, 0), UnknownFrame},
		"type 0xff":           {head(0xff, 0), UnknownFrame},
		"one byte too long":   {head(TypeData, MaxFrameBytes+1), FrameTooLong},
		"the longest length":  {head(TypeData, 1<<32-1), FrameTooLong},
		"a ping that talks":   {head(TypePing, 1) + "x", BadPayload},
		"out without bytes":   {head(TypeOut, 8) + "\x00\x00\x00\x00\x00\x00\x00\x00", BadPayload},
		"err without offset":  {head(TypeErr, 7) + "\x00\x00\x00\x00\x00\x00\x00", BadPayload},
		"an end in the type":  {"\x02", FrameTruncation},
		"an end in the head":  {"\x02\x00\x00", FrameTruncation},
		"no payload":          {head(TypeData, 3), FrameTruncation},
		"half a payload":      {head(TypeData, 3) + "ab", FrameTruncation},
		"text instead":        {"HTTP/1.1 502 Bad Gateway\r\n", UnknownFrame},
		"one good, one bad":   {head(TypePing, 0) + head(0x1e, 0), UnknownFrame},
		"one good, one short": {head(TypePing, 0) + "\x11", FrameTruncation},
	} {
		r := NewReader(iotest.HalfReader(strings.NewReader(c.input)))
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, &FrameError{Reason: c.reason}) {
			t.Errorf("%s: %v, want %s", name, err, c.reason)
		}
		if (c.reason == FrameTruncation) != errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		if _, again := r.Next(); again != err {
			t.Errorf("%s: then %v", name, again)
		}
		if len(r.buf) > firstBytes {
			t.Errorf("%s: %d bytes were allocated", name, len(r.buf))
		}
	}
}

// TestReader_CutAtEveryByte: what arrived whole is given, and the end is an end
// exactly at a frame's border.
func TestReader_CutAtEveryByte(t *testing.T) {
	var whole bytes.Buffer
	w := NewWriter(&whole)
	borders := []int{0}
	for _, write := range []func() error{
		func() error { return w.Output(TypeOut, 0, []byte("hello\n")) },
		w.Ping,
		func() error { return w.Message(TypeOutEnd, OutEnd{Digest: digestOf("hello\n"), Offset: 6}) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		borders = append(borders, whole.Len())
	}
	for cut := range whole.Len() + 1 {
		r := NewReader(iotest.DataErrReader(bytes.NewReader(whole.Bytes()[:cut])))
		frames, at := 0, 0
		var err error
		for {
			var f Frame
			if f, err = r.Next(); err != nil {
				break
			}
			frames++
			at += headBytes + len(f.Payload)
		}
		clean := slices.Contains(borders, cut)
		if clean != (err == io.EOF) || !clean && !errors.Is(err, &FrameError{Reason: FrameTruncation}) || frames != len(borders)-1-countAbove(borders, cut) || !slices.Contains(borders, at) {
			t.Errorf("cut at %d: %d frames, %v", cut, frames, err)
		}
	}
}

func countAbove(all []int, n int) (above int) {
	for _, b := range all {
		if b > n {
			above++
		}
	}
	return above
}

// TestReader_GivesLongFramesThroughSmallReads also crosses every way in which
// the buffer moves and grows.
func TestReader_GivesLongFramesThroughSmallReads(t *testing.T) {
	var whole bytes.Buffer
	w := NewWriter(&whole)
	sizes := []int{0, 1, firstBytes - 5, firstBytes, 3, 100_000, MaxFrameBytes, 7, MaxFrameBytes - 1, 2 * firstBytes, 0, 1}
	for i, n := range sizes {
		if err := w.Write(Frame{TypeData, bytes.Repeat([]byte{byte(i)}, n)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, slow := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "half": iotest.HalfReader, "one": iotest.OneByteReader, "error with data": iotest.DataErrReader,
	} {
		r := NewReader(slow(bytes.NewReader(whole.Bytes())))
		for i, n := range sizes {
			f, err := r.Next()
			if err != nil || len(f.Payload) != n || bytes.Count(f.Payload, []byte{byte(i)}) != n {
				t.Fatalf("%s: frame %d: %d bytes, %v", name, i, len(f.Payload), err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type still struct{}

func (still) Read([]byte) (int, error) { return 0, nil }

func TestReader_KeepsTheReadersOwnError(t *testing.T) {
	broken := errors.New("connection reset")
	if _, err := NewReader(iotest.ErrReader(broken)).Next(); err != broken {
		t.Errorf("at a border: %v", err)
	}
	_, err := NewReader(io.MultiReader(strings.NewReader("\x02\x00"), iotest.ErrReader(broken))).Next()
	if !errors.Is(err, &FrameError{Reason: FrameTruncation}) || !errors.Is(err, broken) {
		t.Errorf("inside a frame: %v", err)
	}
	if _, err := NewReader(still{}).Next(); err != io.ErrNoProgress {
		t.Errorf("a reader that stands still: %v", err)
	}
}

func TestWriter_RefusesWhatAReaderWould(t *testing.T) {
	for name, write := range map[string]func(*Writer) error{
		"unknown type":    func(w *Writer) error { return w.Write(Frame{Type: 0x1e}) },
		"too long":        func(w *Writer) error { return w.Write(Frame{TypeData, make([]byte, MaxFrameBytes+1)}) },
		"ping with bytes": func(w *Writer) error { return w.Write(Frame{TypePing, []byte{1}}) },
		"output as data":  func(w *Writer) error { return w.Output(TypeData, 0, []byte{1}) },
		"negative offset": func(w *Writer) error { return w.Output(TypeOut, -1, []byte{1}) },
		"offset at end":   func(w *Writer) error { return w.Output(TypeOut, maxOffset, []byte{1}) },
		"invalid message": func(w *Writer) error { return w.Message(TypeExit, Exit{}) },
		"not an error":    func(w *Writer) error { return w.Error(io.EOF) },
	} {
		var b bytes.Buffer
		if err := write(NewWriter(&b)); err == nil || b.Len() > 0 {
			t.Errorf("%s: %v, %d bytes", name, err, b.Len())
		}
	}
}

func TestOutput_IsSplitAndJoined(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), (2*MaxOutputChunk+500)/16)
	var b bytes.Buffer
	if err := NewWriter(&b).Output(TypeOut, 40, data); err != nil {
		t.Fatal(err)
	}
	var got []byte
	at := int64(40)
	for r := NewReader(&b); ; {
		f, err := r.Next()
		if err == io.EOF {
			break
		}
		offset, chunk, err := f.Output()
		if err != nil || offset != at {
			t.Fatalf("offset %d, want %d, %v", offset, at, err)
		}
		at += int64(len(chunk))
		got = append(got, chunk...)
	}
	if !bytes.Equal(got, data) {
		t.Error("other bytes")
	}
	for name, f := range map[string]Frame{
		"another type":    {TypeData, make([]byte, 9)},
		"no bytes":        {TypeOut, make([]byte, 8)},
		"offset over":     {TypeOut, AppendOutput(nil, TypeOut, maxOffset, []byte{1})[5:]},
		"offset negative": {TypeErr, append(bytes.Repeat([]byte{0xff}, 8), 1)},
	} {
		if _, _, err := f.Output(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if offset, _, err := (Frame{TypeOut, AppendOutput(nil, TypeOut, maxOffset-1, []byte{1})[5:]}).Output(); err != nil || offset != maxOffset-1 {
		t.Errorf("the last offset: %d, %v", offset, err)
	}
}

func TestFramedRequest_TakesCallsThenData(t *testing.T) {
	call := `{"command":{"arguments":[],"environment":{},"executable":"/bin/true","output_limit_bytes":1,"timeout_seconds":1,"working_directory":"/"},"instance_id":"i"}`
	frame := func(t Type, s string) string { return string(AppendFrame(nil, Frame{t, []byte(s)})) }
	for name, c := range map[string]struct {
		input, data string
		ok          bool
	}{
		"call only":           {frame(TypeCall, call), "", true},
		"call and data":       {frame(TypeCall, call) + frame(TypeData, "ab") + frame(TypeData, "") + frame(TypeData, "c"), "abc", true},
		"a call in pieces":    {frame(TypeCall, call[:7]) + frame(TypeCall, "") + frame(TypeCall, call[7:]) + frame(TypeData, "abcd"), "abcd", true},
		"nothing":             {"", "", false},
		"data first":          {frame(TypeData, "a") + frame(TypeCall, call), "", false},
		"call after data":     {frame(TypeCall, call) + frame(TypeData, "a") + frame(TypeCall, call), "", false},
		"two calls":           {frame(TypeCall, call+call), "", false},
		"item after":          {frame(TypeCall, call) + frame(TypeItem, "{}"), "", false},
		"ping after":          {frame(TypeCall, call) + head(TypePing, 0), "", false},
		"one byte over":       {frame(TypeCall, call) + frame(TypeData, "abcde"), "", false},
		"cut after the call":  {frame(TypeCall, call) + "\x02", "", false},
		"cut inside the call": {frame(TypeCall, call)[:20], "", false},
	} {
		r := NewReader(strings.NewReader(c.input))
		_, err := ReadCall[ExecuteCall](r)
		var data []byte
		if err == nil {
			data, err = ReadData(r, 0, 4)
		}
		if (err == nil) != c.ok || string(data) != c.data {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if err != nil && Status(err) == 500 {
			t.Errorf("%s: %v is none of ours", name, err)
		}
	}
	// A call that never ends is cut at its bound, not at the sender's pleasure.
	endless := io.MultiReader()
	for range 9 {
		endless = io.MultiReader(endless, strings.NewReader(head(TypeCall, MaxFrameBytes)), io.LimitReader(blank{}, MaxFrameBytes))
	}
	if _, err := ReadCall[ExecuteCall](NewReader(endless)); !errors.Is(err, &Error{Tag: TagPayloadTooLarge}) {
		t.Errorf("endless call: %v", err)
	}
}

type blank struct{}

func (blank) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestTypes_AreTheOnesThatAreValid(t *testing.T) {
	for n := range 256 {
		if Type(n).Valid() != slices.Contains(Types(), Type(n)) {
			t.Errorf("type %#x", n)
		}
	}
}

func TestRest(t *testing.T) {
	out := AppendOutput(nil, TypeOut, 7, []byte("hello"))
	data := AppendFrame(nil, Frame{Type: TypeData, Payload: []byte("0123456789abcdef")})
	for _, c := range []struct {
		in   []byte
		want string
	}{
		{out[:len(out)-1], "hell"}, {out[:14], "h"}, {out[:13], ""}, {out[:3], ""}, {out, ""}, {data[:20], ""},
		{append(append([]byte{}, out...), out[:15]...), "he"},
	} {
		r := NewReader(bytes.NewReader(c.in))
		err := error(nil)
		for err == nil {
			_, err = r.Next()
		}
		f, ok := r.Rest()
		if ok != (c.want != "") {
			t.Errorf("%x: %v", c.in, ok)
		}
		if !ok {
			continue
		}
		if offset, got, err := f.Output(); offset != 7 || string(got) != c.want || err != nil {
			t.Errorf("%d %q %v, want %q", offset, got, err, c.want)
		}
	}
}

package wire

import (
	"bytes"
	"io"
	"strconv"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// BenchmarkFrames writes and reads frames of one size through memory, beside a
// copy of the same bytes.
func BenchmarkFrames(b *testing.B) {
	const total = 16 << 20
	for _, size := range []int{512, 4 << 10, 32 << 10, 1 << 20} {
		payload := make([]byte, size-8)
		frames := total / size
		encoded := bytes.Repeat(AppendOutput(nil, TypeOut, 0, payload), frames)
		name := strconv.Itoa(size)
		b.Run("copy/"+name, func(b *testing.B) {
			into := make([]byte, size)
			b.SetBytes(total)
			for b.Loop() {
				for at := 0; at+size <= len(encoded); at += size {
					copy(into, encoded[at:])
				}
			}
		})
		b.Run("read/"+name, func(b *testing.B) {
			b.SetBytes(total)
			for b.Loop() {
				r := NewReader(bytes.NewReader(encoded))
				for {
					f, err := r.Next()
					if err == io.EOF {
						break
					}
					if _, _, err := f.Output(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run("write/"+name, func(b *testing.B) {
			b.SetBytes(total)
			w := NewWriter(io.Discard)
			for b.Loop() {
				for range frames {
					if err := w.Output(TypeOut, 0, payload); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkMessages encodes and decodes the messages of small calls.
func BenchmarkMessages(b *testing.B) {
	plain := sandbox.ProvisionRequest(provision)
	plain.Mounts = []sandbox.Mount{{MountPath: "/workspace/a", Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit}}
	for name, k := range map[string]kind{"provision": of(ProvisionRequest(plain)), "provision escaped": of(ProvisionRequest(provision)), "write_file": of(FileCall{"i", "/a", 6, zero, false, ""})} {
		data, err := Encode(k.value)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("encode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Encode(k.value); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := k.decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBody reads the body of a file of 16 MiB, beside the bytes alone.
func BenchmarkBody(b *testing.B) {
	data := make([]byte, sandbox.MaxFileBytes)
	body, err := NewBody(FileCall{"i", "/a", sandbox.MaxFileBytes, zero, false, ""}, data)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 32<<10)
	drain := func(b *testing.B, r io.Reader) {
		for {
			if _, err := r.Read(buf); err == io.EOF {
				return
			}
		}
	}
	b.Run("raw", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			drain(b, bytes.NewReader(data))
		}
	})
	b.Run("framed", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			drain(b, body.Reader())
		}
	})
	b.Run("raw received", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := io.ReadFull(bytes.NewReader(data), make([]byte, len(data))); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("received", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			r := NewReader(body.Reader())
			if _, err := ReadCall[FileCall](r); err != nil {
				b.Fatal(err)
			}
			if _, err := ReadData(r, int64(len(data)), int64(len(data))); err != nil {
				b.Fatal(err)
			}
		}
	})
}

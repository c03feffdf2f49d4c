package client

import (
	"bytes"
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// BenchmarkCall is one small call over a socket, and the same without a wire.
func BenchmarkCall(b *testing.B) {
	p := memory.New(memory.Options{Seed: "bench"})
	c := connect(b, serve(b, p))
	for _, way := range []struct {
		name string
		p    sandbox.Provider
	}{{"bare", p}, {"wire", c}} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				if err := way.p.DestroySnapshot(b.Context(), "none"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func opening(b *testing.B, c *Client, r sandbox.ProcessRequest) sandbox.Process {
	b.Helper()
	p, err := c.OpenProcess(b.Context(), activated(b, c), string(wire.NewProcessID()), r)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Destroy(context.Background()) })
	return p
}

// BenchmarkEcho is one line to cat and back.
func BenchmarkEcho(b *testing.B) {
	c := connect(b, serve(b, memory.New(memory.Options{Seed: "bench"})))
	p := opening(b, c, sandbox.ProcessRequest{Executable: "cat", WorkingDirectory: "/"})
	line := []byte("0123456789abcdef0123456789abcde\n")
	got := make([]byte, len(line))
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := p.Input().Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(p.Output(), got); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
}

// BenchmarkFile is a file of 16 MiB, written and read.
func BenchmarkFile(b *testing.B) {
	c := connect(b, serve(b, memory.New(memory.Options{Seed: "bench"})))
	id := activated(b, c)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	path := sandbox.OutputPath + "/f"
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if err := c.WriteFile(b.Context(), id, sandbox.FileWrite{Path: path, Content: content}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if _, err := c.ReadFile(b.Context(), id, sandbox.FileRead{Path: path, AllowedRoot: sandbox.OutputPath, MaximumBytes: sandbox.MaxFileBytes}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStream is the reader's side of a stream alone: frames of 32 KiB out of
// memory through filter and pipe.
func BenchmarkStream(b *testing.B) {
	chunk := bytes.Repeat([]byte("x"), 32<<10)
	const chunks = 1024
	data := framed(func(w *wire.Writer) {
		w.Message(wire.TypeOpen, opened())
		for n := range int64(chunks) {
			w.Output(wire.TypeOut, n*int64(len(chunk)), chunk)
		}
	})
	c := offline(b)
	b.SetBytes(int64(chunks * len(chunk)))
	for b.Loop() {
		p := &process{c: c, instance: "i1", id: procID}
		p.prepare(opened())
		r := &reader{p: p, filter: newFilter(opened())}
		r.filter.attach()
		go func() {
			r.read(&body{endpoint: wire.ProcessStream, r: bytes.NewReader(data)})
			p.out.finish(io.EOF)
		}()
		if n, err := io.Copy(io.Discard, p.out); err != nil || n != int64(chunks*len(chunk)) {
			b.Fatal(n, err)
		}
	}
}

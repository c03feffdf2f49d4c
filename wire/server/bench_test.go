package server

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

// bench is a server on loopback and an instance in it.
type bench struct {
	b    *testing.B
	base string
	http *http.Client
	id   sandbox.InstanceID
}

func newBench(b *testing.B, dir string) *bench {
	b.Helper()
	// burst writes 32 MiB for every byte that it reads: nothing throttles an
	// output, so a reader that is to keep up must say when.
	burst := func(c *memory.Call) int {
		chunk := make([]byte, 64<<10)
		for {
			if _, err := c.Stdin.Read(chunk[:1]); err != nil {
				return 0
			}
			for range burstBytes / len(chunk) {
				if _, err := c.Stdout.Write(chunk); err != nil {
					return 0
				}
			}
		}
	}
	m := memory.New(memory.Options{Clock: memory.NewManual(start), Programs: map[string]memory.Program{"burst": burst}})
	s, err := New(Options{Provider: m, Journal: logstore.At(dir), Authenticate: Anybody, Clock: newThenClock(), OutputWindow: wire.MaxOutputWindowBytes})
	if err != nil {
		b.Fatal(err)
	}
	l, err := Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, s, nil) }()
	x := &bench{b: b, base: "http://" + l.Addr().String(), http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	b.Cleanup(func() { x.http.CloseIdleConnections(); cancel(); <-served })
	h, err := wire.Decode[wire.InstanceHandoff](x.call(wire.Provision, provisionRequest(), nil))
	if err != nil {
		b.Fatal(err)
	}
	x.id = h.Value.InstanceID
	return x
}

func (x *bench) request(e wire.Endpoint, m wire.Message, data []byte) *http.Request {
	t, _ := e.Traits()
	var body io.Reader
	var size int64
	media := wire.MediaJSON
	if t.FramedRequest {
		b, err := wire.NewBody(m, data)
		if err != nil {
			x.b.Fatal(err)
		}
		body, size, media = b.Reader(), b.Size(), wire.MediaFrames
	} else {
		b, err := wire.Encode(m)
		if err != nil {
			x.b.Fatal(err)
		}
		body, size = bytes.NewReader(b), int64(len(b))
	}
	r, err := http.NewRequest(http.MethodPost, x.base+e.Path(), body)
	if err != nil {
		x.b.Fatal(err)
	}
	r.ContentLength = size
	wire.RequestHeader{Lease: wire.Lease{ID: "l", Epoch: 1}, Operation: wire.NewOperationID(), Wait: 20 * time.Second}.Set(r.Header, e)
	r.Header.Set("Content-Type", media)
	return r
}

func (x *bench) call(e wire.Endpoint, m wire.Message, data []byte) []byte {
	resp, err := x.http.Do(x.request(e, m, data))
	if err != nil {
		x.b.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if resp.ContentLength > 0 {
		body.Grow(int(resp.ContentLength) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(resp.Body); err != nil || resp.StatusCode != 200 {
		x.b.Fatalf("%d %s %v", resp.StatusCode, body.Bytes(), err)
	}
	return body.Bytes()
}

func stores(b *testing.B, f func(b *testing.B, x *bench)) {
	b.Run("memory", func(b *testing.B) { f(b, newBench(b, "")) })
	b.Run("disk", func(b *testing.B) { f(b, newBench(b, b.TempDir())) })
}

func BenchmarkWriteSmallFile(b *testing.B) {
	stores(b, func(b *testing.B, x *bench) {
		data := []byte("content")
		for b.Loop() {
			x.call(wire.WriteFile, wire.FileCall{InstanceID: x.id, Path: "/mnt/rw/f", Size: 7, Digest: digestOf(data)}, data)
		}
	})
}

func BenchmarkExecute(b *testing.B) {
	stores(b, func(b *testing.B, x *bench) {
		x.call(wire.Activate, wire.InstanceRequest{InstanceID: x.id}, nil)
		for b.Loop() {
			x.call(wire.Execute, wire.ExecuteCall{InstanceID: x.id, Command: command("echo x")}, nil)
		}
	})
}

func BenchmarkWriteAndRead16MiB(b *testing.B) {
	x := newBench(b, "")
	data := randomBytes(16 << 20)
	digest := digestOf(data)
	b.SetBytes(int64(len(data)))
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			x.call(wire.WriteFile, wire.FileCall{InstanceID: x.id, Path: "/mnt/rw/f", Size: int64(len(data)), Digest: digest}, data)
		}
	})
	x.call(wire.Activate, wire.InstanceRequest{InstanceID: x.id}, nil)
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			x.call(wire.ReadFile, wire.ReadFileRequest{InstanceID: x.id, Path: "/mnt/rw/f", AllowedRoot: "/mnt/rw", MaximumBytes: 16 << 20}, nil)
		}
	})
}

// process opens a process and its stream.
func (x *bench) process(argv ...string) (wire.ProcessID, *wire.Reader, io.Closer) {
	x.call(wire.Activate, wire.InstanceRequest{InstanceID: x.id}, nil)
	id := wire.NewProcessID()
	x.call(wire.OpenProcess, wire.OpenProcessRequest{InstanceID: x.id, ProcessID: id, Process: sandbox.ProcessRequest{
		Executable: argv[0], Arguments: argv[1:], WorkingDirectory: "/", Environment: map[string]string{},
	}}, nil)
	resp, err := x.http.Do(x.request(wire.ProcessStream, wire.StreamRequest{InstanceID: x.id, ProcessID: id, AttachID: wire.NewAttachID(), HeartbeatMS: 10_000}, nil))
	if err != nil {
		x.b.Fatal(err)
	}
	r := wire.NewReader(resp.Body)
	if f, err := r.Next(); err != nil || f.Type != wire.TypeOpen {
		x.b.Fatal(f.Type, err)
	}
	return id, r, resp.Body
}

const burstBytes = 32 << 20

func BenchmarkStandardOutput(b *testing.B) {
	x := newBench(b, "")
	id, r, body := x.process("burst")
	defer body.Close()
	b.SetBytes(burstBytes)
	at := int64(0)
	for b.Loop() {
		x.call(wire.ProcessInput, wire.InputCall{InstanceID: x.id, ProcessID: id, Offset: at}, []byte{'x'})
		at++
		for have := 0; have < burstBytes; {
			f, err := r.Next()
			if err != nil || f.Type == wire.TypeTruncated {
				b.Fatal(f.Type, err)
			}
			if f.Type == wire.TypeOut {
				have += len(f.Payload) - 8
			}
		}
	}
}

// BenchmarkRawPipe is the same output without a wire.
func BenchmarkRawPipe(b *testing.B) {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	go func() {
		defer w.Close()
		for chunk := make([]byte, 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	b.SetBytes(burstBytes)
	for b.Loop() {
		for have := 0; have < burstBytes; {
			n, err := r.Read(buf)
			if err != nil {
				b.Fatal(err)
			}
			have += n
		}
	}
}

func BenchmarkEcho(b *testing.B) {
	x := newBench(b, "")
	id, r, body := x.process("cat")
	defer body.Close()
	line := []byte("a line that is echoed\n")
	at := int64(0)
	for b.Loop() {
		x.call(wire.ProcessInput, wire.InputCall{InstanceID: x.id, ProcessID: id, Offset: at}, line)
		for at += int64(len(line)); ; {
			f, err := r.Next()
			if err != nil {
				b.Fatal(err)
			}
			if f.Type == wire.TypeOut {
				if offset, data, _ := f.Output(); offset+int64(len(data)) == at {
					break
				}
			}
		}
	}
}

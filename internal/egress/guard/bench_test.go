package guard_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/guard"
)

// What the guard itself costs is measured in a process of its own.

// processTime is what the threads of a process have run, in microseconds.
func processTime(b *testing.B, pid int) float64 {
	b.Helper()
	total := 0.0
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if err != nil {
			continue
		}
		ns, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
		total += ns / 1000
	}
	return total
}

// resident is the resident memory of a process in bytes.
func resident(b *testing.B, pid int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// BenchmarkConnect is one request, 64 bytes there and back, and its end. The
// resolver is asked each time, by UDP.
func BenchmarkConnect(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			internet.fresh(nil, nil)
			guarded := serveChild(b, "limit=0")
			payload := strings.Repeat("x", 64)
			one := func() error {
				c, err := net.Dial("tcp", guarded.address.String())
				if err != nil {
					return err
				}
				defer c.Close()
				io.WriteString(c, connect("allowed.test:443"))
				if _, err := io.ReadFull(c, make([]byte, 39)); err != nil {
					return err
				}
				io.WriteString(c, payload)
				_, err = io.ReadFull(c, make([]byte, 64))
				return err
			}
			before := processTime(b, guarded.process)
			b.ResetTimer()
			next, done := make(chan bool), make(chan error)
			for range clients {
				go func() {
					var err error
					for range next {
						if e := one(); e != nil {
							err = e
						}
					}
					done <- err
				}()
			}
			for b.Loop() {
				next <- true
			}
			close(next)
			for range clients {
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
			b.ReportMetric((processTime(b, guarded.process)-before)/float64(b.N), "guard-µs/op")
		})
	}
}

// BenchmarkDenial is one refused request.
func BenchmarkDenial(b *testing.B) {
	guarded := serveChild(b, "limit=0")
	before := processTime(b, guarded.process)
	for b.Loop() {
		conn := guarded.dial(b)
		conn.send(connect("other.test:443"))
		if conn.status() != 403 {
			b.Fatal("not refused")
		}
		conn.Close()
	}
	b.ReportMetric((processTime(b, guarded.process)-before)/float64(b.N), "guard-µs/op")
}

// BenchmarkBulk is one large answer, 8 MiB, through a tunnel.
func BenchmarkBulk(b *testing.B) {
	portsTest()
	guarded := serveChild(b, "limit=0")
	before := processTime(b, guarded.process)
	b.SetBytes(large)
	buffer := make([]byte, 256<<10)
	for b.Loop() {
		conn := guarded.through(b, portLarge)
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn.r}, buffer); n != large {
			b.Fatal(n, err)
		}
		conn.Close()
	}
	b.ReportMetric((processTime(b, guarded.process)-before)/1000/(float64(b.N)*large/1e9), "guard-ms/GB")
}

// BenchmarkIdleTunnel is what a tunnel costs while nothing moves, after it has
// moved something. The bound is 20 KB.
func BenchmarkIdleTunnel(b *testing.B) {
	const tunnels = 1000
	for _, bytes := range []int{64, 1 << 20} {
		b.Run(fmt.Sprintf("after=%d", bytes), func(b *testing.B) {
			internet.fresh(nil, nil)
			guarded := serveChild(b, "limit=0")
			payload := strings.Repeat("x", bytes)
			warm := guarded.dial(b)
			warm.send(connect("allowed.test:443"))
			warm.status()
			warm.echoes("ping")
			before := resident(b, guarded.process)
			for b.Loop() {
				var open []*client
				for range tunnels {
					conn := guarded.dial(b)
					conn.send(connect("allowed.test:443"))
					if conn.status() != 200 {
						b.Fatal("refused")
					}
					go io.WriteString(conn, payload)
					conn.expect(payload)
					open = append(open, conn)
				}
				b.ReportMetric(float64(resident(b, guarded.process)-before)/tunnels, "B/tunnel")
				for _, conn := range open {
					conn.Close()
				}
			}
		})
	}
}

func BenchmarkParseHead(b *testing.B) {
	head := "CONNECT api.allowed.test:443 HTTP/1.1\r\nHost: api.allowed.test:443\r\nUser-Agent: curl/8.5.0\r\nProxy-Connection: Keep-Alive\r\n\r\n"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := guard.ParseHead(head); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadHello(b *testing.B) {
	hello := string(clientHello(b, "tls.test"))
	b.ReportAllocs()
	for b.Loop() {
		if h, _, err := guard.ReadHelloFrom(hello, len(hello), nil); err != nil || h.ServerName != "tls.test" {
			b.Fatal(err)
		}
	}
}

// BenchmarkInProcess is BenchmarkConnect without what the kernel does: the
// allocations of the whole path, client and origin among them.
func BenchmarkInProcess(b *testing.B) {
	internet.fresh(nil, nil)
	g, err := guard.New(guard.Options{Config: config(), Log: io.Discard, Alter: func(s *guard.Steps) {
		s.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(pub)}, nil
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	ln, err := guard.Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- g.Serve(ctx, ln) }()
	b.ReportAllocs()
	for b.Loop() {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		io.WriteString(c, connect("allowed.test:443"))
		if _, err := io.ReadFull(c, make([]byte, 39)); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

package launch

import (
	"context"
	"net"
	"testing"
)

// BenchmarkStart is a process from nothing to its first line, and to its end.
func BenchmarkStart(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		p, err := self(b).Guard(b.Context(), nil, f, logFile(b))
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Stop(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// loadCommand is what the child is called with that is the client of every
// proxy: a process of its own, because it lives in another network namespace.
const loadCommand = "egress-load"

// order is one thing that the client is told to do, a line of JSON.
type order struct {
	Do       string // connect, bulk, hold, let go
	Proxy    string // address; "" is none between
	Target   string // host:port, or with no proxy the address itself
	Clients  int    // at once; of hold, tunnels in all
	For      time.Duration
	Hello    bool  // connect: the payload is a ClientHello that names the host
	Exchange int64 // hold: bytes there and back on each tunnel
	Refused  bool  // connect: the answer must not be 200
	Names    int64 // connect: each request has another one of so many names below the target's, and then it ends
}

// outcome is what came of it.
type outcome struct {
	Done     int           // requests, or tunnels
	Bytes    int64         // of bulk
	Took     time.Duration // of all
	P50, P99 time.Duration // from the begin of a connection to its last byte
	Err      string        // the first failure
	Failures int
}

// dispatchLoad acts as the client, until its standard input ends.
func dispatchLoad() {
	if len(os.Args) < 2 || os.Args[1] != loadCommand {
		return
	}
	var l load
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			os.Exit(0)
		}
		if err := out.Encode(l.follow(o)); err != nil {
			os.Exit(1)
		}
	}
}

// load is the client's side of all proxies.
type load struct{ held []net.Conn }

func (l *load) follow(o order) outcome {
	switch o.Do {
	case "connect":
		return o.repeat(o.payload())
	case "bulk":
		return o.drain()
	case "hold":
		return l.hold(o)
	case "let go":
		for _, c := range l.held {
			c.Close()
		}
		l.held = nil
		return outcome{}
	}
	return outcome{Err: "no order " + o.Do, Failures: 1}
}

// patience bounds everything that is not a slice of its own length.
const patience = 20 * time.Second

// open makes a tunnel, or with Refused a connection that was refused one.
func (o order) open() (net.Conn, error) {
	at := o.Proxy
	if at == "" {
		at = o.Target
	}
	c, err := net.DialTimeout("tcp", at, patience)
	if err != nil || o.Proxy == "" {
		return c, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err = io.WriteString(c, "CONNECT "+o.Target+" HTTP/1.1\r\nHost: "+o.Target+"\r\n\r\n")
	var answer []byte
	if err == nil {
		answer, err = readHead(c)
	}
	established := bytes.HasPrefix(answer, []byte("HTTP/1.1 200")) || bytes.HasPrefix(answer, []byte("HTTP/1.0 200"))
	if err == nil && established == o.Refused {
		err = fmt.Errorf("answer %q", answer[:min(len(answer), 120)])
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// readHead reads to the empty line and not beyond: no server speaks first here.
func readHead(c net.Conn) ([]byte, error) {
	var head []byte
	piece := make([]byte, 1024)
	for !bytes.Contains(head, []byte("\r\n\r\n")) {
		n, err := c.Read(piece)
		if head = append(head, piece[:n]...); err != nil {
			return head, err
		}
	}
	return head, nil
}

// once is one request to its end.
func (o order) once(payload, answer []byte) error {
	c, err := o.open()
	if err != nil || o.Refused {
		if err == nil {
			c.Close()
		}
		return err
	}
	defer c.Close()
	if _, err = c.Write(payload); err == nil {
		_, err = io.ReadFull(c, answer)
	}
	return err
}

// repeat makes requests for as long as it was told, each client one after the
// other.
func (o order) repeat(payload []byte) outcome {
	var all sync.WaitGroup
	var mu sync.Mutex
	var out outcome
	var times samples
	var named atomic.Int64
	begin := time.Now()
	for range o.Clients {
		all.Go(func() {
			answer := make([]byte, len(payload))
			var own samples
			var failed []error
			for time.Since(begin) < o.For && len(failed) < 10 {
				one, next := time.Now(), o
				if o.Names > 0 {
					i := named.Add(1) - 1
					if i >= o.Names {
						break // none twice
					}
					next.Target = fmt.Sprintf("n%d.%s", i, o.Target)
				}
				if err := next.once(payload, answer); err != nil {
					failed = append(failed, err)
					continue
				}
				own = append(own, float64(time.Since(one)))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, own...)
			out.fail(failed...)
		})
	}
	all.Wait()
	out.Done, out.Took = len(times), time.Since(begin)
	out.P50, out.P99 = time.Duration(times.quantile(0.5)), time.Duration(times.quantile(0.99))
	return out
}

func (r *outcome) fail(errs ...error) {
	for _, err := range errs {
		if r.Failures++; r.Err == "" {
			r.Err = err.Error()
		}
	}
}

// drain reads what the origin sends on each tunnel, for as long as it was told.
// The opening of the tunnels is on nobody's clock.
func (o order) drain() outcome {
	var out outcome
	var conns []net.Conn
	for range o.Clients {
		c, err := o.open()
		if err != nil {
			out.fail(err)
			break
		}
		defer c.Close()
		conns = append(conns, c)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	begin := time.Now()
	for _, c := range conns {
		_ = c.SetDeadline(begin.Add(o.For))
		all.Go(func() {
			piece := make([]byte, 256<<10)
			bytes, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, piece)
			mu.Lock()
			defer mu.Unlock()
			out.Bytes += bytes
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				out.fail(fmt.Errorf("a tunnel ended after %d bytes: %w", bytes, errors.Join(err, io.ErrUnexpectedEOF)))
			}
		})
	}
	all.Wait()
	out.Done, out.Took = len(conns), time.Since(begin)
	return out
}

// hold opens tunnels, moves something through each of them, and keeps them.
func (l *load) hold(o order) outcome {
	var out outcome
	begin := time.Now()
	for range o.Clients {
		c, err := o.open()
		if err == nil {
			l.held = append(l.held, c)
			err = exchange(c, o.Exchange)
		}
		if err != nil {
			if out.fail(err); out.Failures == 10 {
				break
			}
			continue
		}
		out.Done++
	}
	out.Took = time.Since(begin)
	return out
}

// exchange sends n bytes and waits for as many.
func exchange(c net.Conn, n int64) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(c, zeros{}, n)
		sent <- err
	}()
	_, err := io.CopyN(io.Discard, bufio.NewReader(c), n)
	if err != nil {
		_ = c.SetDeadline(time.Unix(1, 0))
	}
	return errors.Join(err, <-sent)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// payload is what a request carries: 64 bytes, or a ClientHello.
func (o order) payload() []byte {
	host, _, _ := strings.Cut(o.Target, ":")
	if !o.Hello {
		return bytes.Repeat([]byte("x"), 64)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = tls.Client(near, &tls.Config{ServerName: host}).HandshakeContext(ctx) }()
	record := make([]byte, 5)
	if _, err := io.ReadFull(far, record); err != nil {
		return nil
	}
	record = append(record, make([]byte, int(record[3])<<8|int(record[4]))...)
	if _, err := io.ReadFull(far, record[5:]); err != nil {
		return nil
	}
	return record
}

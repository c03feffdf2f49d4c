package confine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// live does what a server does and what its runtime does underneath, on a
// listener at descriptor 3: 500 connections, both ends of which are here, so
// 1,000 sockets; bytes moved by splice and by hand, half-closes; 200 threads;
// collections with memory given back; randomness; timers; preemption and signals; TCP over
// both families, UDP.
func live(string) error {
	f := os.NewFile(3, "listener")
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	f.Close()
	for _, part := range []struct {
		name string
		do   func(net.Listener) error
	}{
		{"threads", func(net.Listener) error { return threaded() }},
		{"timers", func(net.Listener) error { return timers() }},
		{"signals", func(net.Listener) error { return signals() }},
		{"sockets", tunnels},
		{"datagrams", func(net.Listener) error { return datagrams() }},
		{"memory", func(net.Listener) error { return collect() }},
	} {
		if err := part.do(l); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// tunnels is an echo behind a splice behind a connection, many at once, under
// collection and over both families.
func tunnels(l net.Listener) error {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // TCP to TCP: splice
			}()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	const count = 500
	connections := make([]*net.TCPConn, count)
	for i := range connections {
		host := "127.0.0.1"
		if i%2 == 1 {
			host = "::1"
		}
		d := net.Dialer{Timeout: 30 * time.Second, FallbackDelay: -1, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Minute}}
		d.SetMultipathTCP(false)
		c, err := d.Dial("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
		if err != nil {
			return err
		}
		defer c.Close()
		connections[i] = c.(*net.TCPConn)
	}
	var all sync.WaitGroup
	failures := make(chan error, count)
	for i, c := range connections {
		all.Go(func() {
			_ = c.SetDeadline(time.Now().Add(60 * time.Second))
			said := make([]byte, 8<<10+i)
			buffers := net.Buffers{said[:100], said[100:]}
			if _, err := buffers.WriteTo(c); err != nil {
				failures <- err
				return
			}
			if err := errors.Join(c.SetNoDelay(true), c.CloseWrite()); err != nil {
				failures <- err
				return
			}
			if got, err := io.Copy(io.Discard, c); err != nil || got != int64(len(said)) {
				failures <- fmt.Errorf("%d bytes of %d, %v", got, len(said), err)
			}
		})
	}
	runtime.GC()
	all.Wait()
	close(failures)
	return <-failures
}

// threaded has 200 threads at once, each of which exits.
func threaded() error {
	var all sync.WaitGroup
	together := make(chan struct{})
	for i := range 200 {
		all.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with it
			if i == 199 {
				close(together)
			}
			<-together
			_ = syscall.Gettid()
		})
	}
	all.Wait()
	return nil
}

// timers fires more of them than an idle server in an hour.
func timers() error {
	const count = 20_000
	fired := make(chan struct{}, count)
	for i := range count {
		time.AfterFunc(time.Duration(i%100)*time.Millisecond, func() { fired <- struct{}{} })
	}
	late := time.After(60 * time.Second)
	for range count {
		select {
		case <-fired:
		case <-late:
			return errors.New("not all of them")
		}
	}
	return nil
}

// signals is those from outside, a fault that is caught, and preemption of loops
// that call nothing.
func signals() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(60 * time.Second):
		return errors.New("no signal")
	}
	var done atomic.Bool
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !done.Load() {
				for n := range 10_000_000 { // calls nothing
					_ = n
				}
			}
		})
	}
	for range 10 {
		runtime.GC() // stops the loops by signals
	}
	done.Store(true)
	all.Wait()
	return fault()
}

// datagrams asks as a resolver is asked.
func datagrams() error {
	// The other end is asked for nothing: bind is not allowed here, so the question
	// goes to a port where nobody is.
	c, err := net.DialTimeout("udp", "127.0.0.1:9", 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("?"))
	return err
}

// collect makes garbage, and gives memory back.
func collect() error {
	if _, err := io.ReadFull(rand.Reader, make([]byte, 1<<20)); err != nil {
		return err
	}
	var kept [][]byte
	for i := range 200 {
		kept = append(kept, make([]byte, 1<<20))
		if i%50 == 49 {
			kept = nil
			debug.FreeOSMemory()
		}
	}
	runtime.KeepAlive(kept)
	return nil
}

func TestTheRuntimeLivesUnderTheFilter(t *testing.T) {
	l, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := begin(t, order{
		Needs: Needs{Descriptors: []int{0, 1, 2, 3}, Files: 4096, Ports: []uint16{uint16(l.Addr().(*net.TCPAddr).Port)}},
		Do:    "live", Waits: true,
	}, passing(f))
	if got, status := r.act(t); got.Error != "" || !status.Exited() {
		t.Errorf("%+v, %v, %s", got, status, r.stderr)
	}
}

// A panic that nobody catches is still told, and ends the process as it should.
func TestACrashIsTold(t *testing.T) {
	r := begin(t, order{Do: "crash", Waits: true}, nil)
	if _, status := r.act(t); status.ExitStatus() != 2 || !contains(r.stderr.String(), "panic: it falls", "goroutine 1") {
		t.Errorf("%v: %s", status, r.stderr)
	}
}

package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// signals are a person's interruptions on their way to a Run.
type signals struct {
	c    chan sandbox.ControlSignal
	in   chan os.Signal
	pipe chan os.Signal
	quit chan struct{}
}

// interruptions takes the signals over that would end this process, and with
// it its chance to clean up: Ctrl-C, SIGTERM, a terminal that goes away, and
// writing to an output that nobody reads any more (which then is an error of
// that write). first is called with the first Ctrl-C.
func interruptions(first func()) *signals {
	s := &signals{
		c: make(chan sandbox.ControlSignal), in: make(chan os.Signal, 4),
		pipe: make(chan os.Signal, 1), quit: make(chan struct{}),
	}
	signal.Notify(s.in, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(s.in, syscall.SIGHUP)
	}
	signal.Notify(s.pipe, syscall.SIGPIPE)
	go func() {
		var once sync.Once
		for {
			select {
			case sig := <-s.in:
				control := sandbox.SignalTerminate
				if sig == syscall.SIGINT {
					control = sandbox.SignalInterrupt
					once.Do(first)
				}
				select {
				case s.c <- control:
				case <-s.quit:
					return
				}
			case <-s.quit:
				return
			}
		}
	}()
	return s
}

// end gives the signals back.
func (s *signals) end() {
	signal.Stop(s.in)
	signal.Stop(s.pipe)
	close(s.quit)
}

// interruptible is a context that ends with the first Ctrl-C, SIGTERM or
// SIGHUP, so that what was made can be torn down; the second ends the process
// as it always does. Until stop is called, writing to an output that nobody
// reads any more is an error of that write and ends nothing.
func interruptible(parent context.Context, note func(string)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	in, pipe, quit := make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(in, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(in, syscall.SIGHUP)
	}
	signal.Notify(pipe, syscall.SIGPIPE)
	var ended sync.WaitGroup
	ended.Go(func() {
		select {
		case sig := <-in:
			signal.Stop(in)
			cancel(fmt.Errorf("interrupted by %s", unix.SignalName(sig.(syscall.Signal))))
			note("checkfu: interrupted; tearing down what was made (once more ends it at once, and checkfu sweep finds what is left)")
		case <-quit:
		}
	})
	return ctx, sync.OnceFunc(func() {
		signal.Stop(in)
		close(quit)
		ended.Wait()
		signal.Stop(pipe)
		cancel(nil)
	})
}

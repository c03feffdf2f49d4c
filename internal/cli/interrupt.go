package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

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

package runner

import (
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// stop turns a person's interruptions into what they mean at the moment they
// come: while the command runs the first one is the command's, and every other
// one ends the Run.
type stop struct {
	kill func()
	quit chan struct{}

	mu     sync.Mutex
	signal sandbox.ControlSignal // the first
	raised chan struct{}         // while the command runs: closed by the first
}

func newStop(in <-chan sandbox.ControlSignal, kill func()) *stop {
	st := &stop{kill: kill, quit: make(chan struct{})}
	go func() {
		for {
			select {
			case sig, open := <-in:
				if !open {
					return
				}
				st.take(sig)
			case <-st.quit:
				return
			}
		}
	}()
	return st
}

func (st *stop) take(sig sandbox.ControlSignal) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.signal == "" {
		st.signal = sig
		if st.raised != nil {
			close(st.raised)
			return
		}
	}
	st.kill()
}

// enter says that the command runs from now on; the channel is closed by the
// first interruption.
func (st *stop) enter() <-chan struct{} {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.raised = make(chan struct{})
	return st.raised
}

func (st *stop) leave() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.raised = nil
}

// first is the first interruption, or "".
func (st *stop) first() sandbox.ControlSignal {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.signal
}

// end stops listening.
func (st *stop) end() { close(st.quit) }

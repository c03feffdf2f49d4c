package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// startFailure says whether err means that the command is at fault, and how.
// Source: contract "Errors"; not_found and start_failed are ours
// (docs/divergences.md).
func startFailure(err error) Cause {
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.OperationFailed || e.Operation != sandbox.OpOpenProcess {
		return ""
	}
	switch e.Reason {
	case sandbox.ReasonNotFound:
		return CauseNotFound
	case sandbox.ReasonStartFailed:
		return CauseNotStarted
	}
	return ""
}

// waited is the answer of Process.Wait.
type waited struct {
	exit sandbox.Exit
	err  error
}

// follow passes the streams on and ends the command when its time, its reader
// or the person's patience ends. It returns nil when the command has ended and
// all its output was passed on; the process is then closed.
func (s *session) follow(ctx context.Context, p sandbox.Process) error {
	raised := s.stop.enter()
	defer s.stop.leave()
	timeout := s.Clock.NewTimer(s.spec.Timeout)
	defer timeout.Stop()
	streams := s.pump(p)
	ended := make(chan waited, 1)
	go func() {
		e, err := p.Wait(ctx)
		ended <- waited{e, err}
	}()

	var expired, limit <-chan time.Time = timeout.C(), nil // limit bounds what was already asked to end
	end := func(cause Cause, sig sandbox.ControlSignal, wait time.Duration) error {
		if s.record.Cause == "" {
			s.record.Cause = cause
		}
		timer := s.Clock.NewTimer(wait)
		limit = timer.C()
		return p.Signal(ctx, sig)
	}
	broken, drained, killed := streams.broken, streams.done, false
	kill := func(cause Cause) error {
		killed, expired, broken = true, nil, nil
		return end(cause, sandbox.SignalKill, killBound)
	}
	for ended != nil || drained != nil {
		var err error
		select {
		case w := <-ended:
			if w.err != nil {
				return w.err
			}
			ended = nil
			s.record.Exit = w.exit
			if s.record.Cause == "" {
				s.record.Cause = CauseExited
			}
		case <-drained:
			drained = nil
		case <-broken:
			err = kill(CauseOutputClosed)
		case <-expired:
			if ended == nil {
				return s.give(ctx, p, "its output did not end with it")
			}
			err = kill(CauseTimedOut)
		case <-raised:
			raised = nil
			s.record.StopSignal = string(s.stop.first())
			err = end(CauseInterrupted, s.stop.first(), grace)
		case <-limit:
			if killed {
				return s.give(ctx, p, "it did not end after SIGKILL")
			}
			err = kill(CauseInterrupted)
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	if err := streams.lost(); err != nil {
		return err
	}
	return p.Destroy(ctx)
}

// give ends a command that cannot be ended in order.
func (s *session) give(ctx context.Context, p sandbox.Process, why string) error {
	return errors.Join(fmt.Errorf("the command was destroyed: %s", why), p.Destroy(ctx))
}

// streams are the three streams under way.
type streams struct {
	done   <-chan struct{} // closed when both outputs have ended
	broken <-chan struct{} // closed when nobody takes standard output any more
	reads  []error         // after done: why an output ended before its end
}

func (s *session) pump(p sandbox.Process) *streams {
	done, broken := make(chan struct{}), make(chan struct{})
	st := &streams{done: done, broken: broken, reads: make([]error, 2)}
	go func() {
		// A program need not read its input: an error here is no failure.
		if s.spec.Input != nil {
			_, _ = io.Copy(p.Input(), s.spec.Input)
		}
		_ = p.Input().Close()
	}()
	diagnostics := make(chan struct{})
	go func() {
		defer close(diagnostics)
		st.reads[1] = pass(s.spec.Errors, p.Error(), func() {})
	}()
	go func() {
		st.reads[0] = pass(s.spec.Output, p.Output(), func() { close(broken) })
		<-diagnostics
		close(done)
	}()
	return st
}

func (st *streams) lost() error {
	for i, name := range []sandbox.Stream{sandbox.StreamStdout, sandbox.StreamStderr} {
		if err := st.reads[i]; err != nil {
			return fmt.Errorf("%s was cut short: %w", name, err)
		}
	}
	return nil
}

// pass copies r to w as it comes, to the end of r. When w fails it says so
// once and goes on to the end of r, so that nothing stands still.
// Errors: those of r.
func pass(w io.Writer, r io.Reader, failed func()) error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := r.Read(buffer)
		if n > 0 && w != nil {
			if _, werr := w.Write(buffer[:n]); werr != nil {
				w = nil
				failed()
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

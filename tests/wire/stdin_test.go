package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func newProcessID() string { return string(wire.NewProcessID()) }

// A command that reads standard input comes to its end by itself, whatever its
// caller does with its own; and a timeout fires in the middle of a reading.
func TestNobodyWaitsForStandardInput(t *testing.T) {
	across(t, 0, func(t *testing.T, r remote) {
		for _, c := range []struct {
			script, in, out string
			timedOut        bool
		}{
			{"cat", "", "", false},
			{"cat", "abc", "abc", false},
			{"cat; echo end", "", "end\n", false},
			{"head -c 1", "abc", "a", false}, // two bytes stay unread
			{"echo early", "never read", "early\n", false},
			{"echo before; sleep 1000", "", "before\n", true},
			{"cat; sleep 1000", "abc", "abc", true},
		} {
			q := command(c.script)
			q.Stdin = []byte(c.in)
			q.TimeoutSeconds = 60
			if c.timedOut {
				q.TimeoutSeconds = 2
			}
			began := time.Now()
			s, err := r.Execute(t.Context(), r.id, q)
			if err != nil || string(s.Stdout) != c.out || s.TimedOut != c.timedOut {
				t.Errorf("%s with %q: %q, timed out %v, %v", c.script, c.in, s.Stdout, s.TimedOut, err)
			}
			// A command that waited for input would have taken all of its time.
			if took := time.Since(began); took > 50*time.Second {
				t.Errorf("%s with %q took %v", c.script, c.in, took)
			}
		}
	})
}

// A live process whose standard input nobody closes: it lives while it waits for
// more, it exits when it does not, it dies when it is told to, and whoever waits
// for it with a limit is let go of in time.
func TestStandardInputThatNobodyCloses(t *testing.T) {
	across(t, 0, func(t *testing.T, r remote) {
		p := r.spawn(t, process("echo early; echo diagnosis >&2; exit 4"))
		out, err := io.ReadAll(p.Output())
		errs, eerr := io.ReadAll(p.Error())
		if exit, werr := p.Wait(t.Context()); errors.Join(err, eerr, werr) != nil || string(out) != "early\n" || string(errs) != "diagnosis\n" || *exit.ExitCode != 4 {
			t.Errorf("%q %q %+v, %v", out, errs, exit, errors.Join(err, eerr, werr))
		}

		for _, end := range []struct {
			signal string
			by     func(sandbox.Process) error
		}{
			{"SIGTERM", func(p sandbox.Process) error { return p.Signal(t.Context(), sandbox.SignalTerminate) }},
			{"SIGKILL", func(p sandbox.Process) error { return p.Destroy(t.Context()) }},
		} {
			p := r.spawn(t, sandbox.ProcessRequest{Executable: "cat", Arguments: []string{}, WorkingDirectory: "/", Environment: map[string]string{}})
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if exit, err := p.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("an exit of what lives: %+v, %v", exit, err)
			}
			cancel()
			for n := range 3 { // it is not ended by having been waited for
				line := fmt.Sprintln("line", n)
				got := make([]byte, len(line))
				_, werr := io.WriteString(p.Input(), line)
				if _, err := io.ReadFull(p.Output(), got); err != nil || werr != nil || string(got) != line {
					t.Fatalf("%q, %v %v", got, err, werr)
				}
			}
			// Commands beside it have standard input of their own.
			if s, err := r.Execute(t.Context(), r.id, command("cat; echo beside")); err != nil || string(s.Stdout) != "beside\n" {
				t.Errorf("%q %v", s.Stdout, err)
			}
			if err := end.by(p); err != nil {
				t.Error(err)
			}
			exit, err := p.Wait(t.Context())
			if err != nil || exit.Signal != end.signal {
				t.Errorf("%+v, %v, want %s", exit, err, end.signal)
			}
			if rest, err := io.ReadAll(p.Output()); len(rest) > 0 || err != nil {
				t.Errorf("%q %v", rest, err)
			}
			if n, err := io.WriteString(p.Input(), "late"); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%d bytes to what is over, %v", n, err)
			}
		}
	})
}

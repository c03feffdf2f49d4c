package memory

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

func (f *fixture) open(id sandbox.InstanceID, script string) sandbox.Process {
	f.Helper()
	p, err := f.p.OpenProcess(f.ctx(), id, "proc", sandbox.ProcessRequest{
		Executable: "sh", Arguments: []string{"-c", script}, WorkingDirectory: "/", Environment: map[string]string{},
	})
	f.must(err)
	return p
}

func (f *fixture) wait(p sandbox.Process, want string) {
	f.Helper()
	for range 2 { // it can be read again
		exit, err := p.Wait(f.ctx())
		f.must(err)
		f.must(exit.Validate())
		if got := show(sandbox.Settlement{Exit: exit}); got != want {
			f.Errorf("exit %s, want %s", got, want)
		}
	}
}

func TestProcessHalfClose(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	p := f.open(id, "cat; echo after; echo diagnosis >&2; exit 3")
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB, sixteen times the pipes
	var writer sync.WaitGroup
	writer.Go(func() {
		if _, err := p.Input().Write(sent); err != nil {
			t.Error(err)
		}
		if err := p.Input().Close(); err != nil {
			t.Error(err)
		}
	})
	got, err := io.ReadAll(p.Output())
	f.must(err)
	writer.Wait()
	if !bytes.Equal(got, append(sent, "after\n"...)) {
		t.Errorf("%d bytes came back", len(got))
	}
	f.wait(p, "exit 003")
	errs, err := io.ReadAll(p.Error())
	f.must(err)
	if string(errs) != "diagnosis\n" {
		t.Errorf("%q", errs)
	}
	if _, err := p.Input().Write([]byte("x")); err == nil {
		t.Error("input was taken after the exit")
	}
	f.must(p.Signal(f.ctx(), sandbox.SignalTerminate))
	f.must(p.Destroy(f.ctx()))
	f.must(p.Destroy(f.ctx()))
	f.wait(p, "exit 003")
}

// What its shell gives up by exec has ended, and the process has not.
func TestProcessClosesByExec(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	p := f.open(id, "echo last; exec cat >/tmp/f")
	got, err := io.ReadAll(p.Output())
	f.must(err)
	if string(got) != "last\n" {
		t.Errorf("%q", got)
	}
	_, err = io.WriteString(p.Input(), "x")
	f.must(err)
	f.must(p.Input().Close())
	f.wait(p, "exit 000")

	p = f.open(id, "exec sleep 60 </tmp/f")
	for err = nil; err == nil; _, err = io.WriteString(p.Input(), "x") {
	}
	if err != errBrokenPipe {
		t.Error(err)
	}
	f.must(p.Destroy(f.ctx()))
}

func TestProcessInteractive(t *testing.T) {
	f := newFixture(t)
	p := f.open(f.active(request()), `while read -r line; do echo "got $line"; done`)
	out := bufio.NewReader(p.Output())
	for _, line := range []string{"a", "b c"} {
		_, err := io.WriteString(p.Input(), line+"\n")
		f.must(err)
		got, err := out.ReadString('\n')
		f.must(err)
		if got != "got "+line+"\n" {
			t.Errorf("%q", got)
		}
	}
	f.must(p.Input().Close())
	if rest, err := out.ReadString('\n'); err != io.EOF || rest != "" {
		t.Errorf("%q %v", rest, err)
	}
	f.wait(p, "exit 000")
}

func TestProcessSignals(t *testing.T) {
	for _, c := range []struct {
		script string
		signal sandbox.ControlSignal
	}{
		{"cat", sandbox.SignalInterrupt}, {"cat", sandbox.SignalTerminate}, {"cat", sandbox.SignalKill},
		{"sleep 1000000", sandbox.SignalTerminate}, {"yes", sandbox.SignalTerminate}, {"yes >/dev/null", sandbox.SignalTerminate},
		{"while true; do true; done", sandbox.SignalTerminate}, {"mkfifo /tmp/p; cat /tmp/p", sandbox.SignalTerminate},
		{"cat | cat | cat", sandbox.SignalTerminate}, {"sleep 1000 | yes", sandbox.SignalTerminate},
		{"trap '' TERM; cat", sandbox.SignalKill},
	} {
		t.Run(c.script+" "+string(c.signal), func(t *testing.T) {
			f := newFixture(t)
			id := f.active(request())
			p := f.open(id, c.script)
			f.must(p.Signal(f.ctx(), c.signal))
			f.wait(p, string(c.signal))
			// The end makes room for another.
			f.wait(f.open(id, "true"), "exit 000")
		})
	}
}

func TestProcessIgnoresSignal(t *testing.T) {
	f := newFixture(t)
	p := f.open(f.active(request()), "trap '' TERM; echo ready; cat")
	if _, err := bufio.NewReader(p.Output()).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	f.must(p.Signal(f.ctx(), sandbox.SignalTerminate))
	short, cancel := context.WithTimeout(f.ctx(), 5*time.Millisecond)
	defer cancel()
	if _, err := p.Wait(short); err != context.DeadlineExceeded {
		t.Errorf("ended by an ignored signal: %v", err)
	}
	f.want(p.Signal(f.ctx(), "SIGHUP"), &sandbox.Error{Reason: sandbox.ReasonInvalidRequest})
	f.must(p.Destroy(f.ctx()))
	f.wait(p, "SIGKILL")
}

func TestProcessSleepsByTheClock(t *testing.T) {
	f := newFixture(t)
	p := f.open(f.active(request()), "sleep 10; echo late")
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(p.Output())
		read <- string(b)
	}()
	// The process may not have got as far as its sleep, so the clock is moved
	// until it has.
	for {
		f.clock.Advance(time.Second)
		select {
		case got := <-read:
			if got != "late\n" {
				t.Errorf("%q", got)
			}
			f.wait(p, "exit 000")
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func TestOneProcess(t *testing.T) {
	f := newFixture(t)
	id, other := f.active(request()), f.active(request())
	p := f.open(id, "cat")
	_, err := f.p.OpenProcess(f.ctx(), id, "second", sandbox.ProcessRequest{Executable: "true", WorkingDirectory: "/"})
	f.want(err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: sandbox.OpOpenProcess, Actual: sandbox.ActualProcessAlreadyOpen})
	q := f.open(other, "cat")
	f.sh(id, "true") // a command beside it is no second process
	f.must(p.Destroy(f.ctx()))
	f.must(q.Destroy(f.ctx()))
	f.wait(f.open(id, "exit 1"), "exit 001")
}

func TestOpenProcessRefuses(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	good := sandbox.ProcessRequest{Executable: "true", WorkingDirectory: "/"}
	for _, c := range []struct {
		id     string
		r      sandbox.ProcessRequest
		reason string
	}{
		{"p", sandbox.ProcessRequest{Executable: "nosuch", WorkingDirectory: "/"}, sandbox.ReasonNotFound},
		{"p", sandbox.ProcessRequest{Executable: "true", WorkingDirectory: "/nosuch"}, sandbox.ReasonStartFailed},
		{"p", sandbox.ProcessRequest{Executable: "true", WorkingDirectory: "x"}, sandbox.ReasonInvalidRequest},
		{"", good, sandbox.ReasonInvalidRequest},
		{"a b", good, sandbox.ReasonInvalidRequest},
	} {
		_, err := f.p.OpenProcess(f.ctx(), id, c.id, c.r)
		f.want(err, &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpOpenProcess, Reason: c.reason})
	}
}

func TestProcessEvidence(t *testing.T) {
	f := newFixture(t)
	h, err := f.p.Provision(f.ctx(), request())
	f.must(err)
	a, err := f.p.Activate(f.ctx(), h.Value.InstanceID)
	f.must(err)
	caps, err := f.p.Capabilities(f.ctx())
	f.must(err)
	p := f.open(a.Value.InstanceID, "true")
	if want := sandbox.EvidenceOf(a.Value, "proc", caps.Enforcement, at(0), at(0)); p.Evidence() != want {
		t.Errorf("%+v", p.Evidence())
	}
	f.wait(p, "exit 000")
}

// The end of an instance ends its process, whatever it is doing, and what it
// wrote before can still be read to a real end.
func TestProcessEndsWithInstance(t *testing.T) {
	for _, script := range []string{"echo first; cat", "echo first; yes", "echo first; sleep 100000", "echo first; yes | cat"} {
		for name, end := range map[string]func(f *fixture, id sandbox.InstanceID) error{
			"destroy": func(f *fixture, id sandbox.InstanceID) error { return f.p.Destroy(f.ctx(), id) },
			"release": func(f *fixture, id sandbox.InstanceID) error {
				_, err := f.p.Release(f.ctx(), id, sandbox.ReleaseRequest{ExpiresAt: at(time.Hour)})
				return err
			},
			"cleanup": func(f *fixture, id sandbox.InstanceID) error {
				_, err := f.p.Cleanup(f.ctx(), sandbox.CleanupRequest{Now: at(time.Hour), OrphanedBefore: at(0)})
				return err
			},
		} {
			t.Run(name+" "+script, func(t *testing.T) {
				f := newFixture(t)
				id := f.active(request())
				p := f.open(id, script)
				first := make([]byte, 6)
				if _, err := io.ReadFull(p.Output(), first); err != nil || string(first) != "first\n" {
					t.Fatal(string(first), err)
				}
				f.must(end(f, id))
				f.wait(p, "SIGKILL")
				if rest, err := io.ReadAll(p.Output()); err != nil || strings.Trim(string(rest), "y\n") != "" {
					t.Errorf("%d bytes, %v", len(rest), err)
				}
				_, err := f.p.Execute(f.ctx(), id, shellCommand("true"))
				f.want(err, sandbox.NoInstance(sandbox.OpExecute, id))
			})
		}
	}
}

// Diagnostics that nobody reads cannot stop the program.
func TestProcessErrorIsBounded(t *testing.T) {
	f := newFixture(t)
	p := f.open(f.active(request()), "yes | head -c 1000000 >&2; echo done")
	out, err := io.ReadAll(p.Output())
	f.must(err)
	errs, err := io.ReadAll(p.Error())
	f.must(err)
	if string(out) != "done\n" || len(errs) != pipeBytes {
		t.Errorf("%q, %d bytes of diagnosis", out, len(errs))
	}
	f.wait(p, "exit 000")
}

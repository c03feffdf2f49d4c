package process

import (
	"fmt"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// exitProbes hold wait.
func exitProbes() []probe.Probe {
	return []probe.Probe{
		holds("exit-code", "15", "wait gives the code that the child ended with", exitCode),
		holds("wait-again", "16", "wait gives the same exit to many callers at once and to a later one", waitAgain),
		holds("wait-given-up", "17", "a wait that is given up changes nothing for the process", waitGivenUp),
		holds("grandchild", "18", "a grandchild that holds the output does not keep wait from settling", grandchild),
	}
}

func exitCode(t *probe.T) {
	for _, want := range []int64{7, 200} {
		exit := run(t, fmt.Sprintf("exit %d", want)).wait()
		t.Check("code", code(exit) == want, fmt.Sprintf("code %d", want), exited(exit))
	}
}

func waitAgain(t *probe.T) {
	l := run(t, "exit 9")
	wait := func(check string) {
		exit, err := l.p.Wait(t.Context())
		t.Check(check, err == nil && code(exit) == 9, "code 9", settled(exit, err))
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { wait("at-once") })
	}
	all.Wait()
	wait("later")
}

// settled spells the outcome of a wait.
func settled(e sandbox.Exit, err error) string {
	if err != nil {
		return err.Error()
	}
	return exited(e)
}

func waitGivenUp(t *probe.T) {
	mark := t.Nonce()
	l := run(t, `read -r line; echo "$line"; exit 5`)
	exit, err := l.p.Wait(givenUp(t))
	t.Check("comes-back", err != nil && !probe.Hung(err), "the end of the caller's patience", settled(exit, err))
	if err := l.write([]byte(mark + "\n")); t.Check("input", err == nil, "a write that is taken", err) && l.expect("lives", mark) {
		exit := l.wait()
		t.Check("code", code(exit) == 5, "code 5", exited(exit))
	}
}

// A shell that has no background says so by a syntax error, which is code 2;
// then there are no grandchildren either.
func grandchild(t *probe.T) {
	mark := t.Nonce()
	l := run(t, "sleep 300 & echo "+mark+"; exit 3")
	exit, err := l.p.Wait(t.Context())
	if !t.Check("settles", err == nil, "an exit", err) {
		return
	}
	if code(exit) == 2 {
		t.Observe("the machine's shell starts nothing in the background")
		return
	}
	t.Check("code", code(exit) == 3, "code 3", exited(exit))
	l.expect("output", mark)
}

// signalProbes hold signal and destroy.
func signalProbes() []probe.Probe {
	return []probe.Probe{
		holds("signal-names", "19", "each of the three signals arrives as itself", signalNames),
		holds("signal-ignored", "20", "a child may ignore SIGTERM", signalIgnored),
		holds("signal-late", "21", "a signal after the exit does nothing", signalLate),
		holds("destroy-again", "22", "a second destroy succeeds", destroyAgain),
		holds("destroy-stubborn", "23", "destroy does not wait for a child that ignores SIGTERM", destroyStubborn),
		holds("destroy-ends", "24", "destroy ends the process and all that it started", destroyEnds),
	}
}

// A machine that only knows codes says 128 and the number: the contract does
// not forbid it, and it cannot be told from a program that says so itself.
func signalNames(t *probe.T) {
	numbers := map[sandbox.ControlSignal]int64{sandbox.SignalInterrupt: 2, sandbox.SignalTerminate: 15, sandbox.SignalKill: 9}
	for _, s := range []sandbox.ControlSignal{sandbox.SignalInterrupt, sandbox.SignalTerminate, sandbox.SignalKill} {
		mark := t.Nonce()
		l := run(t, "echo "+mark+"; exec cat")
		if !l.expect("ready", mark) {
			return
		}
		t.Need("signal", l.p.Signal(t.Context(), s))
		exit := l.wait()
		byCode := code(exit) == 128+numbers[s]
		if byCode {
			t.Observe("%s ends a process as %s", s, exited(exit))
		}
		t.Check(strings.ToLower(string(s)), exit.Signal == string(s) || byCode, string(s), exited(exit))
	}
}

func signalIgnored(t *probe.T) {
	ready, mark := t.Nonce(), t.Nonce()
	l := run(t, "trap '' TERM; echo "+ready+`; read -r line; echo "$line"`)
	if !l.expect("ready", ready) {
		return
	}
	t.Need("signal", l.p.Signal(t.Context(), sandbox.SignalTerminate))
	if err := l.write([]byte(mark + "\n")); t.Check("input", err == nil, "a write that is taken", err) {
		l.expect("lives", mark)
		l.wait()
	}
}

func signalLate(t *probe.T) {
	l := run(t, "exit 0")
	l.wait()
	for _, s := range []sandbox.ControlSignal{sandbox.SignalTerminate, sandbox.SignalKill} {
		err := l.p.Signal(t.Context(), s)
		t.Check("nothing", err == nil, "no error", err)
	}
}

func destroyAgain(t *probe.T) {
	l := run(t, "exec cat")
	t.Need("destroy", l.destroy())
	err := l.p.Destroy(t.Context())
	t.Check("again", err == nil, "no error", err)
}

func destroyStubborn(t *probe.T) {
	ready := t.Nonce()
	l := run(t, "trap '' TERM; echo "+ready+"; exec cat")
	if !l.expect("ready", ready) {
		return
	}
	err := l.destroy()
	t.Check("settles", err == nil, "success within 30 s", err)
}

// endless never stops writing, in two processes beside the shell. It writes no
// faster than a shell does: a wire may end a process whose output nobody could
// have read in time, and must not have to.
func endless(t *probe.T, m *probe.Machine) *live {
	line := t.Nonce()
	l := start(t, m, program("while true; do echo "+line+"; done | cat; exit 1"))
	l.expect("running", line)
	return l
}

// silent checks that nobody writes any more. More comes than anybody keeps
// between the child and here exactly if there is still one who writes.
func (l *live) silent() {
	const kept = 16 << 20
	n, err := l.flood(kept)
	l.t.Check("silent", n < kept, "an end of what it writes", fmt.Sprintf("%d bytes more, then %v", n, err))
}

func destroyEnds(t *probe.T) {
	l := endless(t, t.Machine(probe.Shape{}))
	t.Need("destroy", l.destroy())
	l.silent()
	exit, err := l.p.Wait(t.Context())
	t.Check("exit", err == nil, "an exit", settled(exit, err))
}

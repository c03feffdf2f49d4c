package process

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// openProbes hold the request and the one process of an instance.
func openProbes() []probe.Probe {
	times := holds("evidence-time", "37", "evidence says when its own process was started", evidenceTime)
	times.Level = report.Should
	return []probe.Probe{
		holds("one-live", "25", "a second open is refused as process_already_open and leaves the first alone", oneLive),
		holds("one-after-another", "26", "another process can be opened once the one before has ended", oneAfterAnother),
		holds("state", "27", "only an active instance runs a process", state),
		holds("missing-program", "28", "a program that does not exist is a typed failure and takes no place", missingProgram),
		holds("arguments", "29", "arguments arrive as they are, through no shell", arguments),
		holds("argument-limits", "30", "256 arguments of up to 65,536 bytes are taken", argumentLimits),
		holds("environment", "31", "the environment arrives as it is", environment),
		holds("working-directory", "32", "the process starts in its working directory", workingDirectory),
		holds("evidence-own", "33", "nothing that the workload writes becomes evidence", evidenceOwn),
		times,
		networkProbe(),
	}
}

func oneLive(t *probe.T) {
	mark := t.Nonce()
	m := t.Machine(probe.Shape{})
	l := start(t, m, program("exec cat"))
	second, err := try(t, m.ID, program("exec cat"))
	t.Refused("refused", err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: sandbox.OpOpenProcess, Actual: sandbox.ActualProcessAlreadyOpen})
	if err == nil {
		_ = second.Destroy(t.Context())
		return
	}
	if err := l.write([]byte(mark + "\n")); t.Check("input", err == nil, "a write that is taken", err) {
		l.expect("first-lives", mark)
	}
}

func oneAfterAnother(t *probe.T) {
	m := t.Machine(probe.Shape{})
	for range 3 {
		mark := t.Nonce()
		l := start(t, m, program("echo "+mark))
		if !l.expect("output", mark) {
			return
		}
		l.wait()
	}
}

func state(t *probe.T) {
	m := t.Provision(probe.Shape{})
	p, err := try(t, m.ID, program("exec cat"))
	t.Refused("provisioning", err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: sandbox.OpOpenProcess})
	if err == nil {
		_ = p.Destroy(t.Context())
		return
	}
	t.Need("destroy", t.Provider().Destroy(t.Context(), m.ID))
	if p, err = try(t, m.ID, program("exec cat")); err == nil {
		_ = p.Destroy(t.Context())
	}
	t.Check("destroyed", err != nil, "a refusal", "a process")
}

func missingProgram(t *probe.T) {
	mark := t.Nonce()
	m := t.Machine(probe.Shape{})
	q := program("exit 0")
	q.Executable = "/bin/" + t.Nonce()
	p, err := try(t, m.ID, q)
	if err == nil {
		_ = p.Destroy(t.Context())
	} else {
		t.Observe("a missing program is %v", err)
	}
	if t.Refused("typed", err, &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpOpenProcess}) {
		p, err := try(t, m.ID, program("echo "+mark))
		if t.Check("no-place", err == nil, "a process", err) {
			_ = p.Destroy(t.Context())
		}
	}
}

// printed runs script, which prints its parameters or variables in brackets,
// and checks that they are values.
func printed(t *probe.T, q sandbox.ProcessRequest, values ...string) {
	want := "[" + strings.Join(values, "]\n[") + "]\n"
	l := start(t, t.Machine(probe.Shape{}), q)
	got := make([]byte, len(want))
	n, err := io.ReadFull(l.out, got)
	t.Check("exact", err == nil && string(got) == want, strconv.Quote(want), came(string(got[:n]), err))
}

func arguments(t *probe.T) {
	values := []string{t.Nonce(), "", "two words", " $HOME ${PATH} ", "*", "; echo no", "'", `"`, `\n`, "a\nb", "-n", "é", t.Nonce()}
	printed(t, program(`printf '[%s]\n' "$@"`, values...), values...)
}

func argumentLimits(t *probe.T) {
	args := []string{strings.Repeat("x", sandbox.MaxArgumentBytes)}
	for len(args) < sandbox.MaxArguments-3 {
		args = append(args, strconv.Itoa(len(args)))
	}
	l := start(t, t.Machine(probe.Shape{}), program(`printf '%s' "$1" | wc -c; echo "$#"`, args...))
	got, err := l.line()
	t.Check("length", err == nil && strings.TrimSpace(got) == strconv.Itoa(sandbox.MaxArgumentBytes), "an argument of 65536 bytes", came(got, err))
	l.expect("count", strconv.Itoa(len(args)))
}

func environment(t *probe.T) {
	q, script := program(""), `printf '[%s]\n'`
	var values []string
	for i, value := range []string{t.Nonce(), "", " outer blanks ", "a=b;c", "two\nlines", "$HOME '\" \\n", "é"} {
		name := fmt.Sprintf("V%s%d", strings.ToUpper(t.Nonce()), i)
		q.Environment[name] = value
		values = append(values, value)
		script += ` "$` + name + `"`
	}
	q.Arguments[1] = script
	printed(t, q, values...)
}

func workingDirectory(t *probe.T) {
	q := program("pwd")
	q.WorkingDirectory = sandbox.OutputPath
	start(t, t.Machine(probe.Shape{}), q).expect("directory", sandbox.OutputPath)
}

// evidenceTime wants the present: evidence of a former process has another.
// That it was not seen before it was started is one of the sixteen clauses.
func evidenceTime(t *probe.T) {
	e := run(t, "exec cat").p.Evidence()
	t.Check("started", t.Present(e.StartedAt), "a time within 5 minutes of now", string(e.StartedAt))
}

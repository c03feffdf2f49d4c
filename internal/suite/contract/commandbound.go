package contract

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// boundedCommands are the bounds of a command at their edges, and how a
// command ends that does not end by itself.
func boundedCommands() []probe.Probe {
	const bounds = `contract "Bounds"`
	const operations = `contract "The operations"`
	needs := []report.Token{report.Process}
	return []probe.Probe{
		{
			ID: "execute.output-limit", Suite: report.Contract, Clause: "CF-CX-11", Source: bounds,
			Title: "output up to its limit comes whole, and a byte more is an error and no shorter answer", Requires: needs, Run: outputLimit,
		},
		{
			ID: "execute.bounds-taken", Suite: report.Contract, Clause: "CF-CX-12", Source: bounds,
			Title: "what lies exactly at a bound of a command is taken", Requires: needs, Run: boundsTaken,
		},
		{
			ID: "execute.bounds-refused", Suite: report.Contract, Clause: "CF-CX-16", Source: bounds,
			Title: "what lies one over a bound of a command is refused", Requires: needs, Run: boundsRefused,
		},
		{
			ID: "execute.large-output", Suite: report.Contract, Clause: "CF-CX-17", Source: bounds,
			Title: "megabytes of either stream come whole", Requires: needs, Once: true, Run: largeOutput,
		},
		{
			ID: "execute.times", Suite: report.Contract, Clause: "CF-CX-18", Source: operations, Level: report.Should,
			Title: "a settlement says when its command ran", Requires: needs, Run: settlementTimes,
		},
		{
			ID: "execute.timeout", Suite: report.Contract, Clause: "CF-CX-13", Source: operations,
			Title: "a command ends at its timeout, says so, and keeps what it wrote", Requires: needs, Run: timeout,
		},
		{
			ID: "execute.timeout-ends-all", Suite: report.Contract, Clause: "CF-CX-14", Source: operations,
			Title: "after a timeout nothing that the command started lives on", Requires: needs, Once: true, Run: timeoutEndsAll,
		},
		{
			ID: "execute.missing-program", Suite: report.Contract, Clause: "CF-CX-15", Source: `contract "Errors"`, Level: report.Should,
			Title: "a program that is not there is an error and no exit code", Requires: needs, Run: missingProgram,
		},
	}
}

func outputLimit(t *probe.T) {
	m := t.Machine(probe.Shape{})
	const limit = 5000
	for _, stream := range []sandbox.Stream{sandbox.StreamStdout, sandbox.StreamStderr} {
		script := map[sandbox.Stream]string{sandbox.StreamStdout: "cat", sandbox.StreamStderr: "cat >&2"}[stream]
		for _, n := range []int{limit - 1, limit} {
			c := feed(letters(t, n), script)
			c.OutputLimitBytes = limit
			s, err := t.Provider().Execute(t.Context(), m.ID, c)
			got := map[sandbox.Stream][]byte{sandbox.StreamStdout: s.Stdout, sandbox.StreamStderr: s.Stderr}[stream]
			why := any(got)
			if err != nil {
				why = err
			}
			t.Check(string(stream)+"-within", err == nil && bytes.Equal(got, c.Stdin), fmt.Sprintf("all %d bytes within a limit of %d", n, limit), why)
		}
		c := feed(letters(t, limit+1), script)
		c.OutputLimitBytes = limit
		_, err := t.Provider().Execute(t.Context(), m.ID, c)
		t.Refused(string(stream)+"-over", err, &sandbox.Error{Kind: sandbox.OutputLimitExceeded})
	}
	both := feed(letters(t, limit), `cat; printf %s "$1" >&2`)
	both.Arguments, both.OutputLimitBytes = append(both.Arguments, "name", string(letters(t, limit))), limit
	_, err := t.Provider().Execute(t.Context(), m.ID, both)
	t.Check("each", err == nil, fmt.Sprintf("%d bytes in each stream: the limit is that of one", limit), err)
	t.Check("usable", probe.Code(m.Sh("exit 0")) == 0, "a machine that still works", "one that does not")
}

// largeOutput fills one stream and then the other with more than a pipe or a
// frame holds: who reads one to its end before the other never gets there.
func largeOutput(t *probe.T) {
	m := t.Machine(probe.Shape{})
	line := t.Nonce()
	want := bytes.Repeat([]byte(line+"\n"), int(min(sandbox.MaxOutputBytes, t.StreamBytes()/2))/(len(line)+1))
	script := fmt.Sprintf("yes %s | head -c %d", line, len(want))
	for _, stream := range []struct {
		id, script string
		of         func(s sandbox.Settlement) []byte
	}{
		{"stdout", script, func(s sandbox.Settlement) []byte { return s.Stdout }},
		{"stderr", script + " >&2", func(s sandbox.Settlement) []byte { return s.Stderr }},
	} {
		c := probe.Command(stream.script)
		c.OutputLimitBytes = sandbox.MaxOutputBytes
		got := stream.of(m.Run(c))
		t.Check(stream.id, bytes.Equal(got, want), fmt.Sprintf("%d bytes as they were written", len(want)), fmt.Sprintf("%d bytes", len(got)))
	}
}

func settlementTimes(t *probe.T) {
	s := t.Machine(probe.Shape{}).Sh("exit 0")
	t.Check("started", t.Present(s.StartedAt), "a time within 5 minutes of now", string(s.StartedAt))
	t.Check("finished", t.Present(s.FinishedAt), "a time within 5 minutes of now", string(s.FinishedAt))
}

func boundsTaken(t *probe.T) {
	m := t.Machine(probe.Shape{})
	taken := func(id, what string, c sandbox.Command, want string) {
		s, err := t.Provider().Execute(t.Context(), m.ID, c)
		got := any(s.Stdout)
		if err != nil {
			got = err
		}
		t.Check(id, err == nil && strings.TrimSpace(string(s.Stdout)) == want, what, got)
	}
	most := probe.Command(`printf %s "$#"`)
	most.Arguments = append(most.Arguments, "name")
	for len(most.Arguments) < sandbox.MaxArguments {
		most.Arguments = append(most.Arguments, "x")
	}
	taken("arguments", "256 arguments", most, fmt.Sprint(sandbox.MaxArguments-3))
	long := probe.Command(`printf %s "$1" | wc -c`)
	long.Arguments = append(long.Arguments, "name", strings.Repeat("x", sandbox.MaxArgumentBytes))
	taken("argument", "an argument of 65,536 bytes", long, fmt.Sprint(sandbox.MaxArgumentBytes))
	wide := probe.Command("printf x")
	wide.OutputLimitBytes = sandbox.MaxOutputBytes
	taken("output-limit", "an output limit of 16 MiB", wide, "x")
	patient := probe.Command("printf x")
	patient.TimeoutSeconds = m.Request.Profile.ResourceLimits.MaxDurationSeconds
	taken("timeout", "a timeout of the profile's max_duration_seconds", patient, "x")
}

func boundsRefused(t *probe.T) {
	m := t.Machine(probe.Shape{})
	ran(t, m)
	refused := func(id, what string, change func(c *sandbox.Command)) {
		c := probe.Command("exit 0")
		change(&c)
		s, err := t.Provider().Execute(t.Context(), m.ID, c)
		got := any(err)
		if err == nil {
			got = ending(s)
		}
		t.Check(id, err != nil, what+" refused", got)
	}
	refused("arguments", "257 arguments", func(c *sandbox.Command) {
		for len(c.Arguments) <= sandbox.MaxArguments {
			c.Arguments = append(c.Arguments, "x")
		}
	})
	refused("argument", "an argument of 65,537 bytes", func(c *sandbox.Command) {
		c.Arguments = append(c.Arguments, "name", strings.Repeat("x", sandbox.MaxArgumentBytes+1))
	})
	refused("nul", "an argument with a NUL", func(c *sandbox.Command) { c.Arguments = append(c.Arguments, "name", "a\x00b") })
	refused("output-limit", "an output limit over 16 MiB", func(c *sandbox.Command) { c.OutputLimitBytes = sandbox.MaxOutputBytes + 1 })
	for _, key := range []string{"", "1st", "a-b", "a.b", "a=b", "a b", "é"} {
		refused("environment-key", fmt.Sprintf("the variable name %q", key), func(c *sandbox.Command) { c.Environment[key] = "x" })
	}
}

func timeout(t *probe.T) {
	m := t.Machine(probe.Shape{})
	written := t.Nonce()
	c := probe.Command("printf " + written + "; sleep 30; printf more")
	c.TimeoutSeconds = 2
	s := m.Run(c)
	t.Check("timed-out", s.TimedOut, "a timeout", ending(s))
	t.Check("partial", !s.TimedOut || string(s.Stdout) == written, written, s.Stdout)
	t.Check("usable", probe.Code(m.Sh("exit 0")) == 0, "a machine that still works", "one that does not")
}

// timeoutEndsAll starts a shell below the shell that writes for ever. It is
// not the child that a provider started: whoever ends that one only leaves it
// writing.
func timeoutEndsAll(t *probe.T) {
	m := t.Machine(probe.Shape{})
	path := sandbox.OutputPath + "/" + t.Nonce()
	c := probe.Command("sh -c 'while true; do printf x >> " + path + "; sleep 0.1; done' | cat")
	c.TimeoutSeconds = 2
	t.Check("timed-out", m.Run(c).TimedOut, "a timeout", "another end")
	size := func() string { return strings.TrimSpace(string(m.Sh("wc -c < " + path).Stdout)) }
	before := size()
	t.Control("wrote", before != "" && before != "0", "the command wrote nothing before its timeout")
	t.Sleep(time.Second)
	after := size()
	t.Check("ended", after == before, "a file that stays at "+before+" bytes", after)
}

func missingProgram(t *probe.T) {
	m := t.Machine(probe.Shape{})
	ran(t, m)
	c := probe.Command("")
	c.Executable, c.Arguments = "/usr/bin/"+t.Nonce(), []string{}
	s, err := t.Provider().Execute(t.Context(), m.ID, c)
	got := any(err)
	if err == nil {
		got = ending(s)
	}
	t.Check("typed", err != nil, "SandboxOperationFailed", got)
}

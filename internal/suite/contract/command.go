package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// commands holds execute to what goes into a command and what comes out of
// it: nothing added, lost, changed or mixed up. The form of a settlement is a
// standing check; bounds and endings are in commandbound.go.
func commands() []probe.Probe {
	const operations = `contract "The operations"`
	needs := []report.Token{report.Process}
	return slices.Concat([]probe.Probe{
		{
			ID: "execute.exit-codes", Suite: report.Contract, Clause: "CF-CX-01", Source: operations,
			Title: "an exit code comes back as it was", Requires: needs, Run: exitCodes,
		},
		{
			ID: "execute.signal", Suite: report.Contract, Clause: "CF-CX-02", Source: `contract "openProcess"`, Level: report.Should,
			Title: "a command that a signal ended has a signal's name and no exit code", Requires: needs, Run: endedBySignal,
		},
		{
			ID: "execute.stdin-whole", Suite: report.Contract, Clause: "CF-CX-03", Source: `contract "openProcess"`,
			Title: "standard input arrives whole, and ends", Requires: needs, Run: stdinWhole,
		},
		{
			ID: "execute.stdin-largest", Suite: report.Contract, Clause: "CF-CX-04", Source: `contract "openProcess"`,
			Title: "megabytes of standard input arrive whole", Requires: needs, Once: true, Run: stdinLargest,
		},
		{
			ID: "execute.bytes-unchanged", Suite: report.Contract, Clause: "CF-CX-05", Source: operations,
			Title: "output is bytes, and every byte comes back as it was", Requires: needs, Run: bytesUnchanged,
		},
		{
			ID: "execute.environment", Suite: report.Contract, Clause: "CF-CX-06", Source: `contract "Bounds"`,
			Title: "every variable of the environment has its value, to the byte", Requires: needs, Run: environment,
		},
		{
			ID: "execute.arguments", Suite: report.Contract, Clause: "CF-CX-07", Source: `contract "Bounds"`,
			Title: "arguments arrive one by one, and no shell reads them", Requires: needs, Run: arguments,
		},
		{
			ID: "execute.directory", Suite: report.Contract, Clause: "CF-CX-08", Source: `contract "openProcess"`,
			Title: "a command begins in its working directory", Requires: needs, Run: workingDirectory,
		},
		{
			ID: "execute.streams-apart", Suite: report.Contract, Clause: "CF-CX-09", Source: operations,
			Title: "standard output and standard error stay apart", Requires: needs, Run: streamsApart,
		},
		{
			ID: "execute.machines-apart", Suite: report.Contract, Clause: "CF-CX-10", Source: operations,
			Title: "machines that work at once get their own results", Requires: needs, Run: machinesApart,
		},
	}, boundedCommands())
}

func exitCodes(t *probe.T) {
	m := t.Machine(probe.Shape{})
	// 124 is how the program timeout reports one, and shells report a signal by
	// 128 and its number: here they are what the command itself ended with.
	for _, code := range []int64{0, 1, 2, 124, 126, 127, 130, 137, 143, 255} {
		s := m.Sh(fmt.Sprintf("exit %d", code))
		t.Check("code", probe.Code(s) == code, fmt.Sprint("exit code ", code), ending(s))
	}
	s := m.Run(feed(letters(t, 16), "cat; exit 3"))
	t.Check("with-input", probe.Code(s) == 3, "exit code 3", ending(s))
}

// ending is how a settlement ended, for a person.
func ending(s sandbox.Settlement) string {
	switch {
	case s.TimedOut:
		return "a timeout"
	case s.Exit.ExitCode != nil:
		return fmt.Sprint("exit code ", *s.Exit.ExitCode)
	}
	return "signal " + s.Exit.Signal
}

func endedBySignal(t *probe.T) {
	m := t.Machine(probe.Shape{})
	for _, name := range []string{"KILL", "TERM"} {
		s := m.Sh("kill -" + name + " $$")
		t.Check("signal", s.Exit.Signal == "SIG"+name && s.Exit.ExitCode == nil, "signal SIG"+name, ending(s))
	}
}

// feed is a command that runs a script with an input.
func feed(input []byte, script string) sandbox.Command {
	c := probe.Command(script)
	c.Stdin = input
	return c
}

// letters are n bytes of plain text that nobody can know: what mangles bytes
// leaves them alone.
func letters(t *probe.T, n int) []byte { return []byte(hex.EncodeToString(t.Bytes(n/2 + 1)))[:n] }

func stdinWhole(t *probe.T) {
	m := t.Machine(probe.Shape{})
	for _, n := range []int{0, 1, 64<<10 + 1} {
		input := letters(t, n)
		s := m.Run(feed(input, "cat"))
		t.Check(fmt.Sprintf("bytes-%d", n), bytes.Equal(s.Stdout, input) && probe.Code(s) == 0, fmt.Sprintf("the %d bytes that went in", n), s.Stdout)
	}
}

func stdinLargest(t *probe.T) {
	input := t.Bytes(int(min(sandbox.MaxFileBytes, t.StreamBytes()/2)))
	s := t.Machine(probe.Shape{}).Run(feed(input, "sha256sum"))
	sum := sha256.Sum256(input)
	want := hex.EncodeToString(sum[:])
	got, _, _ := strings.Cut(string(s.Stdout), " ")
	t.Check("digest", got == want, fmt.Sprintf("the digest %s of %d bytes", want, len(input)), got)
}

func bytesUnchanged(t *probe.T) {
	m := t.Machine(probe.Shape{})
	var all []byte
	for _, b := range []string{"\r\n", "\xff\xfe", "\xc3("} {
		all = append(all, b...)
	}
	for b := range 256 {
		all = append(all, byte(b))
	}
	out := m.Run(feed(all, "cat"))
	t.Check("stdout", bytes.Equal(out.Stdout, all), "all 256 values", out.Stdout)
	errs := m.Run(feed(all, "cat >&2"))
	t.Check("stderr", bytes.Equal(errs.Stderr, all), "all 256 values", errs.Stderr)
}

// awkward are texts that something on the way would read, split or drop.
var awkward = []string{
	"", "two  words", " ends ", `it's`, `say "so"`, "$HOME ${PATH} $$", "`id`", `back\slash \n`, "a=b=c", "*", "~", "-n", "--",
	"|;&<>()", "line\nline\n", "tab\there", "#no", "é λ 漢",
}

func environment(t *probe.T) {
	c := probe.Command("env")
	want := map[string]string{}
	for i, value := range awkward {
		key := fmt.Sprintf("v%d_%s", i, t.Nonce())
		c.Environment[key], want[key] = value, value
	}
	got := "\n" + string(t.Machine(probe.Shape{}).Run(c).Stdout)
	for key, value := range want {
		t.Check("value", strings.Contains(got, "\n"+key+"="+value+"\n"), fmt.Sprintf("a variable with the value %q", value), "another value, or none")
	}
	var more []string
	for line := range strings.Lines(got) {
		if name, _, ok := strings.Cut(line, "="); ok && c.Environment[name] == "" && !strings.HasPrefix(name, "v") {
			more = append(more, name)
		}
	}
	if len(more) > 0 {
		slices.Sort(more)
		t.Observe("commands have variables that nobody gave them: %s", strings.Join(more, " "))
	}
}

func arguments(t *probe.T) {
	given := append([]string{t.Nonce()}, awkward...)
	c := probe.Command(`printf '%s\n' "$#"; printf '[%s]' "$@"`)
	c.Arguments = append(append(c.Arguments, "name"), given...)
	want := fmt.Sprintf("%d\n[%s]", len(given), strings.Join(given, "]["))
	s := t.Machine(probe.Shape{}).Run(c)
	t.Check("one-by-one", string(s.Stdout) == want, fmt.Sprintf("%q", want), fmt.Sprintf("%q", s.Stdout))
}

func workingDirectory(t *probe.T) {
	m := t.Machine(probe.Shape{})
	name, content := t.Nonce(), t.Nonce()
	c := probe.Command("printf " + content + " > " + name)
	c.WorkingDirectory = sandbox.OutputPath
	m.Run(c)
	s := m.Sh("cat " + sandbox.OutputPath + "/" + name)
	t.Check("relative", string(s.Stdout) == content, "a relative path below "+sandbox.OutputPath, s.Stderr)
}

func streamsApart(t *probe.T) {
	m := t.Machine(probe.Shape{})
	out, errs := t.Nonce(), t.Nonce()
	s := m.Sh("printf " + out + "; printf " + errs + " >&2")
	t.Check("stdout", string(s.Stdout) == out, out, s.Stdout)
	t.Check("stderr", string(s.Stderr) == errs, errs, s.Stderr)
}

// machinesApart runs one command in two machines at once, over and over. Only
// what it finds there differs.
func machinesApart(t *probe.T) {
	path := sandbox.OutputPath + "/" + t.Nonce()
	type lane struct {
		m       *probe.Machine
		content string
		got     []string
	}
	lanes := make([]*lane, 2)
	for i := range lanes {
		l := &lane{m: t.Machine(probe.Shape{}), content: t.Nonce()}
		t.Need("write", t.Provider().WriteFile(t.Context(), l.m.ID, sandbox.FileWrite{Path: path, Content: []byte(l.content)}))
		lanes[i] = l
	}
	const rounds = 4
	done := make(chan struct{})
	for _, l := range lanes {
		go func() {
			defer func() { done <- struct{}{} }()
			for range rounds {
				s, err := t.Provider().Execute(t.Context(), l.m.ID, probe.Command("cat "+path))
				if err != nil {
					l.got = append(l.got, err.Error())
					return
				}
				l.got = append(l.got, string(s.Stdout))
			}
		}()
	}
	for range lanes {
		<-done // every call is bounded
	}
	for _, l := range lanes {
		for _, got := range l.got {
			t.Check("own", got == l.content, "its own file's content "+l.content, got)
		}
	}
}

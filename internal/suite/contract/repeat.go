package contract

import (
	"fmt"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// repeats ask the same again, and several at once: what was right the first
// time and alone has to be right then too.
func repeats() []probe.Probe {
	row := func(id, clause, title string, run func(*probe.T)) probe.Probe {
		return probe.Probe{ID: id, Suite: report.Contract, Clause: clause, Title: title, Source: `contract "The operations"`, Level: report.Must, Run: run}
	}
	secret := row("repeat.no-secret", "CF-NC-12", "no error repeats what a caller put into the environment", secretInError)
	secret.Level = report.Should // the documents say who may hold a token, and nothing of errors
	return []probe.Probe{
		row("repeat.same-command", "CF-NC-10", "the same command twice happens twice and answers each time", repeatedCommand),
		row("repeat.at-once", "CF-NC-11", "commands in several instances at once keep their answers apart", crossedAnswers),
		secret,
	}
}

func repeatedCommand(t *probe.T) {
	m := t.Machine(probe.Shape{})
	file, line := sandbox.OutputPath+"/"+t.Nonce(), t.Nonce()+"\n"
	c := probe.Command("cat >> " + file + " && cat " + file)
	c.Stdin = []byte(line)
	for n := range 3 {
		got := m.Run(c)
		want := strings.Repeat(line, n+1)
		t.Check("repeated", probe.Code(got) == 0 && string(got.Stdout) == want, fmt.Sprintf("%d lines %q", n+1, line), fmt.Sprintf("%q", got.Stdout))
	}
}

func crossedAnswers(t *probe.T) {
	const machines, rounds = 3, 8
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for range machines {
		m := t.Machine(probe.Shape{})
		var marks []string
		for range rounds {
			marks = append(marks, t.Nonce())
		}
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-begin
			for _, mark := range marks {
				got, err := t.Provider().Execute(t.Context(), m.ID, probe.Command("echo "+mark+" | cat"))
				t.Check("own-answer", err == nil && string(got.Stdout) == mark+"\n", mark, fmt.Sprintf("%q, %v", got.Stdout, err))
			}
		})
	}
	ready.Wait()
	close(begin)
	done.Wait()
}

func secretInError(t *probe.T) {
	m := t.Machine(probe.Shape{})
	secret := t.Nonce()
	c := probe.Command("exit 0")
	c.Executable = "/" + t.Nonce() // there is none, so that the command fails to start
	c.Environment["API_TOKEN"] = secret
	_, err := t.Provider().Execute(t.Context(), m.ID, c)
	said := fmt.Sprint(err)
	t.Check("hidden", !strings.Contains(said, secret), "an error without the value of API_TOKEN", "its value in the error")
}

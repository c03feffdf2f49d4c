package native

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// Every command that cannot be started is the caller's mistake, told as such
// at once; every other one is carried out to the letter. After each the machine
// still works.
func TestExecute_EveryStrangeCommandIsRefusedOrCarriedOut(t *testing.T) {
	long := func(n, size int) []string {
		args := make([]string, n)
		for i := range args {
			args[i] = strings.Repeat("a", size)
		}
		return args
	}
	wide := map[string]string{}
	for i := range 1024 {
		wide["V"+strconv.Itoa(i)] = strings.Repeat("x", 100)
	}
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		mustExit(t, sh(t, p, id, `cd /tmp && mkdir dir closed && chmod 0 closed && mkfifo fifo && ln -s loop loop && ln -s nowhere dangling &&
			echo data > plain && printf '#!/no/such\n' > script && printf '#!/tmp/script\n' > nested && printf '\177ELF junk' > junk && : > empty &&
			printf '#!/bin/sh\necho $#' > count && chmod 755 script nested junk empty count`), 0)
		for _, c := range []struct {
			name   string
			change func(*sandbox.Command)
			stdout string // "" is a refusal
		}{
			{"a directory", func(c *sandbox.Command) { c.Executable = "/tmp/dir" }, ""},
			{"a FIFO", func(c *sandbox.Command) { c.Executable = "/tmp/fifo" }, ""},
			{"not executable", func(c *sandbox.Command) { c.Executable = "/tmp/plain" }, ""},
			{"a script whose interpreter is missing", func(c *sandbox.Command) { c.Executable = "/tmp/script" }, ""},
			{"a script whose interpreter is such a script", func(c *sandbox.Command) { c.Executable = "/tmp/nested" }, ""},
			{"an executable of another kind", func(c *sandbox.Command) { c.Executable = "/tmp/junk" }, ""},
			{"an empty file", func(c *sandbox.Command) { c.Executable = "/tmp/empty" }, ""},
			{"a loop of links", func(c *sandbox.Command) { c.Executable = "/tmp/loop" }, ""},
			{"a dangling link", func(c *sandbox.Command) { c.Executable = "/tmp/dangling" }, ""},
			{"below a file", func(c *sandbox.Command) { c.Executable = "/tmp/plain/x" }, ""},
			{"a device", func(c *sandbox.Command) { c.Executable = "/dev/null" }, ""},
			{"a name too long", func(c *sandbox.Command) { c.Executable = "/tmp/" + strings.Repeat("n", 300) }, ""},
			{"a name that is in no directory of PATH", func(c *sandbox.Command) { c.Executable = "no-such" }, ""},
			{"a directory that is missing", func(c *sandbox.Command) { c.WorkingDirectory = "/tmp/absent" }, ""},
			{"a directory that is a file", func(c *sandbox.Command) { c.WorkingDirectory = "/tmp/plain" }, ""},
			{"a directory that may not be entered", func(c *sandbox.Command) { c.WorkingDirectory = "/tmp/closed" }, ""},
			{"a directory that is a loop", func(c *sandbox.Command) { c.WorkingDirectory = "/tmp/loop" }, ""},
			{"more arguments than the kernel takes", func(c *sandbox.Command) { c.Executable, c.Arguments = "/tmp/count", long(256, 64<<10) }, ""},
			{"one argument that is too long", func(c *sandbox.Command) { c.Executable, c.Arguments = "/tmp/count", long(1, 200<<10) }, ""},
			{"many arguments", func(c *sandbox.Command) { c.Executable, c.Arguments = "/tmp/count", long(256, 4<<10) }, "256\n"},
			{"empty arguments", func(c *sandbox.Command) { c.Executable, c.Arguments = "/tmp/count", []string{"", "", ""} }, "3\n"},
			{"1,024 variables", func(c *sandbox.Command) {
				c.Arguments, c.Environment = []string{"-c", "env | grep -c '^V[0-9]*=x*$'"}, wide
			}, "1024\n"},
			{"an argument of every other byte", func(c *sandbox.Command) {
				c.Arguments = []string{"-c", `printf %s "$1"`, "sh", "line\nbreak\t\"'$(id)\x01\x7f"}
			}, "line\nbreak\t\"'$(id)\x01\x7f"},
		} {
			t.Run(c.name, func(t *testing.T) {
				command := shell("true")
				c.change(&command)
				begin := time.Now()
				s, err := p.Execute(t.Context(), id, command)
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("took %s", took)
				}
				if c.stdout == "" {
					refused := errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonStartFailed}) ||
						errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonNotFound})
					// The contract itself may refuse it before any machine is asked.
					if !refused && command.Validate() == nil {
						t.Errorf("%s %.300v", showExit(s), err)
					}
				} else if err != nil || string(s.Stdout) != c.stdout {
					t.Errorf("%q %q %.300v", s.Stdout, s.Stderr, err)
				}
				mustExit(t, sh(t, p, id, "true"), 0)
			})
		}
		t.Run("bytes that are no text", func(t *testing.T) {
			c := shell("")
			c.Arguments = []string{"-c", `printf %s "$1" | wc -c`, "sh", "\xff\xfe"}
			s, err := p.Execute(t.Context(), id, c)
			// Either to the letter or not at all.
			if err == nil && strings.TrimSpace(string(s.Stdout)) != "2" {
				t.Errorf("%q", s.Stdout)
			} else if err != nil && !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed}) {
				t.Error(err)
			}
		})
	})
}

// The value of a variable is said by no error, whatever is wrong with it.
func TestExecute_NoErrorSaysAnEnvironmentValue(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		in, err := p.find(sandbox.OpExecute, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, env := range []string{"SECRET=hunter2\xff", "SECRET=hunter2\x00", "SECRET=hunter2" + strings.Repeat("x", 3<<20), "PATH=/hunter2"} {
			// Past the contract's own checks, at the driver.
			proc, err := in.machine.Exec(t.Context(), machine.Command{Argv: []string{"no-such"}, Env: []string{env}, Dir: "/"})
			if err == nil {
				proc.KillTree(t.Context())
				t.Errorf("%.20q was taken", env)
			} else if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%.20q: %.200v", env, err)
			}
		}
		mustExit(t, sh(t, p, id, "true"), 0)
	})
}

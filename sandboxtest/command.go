package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// commandFaults change what goes into a command or what comes out of it.
func commandFaults() []Saboteur {
	const form = "execute.settlement/form"
	all := []Saboteur{
		{ID: "X1", Fault: "an exit code and a signal", Kills: form, Suite: report.Contract, Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			had := s.Exit.ExitCode != nil
			s.Exit.Signal = "SIGTERM"
			return had
		})},
		{ID: "X2", Fault: "neither an exit code nor a signal", Kills: form, Suite: report.Contract, Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			s.Exit = sandbox.Exit{}
			return !s.TimedOut
		})},
		{ID: "X3", Fault: "exit code 256", Kills: form, Suite: report.Contract, Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			s.Exit = sandbox.Exited(256)
			return true
		})},
		{ID: "X4", Fault: "finished before it started", Kills: form, Suite: report.Contract, Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			at, err := s.StartedAt.Time()
			s.FinishedAt = sandbox.At(at.Add(-time.Second))
			return err == nil
		})},
		{ID: "X5", Fault: "a timestamp in another form", Kills: form, Suite: report.Contract, Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			s.StartedAt = sandbox.Timestamp(strings.TrimSuffix(string(s.StartedAt), "Z") + "+00:00")
			return true
		})},
		{ID: "X6", Fault: "one byte more than the limit", Kills: form, Suite: report.Contract, Wrap: asking(func(c *sandbox.Command) { c.OutputLimitBytes++ },
			func(c *sandbox.Command, s *sandbox.Settlement) bool { return int64(len(s.Stdout)) > c.OutputLimitBytes })},
		{ID: "X7", Fault: "output is cut at its limit without a word", Kills: "execute.output-limit/stdout-over",
			Wrap: asking(func(c *sandbox.Command) { c.OutputLimitBytes = sandbox.MaxOutputBytes }, func(c *sandbox.Command, s *sandbox.Settlement) bool {
				over := int64(max(len(s.Stdout), len(s.Stderr))) > c.OutputLimitBytes
				s.Stdout, s.Stderr = s.Stdout[:min(int64(len(s.Stdout)), c.OutputLimitBytes)], s.Stderr[:min(int64(len(s.Stderr)), c.OutputLimitBytes)]
				return over
			})},
		{ID: "X8", Fault: "stdout and stderr swapped", Kills: "execute.streams-apart/stdout", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			s.Stdout, s.Stderr = s.Stderr, s.Stdout
			return !bytes.Equal(s.Stdout, s.Stderr)
		})},
		{ID: "X9", Fault: "standard input dropped", Kills: "execute.stdin-whole/bytes-1", Wrap: changing(func(c *sandbox.Command) bool {
			had := len(c.Stdin) > 0
			c.Stdin = nil
			return had
		})},
		{ID: "X10", Fault: "the environment dropped", Kills: "execute.environment/value", Wrap: changing(func(c *sandbox.Command) bool {
			had := len(c.Environment) > 0
			c.Environment = map[string]string{}
			return had
		})},
		{ID: "X11", Fault: "arguments joined and read by a shell", Kills: "execute.arguments/one-by-one", Wrap: changing(func(c *sandbox.Command) bool {
			c.Executable, c.Arguments = "/bin/sh", []string{"-c", strings.Join(append([]string{c.Executable}, c.Arguments...), " ")}
			return true
		})},
		{ID: "X12", Fault: "the timeout ignored", Kills: "execute.timeout/timed-out", Wrap: changing(func(c *sandbox.Command) bool {
			short := c.TimeoutSeconds < 60
			c.TimeoutSeconds = max(c.TimeoutSeconds, 60)
			return short
		})},
		{ID: "X13", Fault: "a timeout leaves grandchildren running", Kills: "execute.timeout-ends-all/ended", Wrap: leavingGrandchildren},
		{ID: "X14", Fault: "output encoded anew as UTF-8", Kills: "execute.bytes-unchanged/stdout", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			valid := bytes.ToValidUTF8(s.Stdout, []byte("\uFFFD"))
			changed := !bytes.Equal(valid, s.Stdout)
			s.Stdout = valid
			return changed
		})},
		{ID: "X15", Fault: "refuses 256 arguments", Kills: "execute.bounds-taken/arguments", Wrap: rejecting(func(c *sandbox.Command) bool { return len(c.Arguments) >= sandbox.MaxArguments })},
		{ID: "X15b", Fault: "refuses an output limit of exactly 16 MiB", Kills: "execute.bounds-taken/output-limit",
			Wrap: rejecting(func(c *sandbox.Command) bool { return c.OutputLimitBytes >= sandbox.MaxOutputBytes })},
		{ID: "X15c", Fault: "refuses an argument of exactly 65,536 bytes", Kills: "execute.bounds-taken/argument",
			Wrap: rejecting(func(c *sandbox.Command) bool {
				return len(c.Arguments) > 0 && len(c.Arguments[len(c.Arguments)-1]) >= sandbox.MaxArgumentBytes
			})},

		{ID: "X17", Fault: "an exit code above 127 is 127", Kills: "execute.exit-codes/code", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			if s.Exit.ExitCode == nil || *s.Exit.ExitCode < 128 {
				return false
			}
			s.Exit = sandbox.Exited(127)
			return true
		})},
		{ID: "X18", Fault: "a signal is an exit code above 128", Kills: "execute.signal/signal", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			if s.Exit.Signal == "" {
				return false
			}
			s.Exit = sandbox.Exited(map[string]int64{"SIGTERM": 143}[s.Exit.Signal])
			if *s.Exit.ExitCode == 0 {
				s.Exit = sandbox.Exited(137)
			}
			return true
		})},
		{ID: "X19", Fault: "an empty standard input gets a newline", Kills: "execute.stdin-whole/bytes-0", Wrap: changing(func(c *sandbox.Command) bool {
			empty := len(c.Stdin) == 0
			if empty {
				c.Stdin = []byte("\n")
			}
			return empty
		})},
		{ID: "X20", Fault: "standard input ends at 1 MiB", Kills: "execute.stdin-largest/digest", Wrap: changing(func(c *sandbox.Command) bool {
			long := len(c.Stdin) > 1<<20
			c.Stdin = c.Stdin[:min(len(c.Stdin), 1<<20)]
			return long
		})},
		{ID: "X21", Fault: "variables without a value are left out", Kills: "execute.environment/value", Wrap: changing(func(c *sandbox.Command) bool {
			all := len(c.Environment)
			c.Environment = maps.Clone(c.Environment)
			maps.DeleteFunc(c.Environment, func(_, value string) bool { return value == "" })
			return len(c.Environment) < all
		})},
		{ID: "X22", Fault: "empty arguments are left out", Kills: "execute.arguments/one-by-one", Wrap: changing(func(c *sandbox.Command) bool {
			var kept []string
			for _, a := range c.Arguments {
				if a != "" {
					kept = append(kept, a)
				}
			}
			fewer := len(kept) < len(c.Arguments)
			c.Arguments = kept
			return fewer
		})},
		{ID: "X23", Fault: "the working directory ignored", Kills: "execute.directory/relative", Wrap: changing(func(c *sandbox.Command) bool {
			other := c.WorkingDirectory != "/tmp"
			c.WorkingDirectory = "/tmp"
			return other
		})},
		{ID: "X24", Fault: "stdout comes on stderr too", Kills: "execute.streams-apart/stderr", Wrap: settling(func(c *sandbox.Command, s *sandbox.Settlement) bool {
			if len(s.Stdout) == 0 || int64(len(s.Stdout)+len(s.Stderr)) > c.OutputLimitBytes {
				return false
			}
			s.Stderr = append(bytes.Clone(s.Stderr), s.Stdout...)
			return true
		})},
		{ID: "X25", Fault: "a result of one machine is another's", Kills: "execute.machines-apart/own", Wrap: mixingMachines},
		{ID: "X26", Fault: "output of exactly the limit is too much", Kills: "execute.output-limit/stdout-within", Wrap: tightening},
		{ID: "X27", Fault: "a timeout loses what was written", Kills: "execute.timeout/partial", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			if !s.TimedOut {
				return false
			}
			s.Stdout, s.Stderr = nil, nil
			return true
		})},
		{ID: "X28", Fault: "a missing program is exit code 127", Kills: "execute.missing-program/typed", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
				s, err := p.Execute(ctx, id, c)
				if errors.Is(err, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonNotFound, nil)) {
					env.Fire()
					s, err = exitedAt(env.Now()), nil
					s.Exit = sandbox.Exited(127)
				}
				return s, err
			}}
		}},
	}
	all = append(all, outputFaults()...)
	for i, check := range []struct {
		id, fault string
		over      func(c *sandbox.Command) bool
	}{
		{"arguments", "runs 257 arguments", func(c *sandbox.Command) bool { return len(c.Arguments) > sandbox.MaxArguments }},
		{"argument", "runs an argument of 65,537 bytes", func(c *sandbox.Command) bool {
			return slices.ContainsFunc(c.Arguments, func(a string) bool { return len(a) > sandbox.MaxArgumentBytes })
		}},
		{"nul", "runs what stands before a NUL", func(c *sandbox.Command) bool {
			return slices.ContainsFunc(c.Arguments, func(a string) bool { return strings.Contains(a, "\x00") })
		}},
		{"output-limit", "takes an output limit over 16 MiB", func(c *sandbox.Command) bool { return c.OutputLimitBytes > sandbox.MaxOutputBytes }},
		{"environment-key", "takes any name of a variable", func(c *sandbox.Command) bool {
			for key := range c.Environment {
				if sandbox.CheckEnvironment(key, "") != nil {
					return true
				}
			}
			return false
		}},
	} {
		all = append(all, Saboteur{ID: "X29" + string(rune('a'+i)), Fault: check.fault, Kills: "execute.bounds-refused/" + check.id, Wrap: accepting(check.over)})
	}
	return all
}

// accepting answers commands that are over a bound, and does not run them.
func accepting(over func(c *sandbox.Command) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			s, err := p.Execute(ctx, id, c)
			if err != nil && over(&c) {
				env.Fire()
				return exitedAt(env.Now()), nil
			}
			return s, err
		}}
	}
}

// settling changes what came back. change returns false where it changed
// nothing.
func settling(change func(c *sandbox.Command, s *sandbox.Settlement) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return asking(func(*sandbox.Command) {}, change)
}

// asking changes a command quietly and then what came back of it; change is
// given the command as it was.
func asking(ask func(c *sandbox.Command), change func(c *sandbox.Command, s *sandbox.Settlement) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			other := c
			ask(&other)
			s, err := p.Execute(ctx, id, other)
			if err == nil && change(&c, &s) {
				env.Fire()
			}
			return s, err
		}}
	}
}

// changing changes a command. change returns false where it changed nothing.
func changing(change func(c *sandbox.Command) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			if change(&c) {
				env.Fire()
			}
			return p.Execute(ctx, id, c)
		}}
	}
}

// rejecting refuses commands that the bounds admit.
func rejecting(which func(c *sandbox.Command) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			if which(&c) {
				env.Fire()
				return sandbox.Settlement{}, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonInvalidRequest, nil)
			}
			return p.Execute(ctx, id, c)
		}}
	}
}

// tightening counts the limit itself as over the limit.
func tightening(p sandbox.Provider, env *Env) sandbox.Provider {
	return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		s, err := p.Execute(ctx, id, c)
		for _, stream := range []struct {
			name sandbox.Stream
			data []byte
		}{{sandbox.StreamStdout, s.Stdout}, {sandbox.StreamStderr, s.Stderr}} {
			if err == nil && int64(len(stream.data)) == c.OutputLimitBytes {
				env.Fire()
				return sandbox.Settlement{}, sandbox.OverLimit(stream.name, c.OutputLimitBytes)
			}
		}
		return s, err
	}}
}

// leavingGrandchildren lets a command that timed out go on for a second
// whenever its instance is used again.
func leavingGrandchildren(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	left := map[sandbox.InstanceID]sandbox.Command{}
	return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		mu.Lock()
		running, lives := left[id]
		mu.Unlock()
		if lives {
			env.Fire()
			running.TimeoutSeconds = 1
			_, _ = p.Execute(ctx, id, running)
		}
		s, err := p.Execute(ctx, id, c)
		if err == nil && s.TimedOut {
			mu.Lock()
			left[id] = c
			mu.Unlock()
		}
		return s, err
	}}
}

// mixingMachines has one place for the result of a command, whichever machine
// it ran in, for as long as that machine is there.
func mixingMachines(p sandbox.Provider, env *Env) sandbox.Provider {
	type result struct {
		of sandbox.InstanceID
		s  sandbox.Settlement
	}
	var mu sync.Mutex
	last := map[string]result{}
	return Override{
		Provider: p,
		ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			mu.Lock()
			defer mu.Unlock()
			key := fmt.Sprintf("%q %q %q", c.Executable, c.Arguments, c.Stdin)
			s, err := p.Execute(ctx, id, c)
			if err != nil {
				return s, err
			}
			if other, there := last[key]; there && other.of != id {
				env.Fire()
				return other.s, nil
			}
			last[key] = result{id, s}
			return s, nil
		},
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			mu.Lock()
			maps.DeleteFunc(last, func(_ string, r result) bool { return r.of == id })
			mu.Unlock()
			return p.Destroy(ctx, id)
		},
	}
}

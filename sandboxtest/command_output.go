package sandboxtest

import (
	"context"

	"github.com/checkfu/checkfu/sandbox"
)

// outputFaults are those of a provider that runs commands through programs of
// its own: what such a program says of itself is taken for the command's word.
func outputFaults() []Saboteur {
	ended := func(s *sandbox.Settlement, code int64, exit sandbox.Exit) bool {
		if s.Exit.ExitCode == nil || *s.Exit.ExitCode != code {
			return false
		}
		s.Exit = exit
		return true
	}
	return []Saboteur{
		{ID: "X32", Fault: "exit code 124 is a timeout", Kills: "execute.exit-codes/code", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			s.TimedOut = s.TimedOut || ended(s, 124, sandbox.Exit{})
			return s.TimedOut
		})},
		{ID: "X33", Fault: "exit code 137 is SIGKILL", Kills: "execute.exit-codes/code", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			return ended(s, 137, sandbox.Signaled("SIGKILL"))
		})},
		{ID: "X34", Fault: "with standard input the exit code is that of who fed it", Kills: "execute.exit-codes/with-input", Wrap: settling(func(c *sandbox.Command, s *sandbox.Settlement) bool {
			return len(c.Stdin) > 0 && ended(s, 3, sandbox.Exited(0))
		})},
		{ID: "X35", Fault: "standard output ends at 1 MiB", Kills: "execute.large-output/stdout", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			long := len(s.Stdout) > 1<<20
			s.Stdout = s.Stdout[:min(len(s.Stdout), 1<<20)]
			return long
		})},
		{ID: "X36", Fault: "standard error ends at 64 KiB", Kills: "execute.large-output/stderr", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			long := len(s.Stderr) > 64<<10
			s.Stderr = s.Stderr[:min(len(s.Stderr), 64<<10)]
			return long
		})},
		{ID: "X37", Fault: "both streams share one limit", Kills: "execute.output-limit/each", Wrap: sharingLimit},
	}
}

func sharingLimit(p sandbox.Provider, env *Env) sandbox.Provider {
	return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		s, err := p.Execute(ctx, id, c)
		if err == nil && int64(len(s.Stdout)+len(s.Stderr)) > c.OutputLimitBytes {
			env.Fire()
			return sandbox.Settlement{}, sandbox.OverLimit(sandbox.StreamStdout, c.OutputLimitBytes)
		}
		return s, err
	}}
}

package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// cheats behave for the suite and not for others, or answer in words that are
// nobody's.
func cheats() []Saboteur {
	return slices.Concat([]Saboteur{
		{ID: "V1", Fault: "an error outside the closed set", Kills: "errors.closed/kind", Wrap: refusedOtherwise(func(e *sandbox.Error) error {
			return errors.New("the machine is past its deadline")
		})},
		{ID: "V2", Fault: "a requirement outside the closed set", Kills: "errors.closed/fits", Wrap: refusedOtherwise(func(e *sandbox.Error) error {
			return sandbox.Unavailable(e.Operation, "lifetime", e.Expected, e.Actual)
		})},
		{ID: "V2b", Fault: "a panic instead of a refusal", Kills: "errors.no-panic", Wrap: refusedOtherwise(func(e *sandbox.Error) error { panic(e) })},
		{ID: "V8", Fault: "the stored reply of an earlier command", Kills: "repeat.same-command", Wrap: replying(false)},
		{ID: "V9", Fault: "answers out of a key, and has no machine", Kills: "stage-seal-execute", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider { return newAnswerKey(p, env) }},
		{ID: "V10", Fault: "works for Sessions that look like a suite's only", Kills: "stage-seal-execute", Wrap: selective(func(q sandbox.ProvisionRequest) bool {
			return slices.ContainsFunc([]string{"conformance", "probe", "suite", "test", "canary", "example"}, func(word string) bool {
				return strings.Contains(q.SessionID+q.WorkspaceID+q.RunID, word)
			})
		})},
		{ID: "V10b", Fault: "works for the first Session only", Kills: "checkpoint-clone", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			var mu sync.Mutex
			first := ""
			return selective(func(q sandbox.ProvisionRequest) bool {
				mu.Lock()
				defer mu.Unlock()
				if first == "" {
					first = q.SessionID
				}
				return q.SessionID == first
			})(p, env)
		}},
		{ID: "V11", Fault: "hides a token that its envelope gives", Kills: "checkpoint-clone", Withhold: []report.Token{report.SnapshotToken}, Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) {
				env.Fire()
				return p.Capabilities(ctx)
			}}
		}},
		{ID: "V12", Fault: "right once, and idle when it is asked again", Kills: "repeat.same-command", Wrap: replying(true)},
		{ID: "V13", Fault: "right one at a time, wrong when two are at it", Kills: "repeat.at-once", Wrap: crossing},
		{ID: "V14", Fault: "an environment value echoed in an error", Kills: "repeat.no-secret", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
				s, err := p.Execute(ctx, id, c)
				if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.OperationFailed && len(c.Environment) > 0 {
					env.Fire()
					return s, sandbox.Failed(e.Operation, e.Reason, fmt.Errorf("cannot start with %v: %w", c.Environment, e))
				}
				return s, err
			}}
		}},
	}, wireCheats(), caseFaults())
}

// refusedOtherwise says its refusals of expired instances in another way.
func refusedOtherwise(say func(e *sandbox.Error) error) func(p sandbox.Provider, env *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			s, err := p.Execute(ctx, id, c)
			if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.LifecycleConflict && e.Actual == sandbox.ActualExpired {
				env.Fire()
				return s, say(e)
			}
			return s, err
		}}
	}
}

// replying stores the reply to each command, which is the fault, and gives it
// to whoever sends the same command to the same instance again. Where idle is
// set the command is then not run either.
func replying(idle bool) func(p sandbox.Provider, env *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var mu sync.Mutex
		stored := map[string]sandbox.Settlement{}
		return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			key := fmt.Sprintf("%q", []any{id, c.Executable, c.Arguments, c.WorkingDirectory, c.Environment, c.Stdin, c.TimeoutSeconds, c.OutputLimitBytes})
			mu.Lock()
			first, ok := stored[key]
			mu.Unlock()
			if ok && idle {
				return first, nil
			}
			s, err := p.Execute(ctx, id, c)
			switch {
			case err != nil:
			case ok:
				s = first
			default:
				env.Fire()
				mu.Lock()
				stored[key] = s
				mu.Unlock()
			}
			return s, err
		}}
	}
}

// selective works for those whom it favours. Everybody else's commands say
// nothing.
func selective(favours func(q sandbox.ProvisionRequest) bool) func(p sandbox.Provider, env *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		o, asks := remembering(p)
		o.ExecuteFunc = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			s, err := p.Execute(ctx, id, c)
			if q, ours := asks.get(id); err == nil && ours && !favours(q) {
				env.Fire()
				s.Stdout = nil
			}
			return s, err
		}
		return o
	}
}

// crossing has one place for the output of all commands: whoever comes while
// another is there gets what was left in it.
func crossing(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	there := 0
	var left []byte
	return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		mu.Lock()
		there++
		shared := there > 1
		mu.Unlock()
		env.Fire() // the one place is the fault
		s, err := p.Execute(ctx, id, c)
		mu.Lock()
		defer mu.Unlock()
		shared = shared || there > 1
		there--
		if err == nil {
			s.Stdout, left = either(shared, left, s.Stdout), s.Stdout
		}
		return s, err
	}}
}

func either(other bool, theirs, own []byte) []byte {
	if other {
		return slices.Clone(theirs)
	}
	return own
}

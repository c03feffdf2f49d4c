package sandboxtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// opening is wrong in when it opens a process. open has the state of one
// provider.
func opening(id, fault, kills string, open func(p sandbox.Provider, inner sandbox.ProcessOpener, env *Env, places *places) OpenProcessFunc) Saboteur {
	return Saboteur{ID: id, Fault: fault, Kills: kills, Suite: report.Live, Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
		taken := &places{of: map[sandbox.InstanceID]sandbox.Process{}}
		return opener(p, func(inner sandbox.ProcessOpener) OpenProcessFunc { return open(p, inner, env, taken) })
	}}
}

// places is the last process of each instance.
type places struct {
	mu sync.Mutex
	of map[sandbox.InstanceID]sandbox.Process
}

func (p *places) get(id sandbox.InstanceID) sandbox.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[id]
}

func (p *places) put(id sandbox.InstanceID, held sandbox.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[id] = held
}

func alreadyOpen() error {
	return sandbox.Conflict(sandbox.OpOpenProcess, "no live process", sandbox.ActualProcessAlreadyOpen)
}

// openFaults are wrong in the request, or in when a process may be opened.
func openFaults() []Saboteur {
	return []Saboteur{
		opening("P8", "a second process is opened beside the first", "process.one-live/refused", secondProcess),
		opening("P54", "the place of a process is never free again", "process.one-after-another/open", func(_ sandbox.Provider, inner sandbox.ProcessOpener, env *Env, taken *places) OpenProcessFunc {
			return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
				if before := taken.get(id); before != nil {
					if (&altered{Process: before}).ended() {
						env.Fire()
					}
					return nil, alreadyOpen()
				}
				opened, err := inner.OpenProcess(ctx, id, processID, q)
				if err == nil {
					taken.put(id, opened)
				}
				return opened, err
			}
		}),
		opening("P55", "a provisioning instance is sealed to open a process in it", "process.state/provisioning", func(p sandbox.Provider, inner sandbox.ProcessOpener, env *Env, _ *places) OpenProcessFunc {
			return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
				opened, err := inner.OpenProcess(ctx, id, processID, q)
				if errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: string(sandbox.StateProvisioning)}) {
					env.Fire()
					if _, err := p.Activate(ctx, id); err != nil {
						return nil, err
					}
					return inner.OpenProcess(ctx, id, processID, q)
				}
				return opened, err
			}
		}),
		opening("P56", "a program that is missing is a process that ends with 127", "process.missing-program/typed", func(_ sandbox.Provider, inner sandbox.ProcessOpener, env *Env, _ *places) OpenProcessFunc {
			return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
				opened, err := inner.OpenProcess(ctx, id, processID, q)
				if errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonNotFound}) {
					env.Fire()
					q.Executable, q.Arguments = "sh", []string{"-c", "exit 127"}
					return inner.OpenProcess(ctx, id, processID, q)
				}
				return opened, err
			}
		}),
		opening("P57", "an open that failed keeps the place", "process.missing-program/no-place", func(_ sandbox.Provider, inner sandbox.ProcessOpener, env *Env, taken *places) OpenProcessFunc {
			return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
				if taken.get(id) != nil {
					env.Fire()
					return nil, alreadyOpen()
				}
				opened, err := inner.OpenProcess(ctx, id, processID, q)
				if errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed}) {
					taken.put(id, &altered{})
				}
				return opened, err
			}
		}),
		requested("P58", "empty arguments are left out", "process.arguments/exact", func(q *sandbox.ProcessRequest) bool {
			before := len(q.Arguments)
			q.Arguments = slices.DeleteFunc(q.Arguments, func(s string) bool { return s == "" })
			return len(q.Arguments) != before
		}),
		opening("P59", "no more than 128 arguments are taken", "process.argument-limits", func(_ sandbox.Provider, inner sandbox.ProcessOpener, env *Env, _ *places) OpenProcessFunc {
			return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
				if len(q.Arguments) > 128 {
					env.Fire()
					return nil, sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonInvalidRequest, nil)
				}
				return inner.OpenProcess(ctx, id, processID, q)
			}
		}),
		requested("P60", "values of the environment are trimmed", "process.environment/exact", func(q *sandbox.ProcessRequest) bool {
			changed, trimmed := false, map[string]string{}
			for name, value := range q.Environment {
				trimmed[name] = strings.TrimSpace(value)
				changed = changed || trimmed[name] != value
			}
			q.Environment = trimmed
			return changed
		}),
		requested("P63", "a live process of a none machine reaches the network", "process.network/denied", func(q *sandbox.ProcessRequest) bool {
			reached := false
			for i, a := range q.Arguments {
				if strings.HasPrefix(a, "connect ") { // the oracle's program; true is what an open network makes of it
					q.Arguments[i], reached = "true", true
				}
			}
			return reached
		}),
		requested("P61", "the working directory is ignored", "process.working-directory/directory", func(q *sandbox.ProcessRequest) bool {
			changed := q.WorkingDirectory != "/"
			q.WorkingDirectory = "/"
			return changed
		}),
	}
}

// secondProcess has room for one: it hands the first out again, under the new
// name.
func secondProcess(_ sandbox.Provider, inner sandbox.ProcessOpener, env *Env, taken *places) OpenProcessFunc {
	return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
		opened, err := inner.OpenProcess(ctx, id, processID, q)
		if first := taken.get(id); first != nil && errors.Is(err, &sandbox.Error{Actual: sandbox.ActualProcessAlreadyOpen}) {
			env.Fire()
			evidence := first.Evidence()
			evidence.ProcessID = processID
			return &altered{Process: first, evidence: &evidence}, nil
		}
		if err == nil {
			taken.put(id, opened)
		}
		return opened, err
	}
}

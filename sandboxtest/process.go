package sandboxtest

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// processFaults are wrong in a live process.
func processFaults() []Saboteur {
	return slices.Concat(evidenceFaults(), streamFaults(), exitFaults(), openFaults())
}

// altered is a live process of which single members are replaced. nil leaves a
// member as it is.
type altered struct {
	sandbox.Process
	request  sandbox.ProcessRequest
	input    io.WriteCloser
	output   io.Reader
	errors   io.Reader
	wait     func(ctx context.Context) (sandbox.Exit, error)
	signal   func(ctx context.Context, s sandbox.ControlSignal) error
	destroy  func(ctx context.Context) error
	evidence *sandbox.Evidence
}

func (a *altered) Input() io.WriteCloser {
	if a.input != nil {
		return a.input
	}
	return a.Process.Input()
}

func (a *altered) Output() io.Reader {
	if a.output != nil {
		return a.output
	}
	return a.Process.Output()
}

func (a *altered) Error() io.Reader {
	if a.errors != nil {
		return a.errors
	}
	return a.Process.Error()
}

func (a *altered) Wait(ctx context.Context) (sandbox.Exit, error) {
	if a.wait != nil {
		return a.wait(ctx)
	}
	return a.Process.Wait(ctx)
}

func (a *altered) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	if a.signal != nil {
		return a.signal(ctx, s)
	}
	return a.Process.Signal(ctx, s)
}

func (a *altered) Destroy(ctx context.Context) error {
	if a.destroy != nil {
		return a.destroy(ctx)
	}
	return a.Process.Destroy(ctx)
}

func (a *altered) Evidence() sandbox.Evidence {
	if a.evidence != nil {
		return *a.evidence
	}
	return a.Process.Evidence()
}

// says reports whether the program's arguments contain a text.
func (a *altered) says(text string) bool {
	return strings.Contains(strings.Join(a.request.Arguments, " "), text)
}

// ended reports whether the process has ended.
func (a *altered) ended() bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := a.Process.Wait(ctx)
	return err == nil
}

// opener is a provider whose openProcess is another one.
func opener(p sandbox.Provider, open func(inner sandbox.ProcessOpener) OpenProcessFunc) Override {
	return Override{Provider: p, Members: func(o *sandbox.Optional) {
		if inner := o.OpenProcess; inner != nil {
			o.OpenProcess = open(inner)
		}
	}}
}

// live is wrong in the process that it hands over.
func live(id, fault, kills string, change func(a *altered, env *Env)) Saboteur {
	return Saboteur{ID: id, Fault: fault, Kills: kills, Suite: report.Live, Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
		return opener(p, func(inner sandbox.ProcessOpener) OpenProcessFunc {
			return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
				opened, err := inner.OpenProcess(ctx, id, processID, q)
				if err != nil {
					return nil, err
				}
				a := &altered{Process: opened, request: q}
				change(a, env)
				return a, nil
			}
		})
	}}
}

// requested is wrong in what it makes of the request. change reports whether it
// changed something, which is a copy.
func requested(id, fault, kills string, change func(q *sandbox.ProcessRequest) bool) Saboteur {
	return Saboteur{ID: id, Fault: fault, Kills: kills, Suite: report.Live, Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
		return opener(p, func(inner sandbox.ProcessOpener) OpenProcessFunc {
			return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
				q.Arguments = slices.Clone(q.Arguments)
				if change(&q) {
					env.Fire()
				}
				return inner.OpenProcess(ctx, id, processID, q)
			}
		})
	}}
}

// evidenceFaults break one clause each and nothing before or after it.
func evidenceFaults() []Saboteur {
	lie := func(id, clause, fault string, change func(e *sandbox.Evidence)) Saboteur {
		return live(id, "evidence: "+fault, "identity.evidence/clause-"+clause, func(a *altered, env *Env) {
			e := a.Process.Evidence()
			change(&e)
			a.evidence = &e
			env.Fire()
		})
	}
	return []Saboteur{
		lie("P1", "1", "of another instance", func(e *sandbox.Evidence) { e.InstanceID += "1" }),
		lie("P2", "3", "another provider revision", func(e *sandbox.Evidence) { e.ProviderRevision += "1" }),
		lie("P3", "5", "another root image of the same digest", func(e *sandbox.Evidence) { e.RootImage = "mirror." + e.RootImage }),
		lie("P4", "8", "another network mode", func(e *sandbox.Evidence) { e.NetworkMode = sandbox.NetworkUnrestricted }),
		lie("P5", "9", "other resource limits", func(e *sandbox.Evidence) { e.ResourceLimits.MemoryBytes++ }),
		lie("P6", "16", "another authority than the envelope says", func(e *sandbox.Evidence) {
			e.Enforcement.RootReadOnly = otherAuthority(e.Enforcement.RootReadOnly)
		}),
		lie("P31", "6", "another platform", func(e *sandbox.Evidence) { e.Platform.OS += "1" }),
		lie("P32", "7", "another profile digest", func(e *sandbox.Evidence) { e.ProfileDigest = e.ImageDigest }),
		lie("P33", "2", "another provider", func(e *sandbox.Evidence) { e.Provider += "1" }),
		lie("P34", "4", "another materialization revision", func(e *sandbox.Evidence) { e.MaterializationRevision += "1" }),
		lie("P35", "10", "another schema", func(e *sandbox.Evidence) { e.Schema += "1" }),
		lie("P36", "11", "of another process", func(e *sandbox.Evidence) { e.ProcessID += "1" }),
		lie("P37", "12", "an image digest that is not its image's", func(e *sandbox.Evidence) { e.ImageDigest = e.ProfileDigest }),
		lie("P38", "13", "observed before it started", func(e *sandbox.Evidence) { e.ObservedAt = "1970-01-01T00:00:00.000Z" }),
		lie("P39", "14", "an authority that is none", func(e *sandbox.Evidence) { e.Enforcement.NonRoot = "assumed" }),
		lie("P40", "15", "a restricted network that nobody enforces", func(e *sandbox.Evidence) { e.Enforcement.NetworkPolicy = sandbox.NotEnforced }),
		evidenceFromGuest(),
	}
}

// otherAuthority is an authority that is not a.
func otherAuthority(a sandbox.Authority) sandbox.Authority {
	if a == sandbox.GuestObserved {
		return sandbox.NotEnforced
	}
	return sandbox.GuestObserved
}

// evidenceFromGuest keeps its evidence where the workload can write.
func evidenceFromGuest() Saboteur {
	const at = sandbox.HomePath + "/evidence.json"
	return Saboteur{ID: "P7", Fault: "evidence is read from a file of the guest", Kills: "process.evidence-own/own", Suite: report.Live,
		Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return opener(p, func(inner sandbox.ProcessOpener) OpenProcessFunc {
				return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
					opened, err := inner.OpenProcess(ctx, id, processID, q)
					if err != nil {
						return nil, err
					}
					a, kept := &altered{Process: opened}, sandbox.Evidence{}
					s, err := p.Execute(ctx, id, sandbox.Command{Executable: "cat", Arguments: []string{at}, WorkingDirectory: "/", TimeoutSeconds: 5, OutputLimitBytes: 1 << 16})
					if err == nil && json.Unmarshal(s.Stdout, &kept) == nil {
						env.Fire()
						a.evidence = &kept
					}
					return a, nil
				}
			})
		}}
}

// tally counts under a lock: the streams are used by several goroutines.
type tally struct {
	mu sync.Mutex
	n  int64
}

// add adds and returns the sum.
func (c *tally) add(n int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(n)
	return c.n
}

package sandboxtest

import (
	"context"
	"sync"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// waiting is a wait whose exit is changed.
func waiting(a *altered, change func(e sandbox.Exit) sandbox.Exit) func(ctx context.Context) (sandbox.Exit, error) {
	return func(ctx context.Context) (sandbox.Exit, error) {
		e, err := a.Process.Wait(ctx)
		if err == nil {
			e = change(e)
		}
		return e, err
	}
}

// processLost is what a provider says that has lost something.
func processLost() error {
	return sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, nil)
}

// exitFaults are wrong in wait, signal or destroy.
func exitFaults() []Saboteur {
	return []Saboteur{
		live("P9", "wait gives both causes", "open-process.exit", func(a *altered, env *Env) {
			a.wait = waiting(a, func(e sandbox.Exit) sandbox.Exit {
				env.Fire()
				if e.ExitCode == nil {
					return sandbox.Exit{ExitCode: sandbox.Exited(0).ExitCode, Signal: e.Signal}
				}
				return sandbox.Exit{ExitCode: e.ExitCode, Signal: "SIGTERM"}
			})
		}),
		live("P10", "wait can be read once", "process.wait-again", func(a *altered, env *Env) {
			var reads tally
			a.wait = func(ctx context.Context) (sandbox.Exit, error) {
				e, err := a.Process.Wait(ctx)
				if err == nil && reads.add(1) > 1 {
					env.Fire()
					return sandbox.Exit{}, processLost()
				}
				return e, err
			}
		}),
		live("P22", "SIGTERM is sent as SIGKILL", "process.signal-ignored/input", func(a *altered, env *Env) {
			a.signal = func(ctx context.Context, s sandbox.ControlSignal) error {
				if s == sandbox.SignalTerminate && !a.ended() {
					env.Fire()
					s = sandbox.SignalKill
				}
				return a.Process.Signal(ctx, s)
			}
		}),
		live("P23", "a second destroy fails", "process.destroy-again/again", func(a *altered, env *Env) {
			var calls tally
			a.destroy = func(ctx context.Context) error {
				if calls.add(1) > 1 {
					env.Fire()
					return processLost()
				}
				return a.Process.Destroy(ctx)
			}
		}),
		live("P24", "destroy sends SIGTERM and waits without a bound", "process.destroy-stubborn/settles", func(a *altered, env *Env) {
			a.destroy = func(ctx context.Context) error {
				if a.says("trap '' TERM") && !a.ended() {
					env.Fire()
					env.Hang()
				}
				return a.Process.Destroy(ctx)
			}
		}),
		live("P29", "a grandchild that holds the output keeps wait from settling", "process.grandchild/settles", func(a *altered, env *Env) {
			a.wait = func(ctx context.Context) (sandbox.Exit, error) {
				if a.says(" & ") {
					env.Fire()
					env.Hang()
				}
				return a.Process.Wait(ctx)
			}
		}),
		live("P30", "the process survives destroy", "process.destroy-ends/silent", func(a *altered, env *Env) {
			var destroyed tally
			a.destroy = func(context.Context) error {
				if !a.ended() {
					env.Fire()
				}
				destroyed.add(1)
				return nil
			}
			a.wait = func(ctx context.Context) (sandbox.Exit, error) {
				if destroyed.add(0) > 0 {
					return sandbox.Signaled("SIGKILL"), nil
				}
				return a.Process.Wait(ctx)
			}
		}),
		live("P47", "an exit code loses its highest bit", "process.exit-code/code", func(a *altered, env *Env) {
			a.wait = waiting(a, func(e sandbox.Exit) sandbox.Exit {
				if e.ExitCode == nil || *e.ExitCode < 128 {
					return e
				}
				env.Fire()
				return sandbox.Exited(*e.ExitCode & 0x7f)
			})
		}),
		live("P48", "a wait that is given up ends the process", "process.wait-given-up/input", func(a *altered, env *Env) {
			a.wait = func(ctx context.Context) (sandbox.Exit, error) {
				e, err := a.Process.Wait(ctx)
				if err != nil && ctx.Err() != nil {
					env.Fire()
					_ = a.Process.Destroy(context.WithoutCancel(ctx))
				}
				return e, err
			}
		}),
		live("P49", "SIGINT arrives as SIGTERM", "process.signal-names/sigint", func(a *altered, env *Env) {
			a.signal = func(ctx context.Context, s sandbox.ControlSignal) error {
				if s == sandbox.SignalInterrupt {
					env.Fire()
					s = sandbox.SignalTerminate
				}
				return a.Process.Signal(ctx, s)
			}
		}),
		live("P50", "SIGKILL follows SIGTERM at once", "process.signal-ignored/input", func(a *altered, env *Env) {
			a.signal = func(ctx context.Context, s sandbox.ControlSignal) error {
				err := a.Process.Signal(ctx, s)
				if err == nil && s == sandbox.SignalTerminate && !a.ended() {
					env.Fire()
					err = a.Process.Signal(ctx, sandbox.SignalKill)
				}
				return err
			}
		}),
		live("P51", "a signal after the exit fails", "process.signal-late/nothing", func(a *altered, env *Env) {
			a.signal = func(ctx context.Context, s sandbox.ControlSignal) error {
				if a.ended() {
					env.Fire()
					return processLost()
				}
				return a.Process.Signal(ctx, s)
			}
		}),
		exitLost(),
		releaseBusy(),
	}
}

// exitLost forgets who waits for a process when its instance is destroyed.
func exitLost() Saboteur {
	return Saboteur{ID: "P52", Fault: "wait never settles once the instance is destroyed", Kills: "process.instance-destroy/settles", Suite: report.Live,
		Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			var destroyed sync.Map
			o := opener(p, func(inner sandbox.ProcessOpener) OpenProcessFunc {
				return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
					opened, err := inner.OpenProcess(ctx, id, processID, q)
					if err != nil {
						return nil, err
					}
					a := &altered{Process: opened}
					a.wait = func(ctx context.Context) (sandbox.Exit, error) {
						if _, gone := destroyed.Load(id); gone {
							env.Fire()
							env.Hang()
						}
						return a.Process.Wait(ctx)
					}
					return a, nil
				}
			})
			o.DestroyFunc = func(ctx context.Context, id sandbox.InstanceID) error {
				destroyed.Store(id, true)
				return p.Destroy(ctx, id)
			}
			return o
		}}
}

// releaseBusy counts the processes that it has opened and none that ended.
func releaseBusy() Saboteur {
	return Saboteur{ID: "P53", Fault: "an instance that ran a process is never released", Kills: "process.release/release", Suite: report.Live,
		Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			var ran sync.Map
			o := opener(p, func(inner sandbox.ProcessOpener) OpenProcessFunc {
				return func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
					ran.Store(id, true)
					return inner.OpenProcess(ctx, id, processID, q)
				}
			})
			o.ReleaseFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
				if _, busy := ran.Load(id); busy {
					env.Fire()
					return sandbox.Handoff[sandbox.Released]{}, sandbox.Conflict(sandbox.OpRelease, "no process", sandbox.ActualBusy)
				}
				return p.Release(ctx, id, q)
			}
			return o
		}}
}

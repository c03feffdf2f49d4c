package probe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/sandboxruntime/clocktest"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

func TestRestart(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	for _, c := range []struct {
		name    string
		restart func(p sandbox.Provider, clock *clocktest.Clock) func(context.Context) (sandbox.Provider, error)
		want    report.Status
	}{
		{"nobody can", func(sandbox.Provider, *clocktest.Clock) func(context.Context) (sandbox.Provider, error) { return nil }, report.Skip},
		{"it fails", func(sandbox.Provider, *clocktest.Clock) func(context.Context) (sandbox.Provider, error) {
			return func(context.Context) (sandbox.Provider, error) { return nil, errors.New("no") }
		}, report.Error},
		{"nothing comes up", func(sandbox.Provider, *clocktest.Clock) func(context.Context) (sandbox.Provider, error) {
			return func(context.Context) (sandbox.Provider, error) { return nil, nil }
		}, report.Error},
		{"it hangs", func(_ sandbox.Provider, clock *clocktest.Clock) func(context.Context) (sandbox.Provider, error) {
			return func(context.Context) (sandbox.Provider, error) {
				clock.Advance(time.Hour)
				<-over
				return nil, nil
			}
		}, report.Error},
		{"another one", func(p sandbox.Provider, _ *clocktest.Clock) func(context.Context) (sandbox.Provider, error) {
			return func(context.Context) (sandbox.Provider, error) {
				return sandboxtest.Override{Provider: p, Members: func(o *sandbox.Optional) { o.ListDir = nil }}, nil
			}
		}, report.Pass},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := clocktest.New(time.Unix(1, 0))
			target, p := oracle.New(c.name)
			target.Restart = c.restart(p, clock)
			rep := probe.Run(t.Context(), target, []probe.Probe{{ID: "one.restart", Suite: report.Faults, Run: func(t *probe.T) {
				m := t.Machine(probe.Shape{})
				t.Restart()
				t.Check("members", t.Optional().ListDir == nil, "the members of the one that came up", "those of the one before")
				m.Sh("true")
			}}}, probe.Options{Seed: c.name, Passes: 1, Watch: clock})
			if got := rep.Probes[0]; got.Status != c.want {
				t.Errorf("%s: %s %+v", got.Status, got.Reason, got.Findings)
			}
			if left := p.Census(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

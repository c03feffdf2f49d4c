package probe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// mute is an error whose text does not come before the test is over.
type mute struct{ over <-chan struct{} }

func (m mute) Error() string { <-m.over; return "" }

// snake wraps itself until the test is over.
type snake struct{ over <-chan struct{} }

func (s *snake) Error() string { return "snake" }
func (s *snake) Unwrap() error {
	select {
	case <-s.over:
		return nil
	default:
		return s
	}
}

// burst is an error whose text panics.
type burst struct{}

func (burst) Error() string { panic(burst{}) }

// Errors are values of the target: whatever they do when they are read, the run
// ends and says so.
func TestErrorsOfTheTargetCannotHoldTheRun(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	for _, c := range []struct {
		name string
		err  error
		exit int64
	}{
		{"no text", mute{over}, report.ExitError},
		{"wraps itself", &snake{over}, report.ExitError},
		{"an error of the contract that wraps one", sandbox.Failed(sandbox.OpWriteFile, sandbox.ReasonProviderError, &snake{over}), report.ExitError},
		{"a text that panics", burst{}, report.ExitFail},
		{"ten megabytes", errors.New(strings.Repeat("\xff", 10<<20)), report.ExitFail},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, p := oracle.New(t.Name())
			target.Provider = sandboxtest.Override{Provider: p, WriteFileFunc: func(context.Context, sandbox.InstanceID, sandbox.FileWrite) error {
				return c.err
			}}
			list := []probe.Probe{{ID: "one.write", Suite: report.Nine, Run: func(t *probe.T) {
				err := t.Provider().WriteFile(t.Context(), t.Machine(probe.Shape{}).ID, sandbox.FileWrite{Path: sandbox.OutputPath + "/f"})
				t.Check("refused", err != nil, "an error", err)
			}}}
			done := make(chan report.Report, 1)
			go func() {
				done <- probe.Run(t.Context(), target, list, probe.Options{Passes: 1, Patience: 50 * time.Millisecond, Transcript: &report.Transcript{}})
			}()
			select {
			case rep := <-done:
				if rep.ExitCode != c.exit {
					t.Errorf("exit %d (%s), want %d", rep.ExitCode, rep.Reason, c.exit)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the run hangs")
			}
		})
	}
}

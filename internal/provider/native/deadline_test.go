package native

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// The deadline holds by the clock. The timer that removes an instance comes when
// the host gets to it, and here never: only the provider's clock is moved.
func TestNothingWorksPastItsDeadlineWhileTheTimerIsLate(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		var ahead atomic.Int64
		p.opt.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		r := request(p)
		id := provision(t, p, r)
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		mustExit(t, sh(t, p, id, "true"), 0)
		deadline, err := r.ExpiresAt.Time()
		if err != nil {
			t.Fatal(err)
		}
		ahead.Store(int64(time.Until(deadline)) + int64(time.Millisecond))
		for op, work := range map[sandbox.Operation]func() error{
			sandbox.OpExecute: func() error { _, err := p.Execute(t.Context(), id, shell("true")); return err },
			sandbox.OpWriteFile: func() error {
				return p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: sandbox.OutputPath + "/f"})
			},
			sandbox.OpReadFile: func() error {
				_, err := p.ReadFile(t.Context(), id, sandbox.FileRead{Path: sandbox.OutputPath + "/f", AllowedRoot: sandbox.OutputPath, MaximumBytes: 1})
				return err
			},
			sandbox.OpOpenProcess: func() error {
				_, err := p.Optional().OpenProcess.OpenProcess(t.Context(), id, "p", sandbox.ProcessRequest{Executable: "true", WorkingDirectory: "/", Environment: map[string]string{}})
				return err
			},
			sandbox.OpActivate: func() error { _, err := p.Activate(t.Context(), id); return err },
			sandbox.OpRelease:  func() error { _, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{}); return err },
		} {
			if err := work(); !errors.Is(err, sandbox.NoInstance(op, id)) {
				t.Errorf("%s: %v", op, err)
			}
		}
	})
}
